"""Compares the ABI as it is with what was reviewed last, the files in abi/current.

A difference fails: if it is meant, `./dev abi-accept` rewrites the files, and their change is
reviewed together with the change that caused it.
"""

import argparse
import difflib
import sys
from pathlib import Path

import abi_facts
import accepted_versions

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "include"


def current(library, compiler):
    """{file name: lines} of the ABI as it is."""
    symbols = abi_facts.exported_symbols(library)
    return {
        "symbols.txt": [f"{name} {node}" for name, node in sorted(symbols.items())],
        "declarations.txt": abi_facts.declarations(compiler, INCLUDE),
        "layout.txt": abi_facts.layouts(compiler, INCLUDE),
        "constants.txt": abi_facts.constants(compiler, INCLUDE),
    }


def differences(folder, facts):
    """Unified differences between the reviewed files and the facts."""
    for name, lines in facts.items():
        path = folder / name
        old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        yield from difflib.unified_diff(old, lines, f"reviewed/{name}", f"built/{name}", n=1,
                                        lineterm="")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--folder", type=Path, default=ROOT / "abi" / "current")
    parser.add_argument("--accept", action="store_true", help="rewrite the reviewed files")
    options = parser.parse_args()

    facts = current(options.library, options.compiler)
    if options.accept:
        # First, since it refuses to change a version that was released.
        folder = accepted_versions.accept(options.compiler)
        options.folder.mkdir(parents=True, exist_ok=True)
        for name, lines in facts.items():
            (options.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"wrote {', '.join(facts)} to {options.folder}, and {folder}")
        return 0
    found = list(differences(options.folder, facts))
    for line in found:
        print(line)
    if found:
        print("the ABI differs from abi/current; if that is meant: ./dev abi-accept")
        return 1
    print("the ABI is the reviewed one: " + ", ".join(f"{len(v)} {k}" for k, v in facts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
