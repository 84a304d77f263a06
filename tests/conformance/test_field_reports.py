"""docs/field-reports.md names a test for each report, and that test is there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "field-reports.md"
FILES = [ROOT / "tests" / "conformance" / f"test_{name}_reports.py"
         for name in ("attention", "gqa", "sequence")]
# A report: a repository with a number, or the one project that has no number.
REPORT = r"[\w-]+#\d+|FlashQLA"


def rows():
    """(reports, names of tests, the rest) of each line."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and re.match(REPORT, cells[0]):
            yield re.findall(REPORT, cells[0]), re.findall(r"`([^`]+)`", cells[2]), cells[3]


@pytest.fixture(scope="module")
def known():
    """Names of all tests, as the page spells them."""
    python = re.findall(r"^def (test_\w+)", "\n".join(
        path.read_text(encoding="utf-8") for path in FILES), re.M)
    assert len(python) == len(set(python))
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in ("gpu", "matrix")
                        for path in (ROOT / "tests" / folder).glob("*_test.cc"))
    cases = re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", sources, re.M)
    return {*python, *(".".join(case) for case in cases)}


def test_every_line_names_tests_that_are_there(known):
    found = list(rows())
    assert len(found) == 44
    for reports, tests, drawn in found:
        assert tests, reports
        assert not {name for name in tests if name not in known}, reports
        assert not {name for name in re.findall(r"`([^`]+)`", drawn) if name not in known}, reports


def test_reports_of_the_tests_stand_on_the_page():
    named = {report for reports, _, _ in rows() for report in reports}
    noted = set()
    for path in FILES:
        for comment in re.findall(r"^def test_.*# (.*)$", path.read_text(encoding="utf-8"), re.M):
            # "flash-attention#28, #277" means two of one project.
            project = ""
            for name, number in re.findall(r"([\w-]*)#(\d+)", comment):
                project = name or project
                noted.add(f"{project}#{number}")
    assert noted and noted <= named
