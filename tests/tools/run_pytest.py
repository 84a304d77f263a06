"""Runs pytest for CTest: leaves JUnit XML behind, and skips (77) where a module is missing."""

import argparse
import importlib.util
import subprocess
import sys

SKIP = 77


def missing(modules):
    """The modules of the list that this interpreter cannot import."""
    return [name for name in modules if name and importlib.util.find_spec(name) is None]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--needs", default="", help="modules that the tests import, by comma")
    parser.add_argument("--junit", required=True, help="where the results go")
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()

    absent = missing(["pytest", *options.needs.split(",")])
    if absent:
        print("skipped: this Python lacks " + ", ".join(absent))
        return SKIP
    # An exit code of 5 says that no test was found: a failure here, like every code but 0.
    return subprocess.call(
        [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider",
         "--junitxml", options.junit, *options.paths])


if __name__ == "__main__":
    sys.exit(main())
