"""House rules that a script can check, over the files that git tracks.

Prints every finding as `file:line: what`, and exits 1 where there is one.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIP = 77

CODE = re.compile(r"\.(c|cc|cpp|h|hpp|cu|cuh|inc|py|rs|cs|i|cmake|sh)$|(^|/)CMakeLists\.txt$"
                  r"|^dev$|^\.ci/run$")
# The public header is one document; generated files are as long as what they are made from.
LONG_FILES = re.compile(r"^include/attn_c\.h$|bindings\.rs$|^tests/data/|^abi/")
GENERATED = re.compile(r"bindings\.rs$|^tests/data/|^abi/")
MAX_LINES = 600
MAX_COLUMNS = 100
MAX_CONDITIONS = 6

# Spelled in pieces, so that this file does not find itself.
UNFINISHED = re.compile("|".join([
    "TO" "DO", "FIX" "ME", r"\bXX" "X\\b", r"\bHA" "CK", "not " "implemented", "place" "holder",
    r"\bfor " "now\\b"]), re.I)
MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root|home)/")
BARE_SKIP = re.compile(r"GTEST_SKIP\(\)\s*;|\bDISABLED_\w|pytest\.skip\(\s*\)|#\[ignore\]")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CONDITION = re.compile(r"^\s*#\s*if")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')

# A folder of src/ and the folders whose headers it may include; hwy is Google Highway, common is
# kernels/common, whose parameter structs host and device share.
LAYERS = {
    "core": {"core"},
    "ops": {"ops", "core"},
    "cpu": {"cpu", "core", "hwy"},
    "cuda": {"cuda", "core", "common"},
    "api": {"api", "ops", "cpu", "cuda", "core"},
}
PUBLIC_HEADERS = {"attn_c.h", "attn_c_host.h"}


def tracked():
    """Tracked files, relative to the root; None outside a checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, text=True, capture_output=True,
                          check=False)
    if done.returncode != 0:
        return None
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def check_text(name, lines):
    """Findings of one text file that do not depend on its kind."""
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of one machine"
        if line.endswith("\r"):
            yield f"{name}:{number}: a carriage return ends the line"


def check_code(name, lines):
    """Findings of one source file."""
    if len(lines) > MAX_LINES and not LONG_FILES.search(name):
        yield f"{name}:1: {len(lines)} lines, at most {MAX_LINES}: split it by idea"
    if GENERATED.search(name):
        return
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield f"{name}:{number}: {len(line)} columns, at most {MAX_COLUMNS}"
        if line != line.rstrip():
            yield f"{name}:{number}: space at the end of the line"
        if "\t" in line:
            yield f"{name}:{number}: a tab"
        if UNFINISHED.search(line):
            yield f"{name}:{number}: a word that marks unfinished work"
        if BARE_SKIP.search(line):
            yield f"{name}:{number}: a test is skipped without a reason"


def check_layers(name, lines):
    """Includes that go upwards, and back ends chosen by conditions instead of by files."""
    parts = name.split("/")
    if parts[0] != "src" or len(parts) < 3:
        return
    allowed = LAYERS.get(parts[1])
    if allowed is None:
        yield f"{name}:1: a folder of src/ that no layer is declared for"
        return
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found or found[1] in PUBLIC_HEADERS:
            continue
        folder = found[1].split("/")[0]
        if folder not in allowed:
            yield f"{name}:{number}: src/{parts[1]} may not include {found[1]}"
    conditions = sum(1 for line in lines if CONDITION.match(line))
    if conditions > MAX_CONDITIONS:
        yield f"{name}:1: {conditions} preprocessor conditions, at most {MAX_CONDITIONS}"


def check_listed(names):
    """Sources that no CMake file names: nobody would compile them."""
    lists = [name for name in names if name.endswith(("CMakeLists.txt", ".cmake"))]
    words = set()
    for name in lists:
        words.update(re.findall(r"[\w.-]+\.cc\b", (ROOT / name).read_text(encoding="utf-8")))
    for name in names:
        if re.match(r"(src|tests)/.*\.cc$", name) and Path(name).name not in words:
            yield f"{name}:1: no CMakeLists.txt names it"


def check_links(name, text):
    """Links of a document to files that are not there."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            path = target.split("#")[0]
            if path and "://" not in path and not (ROOT / name).parent.joinpath(path).exists():
                yield f"{name}:{number}: links to {path}, which is not there"


def check_files(names):
    for name in names:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data
        lines = text.splitlines()
        yield from check_text(name, text.split("\n"))
        if name.endswith(".md"):
            yield from check_links(name, text)
        if CODE.search(name):
            if text and not text.endswith("\n"):
                yield f"{name}:{len(lines)}: no newline at the end"
            yield from check_code(name, lines)
            yield from check_layers(name, lines)


def check_labels(build, labels):
    """Tests that carry no known label, so that nobody would run them by name."""
    done = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], text=True,
                          capture_output=True, check=True)
    for test in json.loads(done.stdout)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        own = properties.get("LABELS", [])
        if not own:
            yield f"test {test['name']}: has no label"
        for label in own:
            if label not in labels:
                yield f"test {test['name']}: unknown label {label}"
        if "TIMEOUT" not in properties:
            yield f"test {test['name']}: has no time limit"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", help="a configured build folder: its tests are looked at too")
    parser.add_argument("--labels", default="", help="known labels, by comma")
    options = parser.parse_args()

    names = tracked()
    if names is None:
        print("skipped: not a git checkout, so there is no list of files")
        return SKIP
    findings = [*check_files(names), *check_listed(names)]
    if options.build:
        findings += check_labels(options.build, set(options.labels.split(",")))
    for finding in findings:
        print(finding)
    print(f"{len(names)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
