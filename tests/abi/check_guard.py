"""The guard of accepted versions notices what it is there for: each change of a copy of
abi/versions that must not pass is refused, in words.
"""

import argparse
import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import accepted_versions

SCRIPT = Path(accepted_versions.__file__)


def check(options, versions):
    """Exit status and words of the guard for a folder of versions."""
    done = subprocess.run(
        [sys.executable, "-B", SCRIPT, "--library", options.library, "--compiler",
         options.compiler, "--versions", versions], text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def accepts(options, versions):
    """Whether `./dev abi-accept` would write the folder, and its words."""
    words = io.StringIO()
    try:
        with contextlib.redirect_stderr(words):
            accepted_versions.accept(options.compiler, versions)
    except SystemExit as refused:
        return False, str(refused.code)
    return True, ""


def add_older(versions, present):
    """A version 0.0 that was accepted once, with headers and client of its own."""
    older = versions / "0.0"
    shutil.copytree(versions / present, older)
    header = older / "attn_c.h"
    text = header.read_text(encoding="utf-8")
    header.write_text(text.replace("ATTN_ABI_VERSION 0x00000001u", "ATTN_ABI_VERSION 0x00000000u"),
                      encoding="utf-8")
    lines = "".join(f"{digest}  {name}\n"
                    for name, digest in accepted_versions.digests_of(versions).items())
    (versions / accepted_versions.DIGESTS).write_text(lines, encoding="utf-8")


def append(path, text):
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def ask_for_more(folder):
    """Headers of an ABI that the library does not have yet."""
    header = folder / "attn_c.h"
    text = header.read_text(encoding="utf-8")
    header.write_text(text.replace("ATTN_ABI_VERSION 0x00000001u", "ATTN_ABI_VERSION 0x00000009u"),
                      encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--compiler", default="cc")
    options = parser.parse_args()
    major, minor = accepted_versions.version_of(options.compiler, accepted_versions.INCLUDE)
    present = f"{major}.{minor}"
    empty = "int main(void) { return 0; }\n"
    # What is done to the copy, and what the guard says; whether an accept may mend it.
    cases = [
        ("nothing", lambda v: None, "", True),
        ("an emptied client",
         lambda v: (v / present / "client.c").write_text(empty, encoding="utf-8"),
         "its client says nothing of attn_abi_version", True),
        ("a client that is gone", lambda v: (v / present / "client.c").unlink(),
         f"abi/versions/{present}/client.c is gone", True),
        ("a client of a newer ABI", lambda v: ask_for_more(v / present), "asks for ABI 0.9", True),
        ("an older version that is gone", lambda v: shutil.rmtree(v / "0.0"),
         "abi/versions/0.0/attn_c.h is gone", False),
        ("an older header that was changed",
         lambda v: append(v / "0.0" / "attn_c.h", "\n#define ATTN_LATE 1\n"),
         "abi/versions/0.0/attn_c.h was changed", False),
        ("an older client that was emptied",
         lambda v: (v / "0.0" / "client.c").write_text(empty, encoding="utf-8"),
         "abi/versions/0.0/client.c was changed", False),
        ("a version that nobody accepted", lambda v: shutil.copytree(v / present, v / "0.7"),
         "abi/versions/0.7/attn_c.h was never accepted", False),
    ]
    failures = 0
    for what, change, words, mendable in cases:
        with tempfile.TemporaryDirectory() as folder:
            versions = Path(folder) / "versions"
            shutil.copytree(accepted_versions.VERSIONS, versions)
            add_older(versions, present)
            change(versions)
            code, text = check(options, versions)
            accepted, refusal = accepts(options, versions)
            right = (code != 0) == bool(words) and words in text and accepted == mendable
            if not right or "-11" in text:
                failures += 1
                print(f"{what}: exit status {code}, expected the words {words!r}; accepted: "
                      f"{accepted} {refusal}; {text}")
    print(f"{len(cases)} changes of accepted versions, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
