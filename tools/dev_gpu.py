"""`./dev gpu-test` and `./dev gpu-bench`, where there may be no compiler and no network.

The tests' programs lie in build/gpu/bin and build/gpu/lib, those of the benchmark in bin, lib and
python of build/release. They are built first where that is possible; else the ones that were built
elsewhere and copied here are run.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev_build import BuildError, build
from dev_results import Counts, count_cases
from dev_setup import BUILD, PACKAGES, ROOT, VENV, is_there, say

TREE = BUILD / "gpu"
PROGRAM = TREE / "bin" / "gpu_tests"
RESULTS = TREE / "results"
TARGETS = ["attn_c", "gpu_tests", "decode_loop"]
BENCH_TREE = BUILD / "release"
PYTHON_TARGETS = ["attn_c", "attn_c_python"]
PYTHON_TESTS = ROOT / "tests" / "python_gpu"
BENCH_TARGETS = ["attn_c", "attn_c_python", "gpu_host"]
PACK = BENCH_TREE / "lib" / "attn_c_kernels.pack"
SANITIZER_SUITE = ROOT / "tests" / "gpu" / "sanitizer_suite.txt"
SANITIZER_TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
SUITES_AT_ONCE = 4
SANITIZER_FOUND = 86  # its exit code when it has findings
LIBRARY_FOLDERS = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib",
                   "/usr/lib/x86_64-linux-gnu"]


def is_buildable(program=PROGRAM):
    """Whether to build: everything is there, and no programs were copied here instead."""
    copied = program.exists() and not (program.parents[1] / "build.ninja").exists()
    return not copied and all(is_there(probe) for probe in PACKAGES.values())


def newest(paths):
    """The library with the highest version in its name."""
    def version(path):
        return [int(part) for part in re.findall(r"\d+", Path(path).name)]
    return max(paths, key=version, default=None)


def find_nvrtc():
    """The compiler of kernels where the system's loader would not look: in Python's packages."""
    folders = [*LIBRARY_FOLDERS, *(f"{entry}/nvidia/*/lib" for entry in sys.path if entry)]
    found = [path for folder in folders for path in glob.glob(f"{folder}/libnvrtc.so.1[2-9]*")
             if "builtins" not in path]
    return newest(found)


def environment(extra, tree=TREE):
    result = dict(os.environ)
    rest = [result["LD_LIBRARY_PATH"]] if result.get("LD_LIBRARY_PATH") else []
    result["LD_LIBRARY_PATH"] = os.pathsep.join([str(tree / "lib"), *rest])
    result["ATTN_C_LIBRARY"] = str(tree / "lib" / "libattn_c.so.0")
    result["ATTN_C_SOURCE_FOLDER"] = str(ROOT)
    result.setdefault("ATTN_C_CACHE_FOLDER", str(tree / "kernels"))
    nvrtc = find_nvrtc()
    if nvrtc:
        result.setdefault("ATTN_C_NVRTC_PATH", nvrtc)
    result.update(extra)
    return result


def list_suites(pattern):
    """Names of the test suites that have a case in the pattern."""
    text = subprocess.run([PROGRAM, "--gtest_list_tests", f"--gtest_filter={pattern}"],
                          env=environment({}), text=True, stdout=subprocess.PIPE, check=True).stdout
    return [line.split("#")[0].strip().removesuffix(".") for line in text.splitlines()
            if line and not line.startswith(" ") and line.split("#")[0].strip().endswith(".")]


def run_program(name, before, pattern, seconds, extra):
    """Runs the cases of a pattern in a process of their own, prints its words; their counts."""
    result = RESULTS / f"{name.replace('/', '_')}.xml"
    result.unlink(missing_ok=True)
    command = [*before, PROGRAM, f"--gtest_filter={pattern}", f"--gtest_output=xml:{result}",
               "--gtest_brief=0"]
    log = RESULTS / f"{name.replace('/', '_')}.log"
    try:
        with log.open("wb") as out:
            code = subprocess.run([str(part) for part in command], env=environment(extra), cwd=ROOT,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                  timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return Counts(failures=[(name, f"ran longer than {seconds} s")])
    finally:
        print(log.read_text(encoding="utf-8", errors="replace"), end="", flush=True)
    if not result.exists():
        return Counts(failures=[(name, f"ended with code {code} and left no results")])
    counts = count_cases(result)
    if before and code == SANITIZER_FOUND:
        counts.failures.append((name, "the sanitizer has findings, shown above"))
    elif code != 0 and not counts.failures:
        counts.failures.append((name, f"ended with code {code}"))
    return counts


def intersect(pattern, suite):
    """The part of a GoogleTest pattern that lies in a suite."""
    if pattern == "*":
        return f"{suite}.*"
    return ":".join(part for part in pattern.split(":") if part.startswith(suite + ".")) or \
        f"{suite}.*"


def run_suites(counts, pattern, seconds):
    """Each suite in a process of its own, since a device error ends what comes after it in one;
    some at a time, since most of their time is the host's: compiling, and the reference."""
    def run(suite):
        start = time.monotonic()
        result = run_program(suite, [], intersect(pattern, suite), seconds, {})
        say(f"{suite}: {time.monotonic() - start:.1f} s")
        return result

    with ThreadPoolExecutor(SUITES_AT_ONCE) as pool:
        for result in pool.map(run, list_suites(pattern)):
            counts.add(result)


