"""Runs the golden cases through the Python package: runner.py FOLDER.

One line a case: "ok <name> <digest>" or "FAILED <name> <what is wrong>".
"""

import pathlib
import sys

import attn_c
from attn_c import _golden


def main():
    folder = pathlib.Path(sys.argv[1])
    context = attn_c.Context("cpu", ignore_environment=True)
    outcomes = [_golden.run_case(context, folder, name) for name in _golden.names(folder)]
    for one in outcomes:
        print(f"FAILED {one.case} {one.wrong}" if one.wrong else f"ok {one.case} {one.digest}")
    return 0 if outcomes and not any(one.wrong for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
