"""The wheel, built once, and an empty environment with numpy for each Python that is here."""

import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import dev_gpu  # noqa: E402
import dev_wheel  # noqa: E402

VERSIONS = ("3.11", "3.12", "3.13")
PYENV = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))


def find_python(version):
    """An interpreter of a version, by its name or among pyenv's; None where there is none."""
    candidates = [shutil.which(f"python{version}"),
                  *sorted(glob.glob(f"{PYENV}/versions/{version}*/bin/python{version}"))]
    for path in filter(None, candidates):
        probe = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
        if subprocess.run([path, "-c", probe], capture_output=True, check=False).returncode == 0:
            return path
    return None


def pip_install(environment, *arguments):
    """pip of this Python, working on another environment: that one stays without pip."""
    return subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(environment), "--disable-pip-version-check",
         "install", "--no-compile", "--only-binary", ":all:",
         *map(str, arguments)],
        text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL, cwd=ROOT)


def small_pack(folder):
    """A pack of kernels that compile in seconds, where NVRTC is here; None elsewhere."""
    tool = ROOT / "build" / "release" / "bin" / "kernel_variants"
    made = folder / "attn_c_kernels.pack"
    command = [sys.executable, ROOT / "tools" / "make_kernel_pack.py", "--tool", tool, "--output",
               made, "--engines", "session,thread-scatter"]
    if not tool.exists() or subprocess.run(command, capture_output=True,
                                           check=False).returncode != 0:
        return None
    return made


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The path of the wheel, with the pack of ready kernels where one was made, or a small one."""
    pack = dev_gpu.PACK
    if dev_gpu.is_pack_stale():
        pack = small_pack(tmp_path_factory.mktemp("pack"))
    return dev_wheel.build_wheel(pack=pack, target=tmp_path_factory.mktemp("dist"))


def oldest_numpy():
    """The requirement for the oldest numpy that the wheel declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = next(one for one in project["project"]["dependencies"] if one.startswith("numpy"))
    return declared.replace(">=", "==") + ".0"


ENVIRONMENTS = [*((version, "numpy") for version in VERSIONS), (VERSIONS[0], oldest_numpy())]


@pytest.fixture(scope="session", params=ENVIRONMENTS, ids="-".join)
def installed(request, wheel, tmp_path_factory):
    """The Python of an environment that has numpy and the wheel, and not even pip."""
    version, numpy = request.param
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    folder = tmp_path_factory.mktemp(f"python{version}")
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    inside = folder / "bin" / "python"
    fetched = pip_install(inside, numpy)
    if fetched.returncode != 0:
        pytest.skip(f"{numpy} for Python {version} cannot be fetched: "
                    f"{(fetched.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    done = pip_install(inside, "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    return inside
