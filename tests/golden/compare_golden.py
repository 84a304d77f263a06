"""Compares what the languages made of the golden cases: the same bits in every one.

Reads the digests that run_golden.py left, one file a language, and prints how many cases each ran.
"""

import argparse
import sys
from pathlib import Path

SKIP = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    languages = {}
    for path in sorted(options.work.glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines()
        languages[path.stem] = dict(line.split() for line in lines)
        print(f"{path.stem}: {len(lines)} cases")
    if len(languages) < 2:
        print("skipped: fewer than two languages ran, there is nothing to compare")
        return SKIP
    differences = 0
    for name in sorted({name for cases in languages.values() for name in cases}):
        found = {language: cases.get(name, "nothing") for language, cases in languages.items()}
        if len(set(found.values())) == 1:
            continue
        differences += 1
        print(f"FAILED {name}: " + ", ".join(f"{key} {value}" for key, value in found.items()))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
