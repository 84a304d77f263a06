"""Runs pytest for CTest: leaves JUnit XML behind, and skips (77) where a module is missing."""

import argparse
import subprocess
import sys

from run_script import SKIP, missing


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
