"""Runs one language's runner over the golden cases and holds it to what it says.

The runner gets a folder and prints a line for each case: "ok <name> <digest>" or "FAILED <name>
<what is wrong>". Every case of the folder must have its line. Then it gets a folder of spoiled
cases, each of which it must refuse: a runner that cannot fail tests nothing. And it gets good cases
with a library in front of the real one that writes where it must not. Digests are left as
<work>/<language>.txt for compare_golden.py, results as JUnit XML.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SKIP = 77
SECONDS = 600
# Cases whose first output has bytes in front of it, and one that execute refuses.
SCRIBBLED = ("attention_strided_float32", "gqa_strided_float32", "scatter_strided", "error_length")


def run(command, folder, **environment):
    """{case: (digest or None, what is wrong)} of a runner, and its exit code; None: it skips."""
    done = subprocess.run([*command, str(folder)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
                          env={**os.environ, **environment})
    if done.returncode == SKIP:
        print(done.stdout, end="")
        return None, SKIP
    outcomes = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        name, _, more = rest.partition(" ")
        if word == "ok" and name:
            outcomes[name] = (more, "")
        elif word == "FAILED" and name:
            outcomes[name] = (None, more)
        else:
            print(line)
    return outcomes, done.returncode


def complete(outcomes, folder):
    """The outcomes with a failure for each case that the runner did not speak of."""
    names = sorted(path.stem for path in folder.glob("*.json"))
    return {name: outcomes.get(name, (None, "the runner said nothing of it")) for name in names}


def write_junit(path, language, outcomes):
    root = ElementTree.Element("testsuite", name=f"golden {language}", tests=str(len(outcomes)))
    for name, (digest, wrong) in outcomes.items():
        case = ElementTree.SubElement(root, "testcase", classname=f"golden.{language}", name=name)
        if digest is None:
            ElementTree.SubElement(case, "failure", message=wrong)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8")


def spoil(cases, target):
    """Writes cases that must fail: wrong values, wrong bytes, another message, a status."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)

    def change(name, edit):
        case = json.loads((cases / f"{name}.json").read_text(encoding="utf-8"))
        data = bytearray((cases / f"{name}.bin").read_bytes())
        edit(case, data)
        (target / f"{name}.json").write_text(json.dumps(case), encoding="utf-8")
        (target / f"{name}.bin").write_bytes(data)

    def flip(offset):
        def edit(case, data):
            data[offset(case)] ^= 0x40
        return edit

    change("gqa_decode_float16",  # the top byte of a float64
           flip(lambda case: case["results"][0]["values"]["offset"] + 7))
    change("attention_probabilities",
           flip(lambda case: case["results"][1]["values"]["offset"] + 7))
    change("scatter_int8", flip(lambda case: case["results"][0]["bytes"]["offset"] + 1))
    change("rotary_float32", lambda case, data: case.update(
        error={"status": 1, "message": "no such message"}))
    change("error_length", lambda case, data: case["error"].update(message="no such message"))
    change("error_shape", lambda case, data: case["error"].update(status=2))


def unnoticed(command, cases, target, library):
    """Cases of which the runner does not say that a byte was written that must not be."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in SCRIBBLED:
        for end in ("json", "bin"):
            shutil.copy(cases / f"{name}.{end}", target)
    outcomes, _ = run(command, target, LD_PRELOAD=str(library), ATTN_C_LIBRARY=str(library))
    return [f"{name}: {outcomes.get(name, (None, 'nothing is said of it'))}" for name in SCRIBBLED
            if "was written" not in outcomes.get(name, (None, ""))[1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", required=True)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--junit", type=Path, required=True)
    parser.add_argument("--scribbler", type=Path, help="a library that writes where it must not")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command

    digests = options.work / f"{options.language}.txt"
    digests.unlink(missing_ok=True)
    outcomes, code = run(command, options.cases)
    if outcomes is None:
        return SKIP
    outcomes = complete(outcomes, options.cases)
    write_junit(options.junit, options.language, outcomes)
    failures = [name for name, (digest, _) in outcomes.items() if digest is None]
    for name in failures:
        print(f"FAILED {name}: {outcomes[name][1]}")
    good = len(outcomes) - len(failures)
    digests.parent.mkdir(parents=True, exist_ok=True)
    digests.write_text("".join(f"{name} {digest}\n" for name, (digest, _) in outcomes.items()
                               if digest is not None), encoding="utf-8")

    spoiled = options.work / f"spoiled-{options.language}"
    spoil(options.cases, spoiled)
    refused, spoiled_code = run(command, spoiled)
    accepted = [name for name, (digest, _) in complete(refused or {}, spoiled).items()
                if digest is not None]
    for name in accepted:
        print(f"FAILED {name}: the runner accepts it although it was spoiled")
    if spoiled_code == 0:
        print("FAILED: the runner exits with 0 although cases fail")
    scribbled = [] if options.scribbler is None else unnoticed(
        command, options.cases, options.work / f"scribbled-{options.language}", options.scribbler)
    for text in scribbled:
        print(f"FAILED: a byte that must not be written was, unnoticed by the runner: {text}")
    print(f"{options.language}: {good} of {len(outcomes)} golden cases, exit code {code}")
    wrong = failures or accepted or scribbled or spoiled_code == 0 or code != 0 or not outcomes
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