def find_sanitizer():
    for path in ["compute-sanitizer", *sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))]:
        found = shutil.which(path)
        if found:
            return found
    return None


def sanitizer_pattern():
    lines = SANITIZER_SUITE.read_text(encoding="utf-8").splitlines()
    return ":".join(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def run_sanitizer(counts, tools, pattern, seconds):
    """The small suite under compute-sanitizer, one tool after the other."""
    sanitizer = find_sanitizer()
    if sanitizer is None:
        counts.skips.append(("sanitizer", "compute-sanitizer is not on this machine"))
        return
    extra = {"ATTN_C_TEST_EXACT": "1", "ATTN_C_TEST_THREADS": "1", "ATTN_C_TEST_REPLAYS": "10"}
    for tool in tools:
        start = time.monotonic()
        before = [sanitizer, "--tool", tool, "--error-exitcode", str(SANITIZER_FOUND)]
        counts.add(run_program(tool, before, pattern, seconds, extra))
        say(f"{tool}: {time.monotonic() - start:.1f} s")


def run_python_tests(counts, seconds):
    """The tests of the Python package on the device, by a Python that has PyTorch."""
    python, module = find_torch(), BENCH_TREE / "python" / "attn_c" / "_native.abi3.so"
    try:
        if is_buildable(BENCH_TREE / "bin" / "gpu_host"):
            build("release", PYTHON_TARGETS)
    except BuildError as error:
        counts.failures.append(("build release", str(error)))
        return
    for missing, reason in ((python is None, "there is no PyTorch"),
                            (not module.exists(), "build/release/python is empty")):
        if missing:
            counts.skips.append(("python_gpu", reason))
            return
    result = RESULTS / "python_gpu.xml"
    result.unlink(missing_ok=True)
    start = time.monotonic()
    extra = {"PYTHONPATH": str(BENCH_TREE / "python"),
             "ATTN_C_CACHE_FOLDER": os.environ.get("ATTN_C_CACHE_FOLDER", str(TREE / "kernels"))}
    try:
        subprocess.run([python, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider",
                        f"--junitxml={result}", str(PYTHON_TESTS)], cwd=ROOT, timeout=seconds,
                       env=environment(extra, BENCH_TREE), stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        counts.failures.append(("python_gpu", f"ran longer than {seconds} s"))
        return
    if result.exists():
        counts.add(count_cases(result))
    else:
        counts.failures.append(("python_gpu", "left no results; is pytest installed?"))
    say(f"python_gpu: {time.monotonic() - start:.1f} s")


def gpu_test(pattern=None, sanitizer=None, seconds=1800):
    """Builds where possible, runs, counts; the exit code. `sanitizer`: its tools, empty for all."""
    counts = Counts()
    try:
        if pattern != "python" and is_buildable():
            build("gpu", TARGETS)
    except BuildError as error:
        counts.failures.append(("build gpu", str(error)))
    if pattern != "python" and not PROGRAM.exists():
        counts.failures.append((
            "gpu_tests", "not built: build/gpu/bin is empty, and building needs "
            + ", ".join(PACKAGES)))
    if not counts.failures:
        RESULTS.mkdir(parents=True, exist_ok=True)
        if sanitizer is None:
            if pattern != "python":
                run_suites(counts, pattern or "*", seconds)
            if pattern in (None, "python"):
                run_python_tests(counts, seconds)
        else:
            run_sanitizer(counts, sanitizer or SANITIZER_TOOLS, pattern or sanitizer_pattern(),
                          seconds)
    reasons = {}
    for name, reason in counts.skips:
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"skipped: {names[0]}{more}: {reason}")
    for name, reason in counts.failures:
        print(f"FAILED: {name}: {reason}")
    print(counts.line(), flush=True)
    return 1 if counts.failures else 0


def is_pack_stale():
    """Whether the pack of ready kernels is missing, or older than a kernel source."""
    if not PACK.exists():
        return True
    return PACK.stat().st_mtime < max(
        path.stat().st_mtime for path in (ROOT / "kernels").rglob("*") if path.is_file())


def build_bench():
    """What the benchmark runs; the pack of ready kernels only where NVRTC is at hand."""
    build("release", BENCH_TARGETS)
    if is_pack_stale():
        try:
            build("release", ["attn_c_kernel_pack"])
        except BuildError as error:
            say(f"{error}: there is no pack of ready kernels")


def find_torch():
    """A Python that has PyTorch, which gives the peers; None where there is none."""
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    for python in [str(VENV / "bin" / "python"), sys.executable, "python3", "python"]:
        if shutil.which(python) and subprocess.call([python, "-c", probe]) == 0:
            return python
    return None


def gpu_bench(arguments):
    """Builds where possible and measures; the exit code. `--build FOLDER` measures another tree."""
    if "--build" not in arguments and is_buildable(BENCH_TREE / "bin" / "gpu_host"):
        build_bench()
    python = find_torch()
    if python is None:
        say("there is no PyTorch, whose attention is measured beside this library's: install torch")
        return 1
    return subprocess.call([python, "-B", str(ROOT / "tests" / "bench" / "gpu_run.py"),
                            *arguments], cwd=ROOT, env=environment({}, BENCH_TREE))
