"""Counts test cases: what CTest ran, and inside it what GoogleTest and pytest ran.

A CTest entry that left <build>/results/<entry>.xml behind counts as the cases in that file; any
other entry counts as one. An entry that failed although no case in its file did (it crashed, or ran
out of time) counts as one more failure.
"""

import dataclasses
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Counts:
    """Sums over test runs; `skips` and `failures` hold (case, reason)."""

    passed: int = 0
    failures: list = dataclasses.field(default_factory=list)
    skips: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips

    def line(self):
        return (f"{self.passed} passed, {len(self.failures)} failed, "
                f"{len(self.skips)} skipped")


def lines_of(text):
    """The lines with something in them, stripped."""
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def one_line(text, limit=200):
    """A text of several lines in one, cut where it is long."""
    whole = " ".join(lines_of(text))
    return whole if len(whole) <= limit else whole[:limit] + " ..."


def skip_reason(element):
    """Why a case was skipped; GoogleTest puts the place in a line above the reason."""
    lines = lines_of(element.get("message")) or lines_of(element.text)
    return " ".join(lines[1:] or lines) or "no reason given"


def count_cases(path):
    """The cases of one JUnit file, as GoogleTest and pytest write it."""
    counts = Counts()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name')}".lstrip(".")
        failed = [case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None]
        skipped = case.find("skipped")
        if failed:
            counts.failures.append((name, one_line(failed[0].get("message"))))
        elif skipped is not None:
            counts.skips.append((name, skip_reason(skipped)))
        elif case.get("status") == "notrun":
            counts.failures.append((name, "disabled: a case is mended or removed"))
        else:
            counts.passed += 1
    return counts


def last_line(case):
    """The last line that an entry printed."""
    return (lines_of(case.findtext("system-out")) or [""])[-1]


def count_entry(case, results):
    """One CTest entry: what its own result file says, or itself."""
    name, status = case.get("name"), case.get("status")
    inner = results / f"{name}.xml"
    counts = Counts()
    if inner.exists():
        try:
            counts = count_cases(inner)
        except ElementTree.ParseError:
            counts = Counts(failures=[(name, f"left a damaged result file, {inner.name}")])
        if status == "fail" and not counts.failures:
            counts.failures.append((name, failure_text(case)))
        return counts
    if status == "run":
        counts.passed = 1
    elif case.find("skipped") is not None and status != "fail":
        counts.skips.append((name, last_line(case).removeprefix("skipped:").strip()
                             or "no reason given"))
    else:
        counts.failures.append((name, failure_text(case)))
    return counts


def failure_text(case):
    """What CTest says of a failed entry, or how long it ran and the last line that it printed."""
    failure = case.find("failure")
    said = one_line(failure.get("message")) if failure is not None else "did not run"
    return said or f"after {float(case.get('time', 0)):.0f} s: {last_line(case)}"


def count_ctest(junit, results):
    """Everything that one run of CTest executed."""
    counts = Counts()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        counts.add(count_entry(case, results))
    return counts


def golden_line(folder):
    """How many golden cases each language ran, in one line; empty where none did."""
    counts = [f"{path.stem} {len(path.read_text(encoding='utf-8').splitlines())}"
              for path in sorted(folder.glob("*.txt"))]
    return "golden cases: " + ", ".join(counts) if counts else ""
