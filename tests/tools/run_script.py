"""Runs a Python script for CTest; skips it (77) where a module that it imports is missing."""

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
    parser.add_argument("--needs", default="", help="modules that the script imports, by comma")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    absent = missing(options.needs.split(","))
    if absent:
        print("skipped: this Python lacks " + ", ".join(absent))
        return SKIP
    return subprocess.call([sys.executable, options.script, *options.arguments])


if __name__ == "__main__":
    sys.exit(main())
