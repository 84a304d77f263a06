"""`./dev gpu-test`: the tests that need a GPU, where there may be no compiler and no network.

The programs lie in build/gpu/bin and build/gpu/lib. They are built first where that is possible;
else the ones that were built elsewhere and copied here are run.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from dev_build import BuildError, build
from dev_results import Counts, count_cases
from dev_setup import BUILD, PACKAGES, ROOT, is_there, say

TREE = BUILD / "gpu"
PROGRAM = TREE / "bin" / "gpu_tests"
RESULTS = TREE / "results"
TARGETS = ["attn_c", "gpu_tests", "decode_loop"]
SANITIZER_SUITE = ROOT / "tests" / "gpu" / "sanitizer_suite.txt"
SANITIZER_TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
SANITIZER_FOUND = 86  # its exit code when it has findings
LIBRARY_FOLDERS = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib",
                   "/usr/lib/x86_64-linux-gnu"]


def is_buildable():
    """Whether to build: everything is there, and no programs were copied here instead."""
    copied = PROGRAM.exists() and not (TREE / "build.ninja").exists()
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


def environment(extra):
    result = dict(os.environ)
    rest = [result["LD_LIBRARY_PATH"]] if result.get("LD_LIBRARY_PATH") else []
    result["LD_LIBRARY_PATH"] = os.pathsep.join([str(TREE / "lib"), *rest])
    result["ATTN_C_LIBRARY"] = str(TREE / "lib" / "libattn_c.so.0")
    result["ATTN_C_SOURCE_FOLDER"] = str(ROOT)
    result.setdefault("ATTN_C_CACHE_FOLDER", str(TREE / "kernels"))
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
    """Runs the cases of a pattern in a process of their own; their counts."""
    result = RESULTS / f"{name.replace('/', '_')}.xml"
    result.unlink(missing_ok=True)
    command = [*before, PROGRAM, f"--gtest_filter={pattern}", f"--gtest_output=xml:{result}",
               "--gtest_brief=0"]
    try:
        code = subprocess.run([str(part) for part in command], env=environment(extra), cwd=ROOT,
                              stdin=subprocess.DEVNULL, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return Counts(failures=[(name, f"ran longer than {seconds} s")])
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
    """Each suite by itself: a device error ends what comes after it in a process."""
    for suite in list_suites(pattern):
        start = time.monotonic()
        counts.add(run_program(suite, [], intersect(pattern, suite), seconds, {}))
        say(f"{suite}: {time.monotonic() - start:.1f} s")


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


def gpu_test(pattern=None, sanitizer=None, seconds=1800):
    """Builds where possible, runs, counts; the exit code. `sanitizer`: its tools, empty for all."""
    counts = Counts()
    try:
        if is_buildable():
            build("gpu", TARGETS)
    except BuildError as error:
        counts.failures.append(("build gpu", str(error)))
    if not PROGRAM.exists():
        counts.failures.append((
            "gpu_tests", "not built: build/gpu/bin is empty, and building needs "
            + ", ".join(PACKAGES)))
    if not counts.failures:
        RESULTS.mkdir(parents=True, exist_ok=True)
        if sanitizer is None:
            run_suites(counts, pattern or "*", seconds)
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
