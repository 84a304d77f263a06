"""`./dev test`: builds, runs every test that this machine can run, and counts."""

import re
import resource
import shutil
import subprocess
import time

from dev_build import BuildError, build, jobs
from dev_lint import tidy
from dev_results import Counts, count_ctest, golden_line
from dev_setup import BUILD, ROOT, environment, say

# Presets whose library is not the one that is shipped (`./dev test --preset asan`): they leave out
# what looks at the repository or at the shared library as a file.
SANITIZERS = ["asan", "ubsan", "tsan"]
NOT_SANITIZED = "repository|abi"


LABELS_FILE = ROOT / "tests" / "tools" / "CMakeLists.txt"


def labels():
    """CTest's labels, as the tests of the repository know them."""
    found = re.search(r"set\(known_labels\s+([^)]*)\)", LABELS_FILE.read_text(encoding="utf-8"))
    return found[1].split()


def processor_seconds():
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Run:
    """The parts of one `./dev test`, each with its time, and the sum of the counts."""

    def __init__(self):
        self.counts = Counts()
        self.golden = ""
        self.times = []
        self.begin = time.monotonic()

    def part(self, name, work):
        """Does one part and notes how long it took; False where it failed to finish."""
        start, busy = time.monotonic(), processor_seconds()
        try:
            result = work()
        except BuildError as error:
            say(str(error))
            self.counts.failures.append((name, str(error)))
            result = None
        self.times.append((name, time.monotonic() - start, processor_seconds() - busy))
        if isinstance(result, Counts):
            self.counts.add(result)
        return result is not None

    def report(self):
        """Prints skipped and failed cases, times and the closing line; the exit code."""
        reasons = {}
        for name, reason in self.counts.skips:
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print(f"skipped: {names[0]}{more}: {reason}")
        for name, reason in self.counts.failures:
            print(f"FAILED: {name}: {reason}")
        print("    time processor  part")
        total = ("in all", time.monotonic() - self.begin, sum(row[2] for row in self.times))
        for name, seconds, busy in [*self.times, total]:
            print(f"{seconds:7.1f} s {busy:7.1f} s  {name}")
        if self.golden:
            print(self.golden)
        print(self.counts.line(), flush=True)
        return 1 if self.counts.failures else 0


def run_ctest(preset, label=None, exclude=None):
    """Runs the tests of a built preset (with, or without, some labels); their counts."""
    tree = BUILD / preset
    results = tree / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    junit = tree / "ctest.xml"
    junit.unlink(missing_ok=True)
    for old in (tree / "golden").glob("*.txt"):
        old.unlink()
    command = ["ctest", "--test-dir", str(tree), "-j", str(jobs()), "--output-on-failure",
               "--no-tests=error", "--output-junit", str(junit)]
    if label:
        command += ["-L", f"^{label}$"]
    if exclude:
        command += ["-LE", f"^({exclude})$"]
    code = subprocess.call(command, env=environment(preset), stdin=subprocess.DEVNULL)
    if not junit.exists():
        what = f"label {label}" if label else "any label"
        return Counts(failures=[(f"ctest {preset}", f"ran no test with {what} (exit {code})")])
    return count_ctest(junit, results)


def build_and_test(run, preset, label=None, exclude=None):
    """Builds a preset and runs its tests; False where it does not build."""
    if not run.part(f"build {preset}", lambda: build(preset) or True):
        return False
    name = f"test {preset}" + (f" ({label})" if label else "")
    done = run.part(name, lambda: run_ctest(preset, label, exclude))
    run.golden = golden_line(BUILD / preset / "golden")
    return done


def run_tidy():
    """clang-tidy over the library's sources, as one test."""
    if tidy(jobs(), quick=True) == 0:
        return Counts(passed=1)
    return Counts(failures=[("clang-tidy", "findings, shown above")])


def test(set_up, preset=None, label=None):
    """Runs one preset or label where asked to, everything otherwise; the exit code."""
    run = Run()
    run.part("set-up", lambda: set_up() or True)
    exclude = NOT_SANITIZED if preset in SANITIZERS else None
    built = build_and_test(run, preset or "release", label, exclude)
    if built and preset is None and label is None:
        run.part("clang-tidy", run_tidy)
    return run.report()
