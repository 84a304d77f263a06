"""Compiles and runs the C program in README.md, so that what the README shows is true.

The program is the first block fenced as ```c, and the ```text block after it is what it prints. It
is compiled as C99 with every warning an error, linked with the library and run; it must exit with 0
and print that text.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"^```c\n(.*?)^```$.*?^```text\n(.*?)^```$", re.M | re.S)
SECONDS = 60


def program(readme):
    """The program and what it prints; a pair of None where one is missing."""
    found = FENCE.search(readme.read_text(encoding="utf-8"))
    return found.groups() if found else (None, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", type=Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--flags", default="", help="for compiler and linker, by space")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is made")
    options = parser.parse_args()

    text, expected = program(options.readme)
    if text is None:
        print(f"{options.readme} has no ```c block with a ```text block after it")
        return 1
    options.work.mkdir(parents=True, exist_ok=True)
    source = options.work / "readme_program.c"
    source.write_text(text, encoding="utf-8")
    binary = options.work / "readme_program"
    compile_command = [
        options.compiler, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror",
        *options.flags.split(), "-I", options.include, source, "-o", binary, options.library,
        f"-Wl,-rpath,{options.library.parent}", "-lm"]
    if subprocess.call([str(part) for part in compile_command]) != 0:
        print(f"the program of {len(text.splitlines())} lines in {options.readme} does not compile")
        return 1
    done = subprocess.run([binary], text=True, capture_output=True, timeout=SECONDS, check=False)
    print(done.stdout + done.stderr, end="")
    if done.returncode != 0:
        print(f"the program in {options.readme} exits with {done.returncode}")
        return 1
    if done.stdout != expected:
        print(f"the program in {options.readme} prints something else than shown:\n{expected}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
