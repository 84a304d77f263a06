"""Builds and runs the programs of a guide in docs/, so that what it shows is true.

Every block of the guide in its language is a whole program, and the ```text block after it is
what the program prints; it must exit with 0. Commands come from the test: {source} is the
program's file, {program} what is built from it.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

SKIP = 77
SECONDS = 300
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
SUFFIXES = {"c": ".c", "cpp": ".cc", "csharp": ".cs", "rust": ".rs"}


def programs(guide, language):
    """(program, what it prints) of each block in the language; None where no text follows."""
    blocks = FENCE.findall(guide.read_text(encoding="utf-8"))
    for number, (kind, text) in enumerate(blocks):
        if kind != language:
            continue
        after = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        yield text, after[1] if after[0] == "text" else None


def fill(command, **places):
    """A command line, word by word, with its places filled in."""
    return [word.format(**{name: str(path) for name, path in places.items()})
            for word in shlex.split(command)]


def check(text, expected, options, number):
    """What is wrong with one program; empty where nothing is. An exit code of 77 is handed on."""
    source = options.work / f"program{number}{SUFFIXES[options.language]}"
    program = options.work / f"program{number}"
    source.write_text(text, encoding="utf-8")
    for command in options.build:
        built = subprocess.run(fill(command, source=source, program=program), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if built.returncode == SKIP:
            print(built.stdout, end="")
            sys.exit(SKIP)
        if built.returncode != 0:
            return f"it does not compile:\n{built.stdout}"
    done = subprocess.run(fill(options.run, source=source, program=program), text=True,
                          capture_output=True, timeout=SECONDS, check=False)
    if done.returncode == SKIP:
        print(done.stdout, end="")
        sys.exit(SKIP)
    if done.returncode != 0:
        return f"it exits with {done.returncode}:\n{done.stdout}{done.stderr}"
    if done.stdout != expected:
        return f"it prints something else than shown:\n{done.stdout}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guide", type=Path, required=True)
    parser.add_argument("--language", choices=SUFFIXES, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for what is made")
    parser.add_argument("--build", action="append", default=[], help="a command line")
    parser.add_argument("--run", default="{program}", help="a command line")
    options = parser.parse_args()

    options.work.mkdir(parents=True, exist_ok=True)
    found = list(programs(options.guide, options.language))
    failures = 0
    for number, (text, expected) in enumerate(found, 1):
        wrong = "no block of text follows it" if expected is None else \
            check(text, expected, options, number)
        if wrong:
            failures += 1
            print(f"{options.guide.name}, program {number}: {wrong}")
    print(f"{options.guide.name}: {len(found)} programs, {failures} wrong")
    return 1 if failures or not found else 0


if __name__ == "__main__":
    sys.exit(main())
