"""Holds the C and C++ that the pages of docs/ show to programs that are compiled and run.

Every block fenced as ```c or ```cpp must stand, line for line but for its indentation, in a file
of the folders that are named; guides, whose blocks are whole programs, are run_guide.py's. Where a
program is named for a page, the page's ```text block is what it prints; it must exit with 0.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
GUIDES = {"c.md", "cpp.md"}
SECONDS = 60


def blocks(page, language):
    """The texts of a page's blocks in one language."""
    return [text for name, text in FENCE.findall(page.read_text(encoding="utf-8"))
            if name == language]


def lines(text):
    """Lines without their indentation; empty ones do not count."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def stands_in(block, source):
    """Whether the block's lines follow each other in the source's."""
    wanted, given = lines(block), lines(source)
    return any(given[at:at + len(wanted)] == wanted for at in range(len(given)))


def check_excerpts(docs, folders):
    """Complaints about blocks that no source has."""
    texts = [path.read_text(encoding="utf-8") for folder in folders
             for path in sorted(folder.rglob("*.c")) + sorted(folder.rglob("*.cc"))]
    for page in sorted(docs.rglob("*.md")):
        if page.name in GUIDES:
            continue
        for block in blocks(page, "c") + blocks(page, "cpp"):
            if not any(stands_in(block, text) for text in texts):
                yield f"{page.name}: no source has this excerpt:\n{block}"


def check_output(page, program):
    """Complaints about what a program prints."""
    shown = blocks(page, "text")
    if len(shown) != 1:
        yield f"{page.name}: {len(shown)} blocks of text, where one is what {program.name} prints"
        return
    done = subprocess.run([program], text=True, capture_output=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        yield f"{program.name} exits with {done.returncode}: {done.stdout}{done.stderr}"
    elif done.stdout != shown[0]:
        yield f"{page.name}: {program.name} prints something else than shown:\n{done.stdout}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True, nargs="+")
    parser.add_argument("--program", action="append", default=[], metavar="PAGE=PATH")
    options = parser.parse_args()
    found = list(check_excerpts(options.docs, options.sources))
    for pair in options.program:
        page, program = pair.split("=", 1)
        found += check_output(options.docs / page, Path(program))
    for complaint in found:
        print(complaint)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
