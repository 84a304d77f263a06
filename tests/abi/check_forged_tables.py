"""Clients and tables that are not of the same version: what a client does that asks for the least
that it needs and looks at a table's size before it uses a member.
"""

import argparse
import os
import subprocess
import sys

# What the library is, the ABI that the client asks for, the client's exit status, what it says.
CASES = [
    ("real", 0x00000001, 0, "ABI 0.1, a table of"),
    ("real", 0x00000000, 0, "ABI 0.1, a table of"),
    ("real", 0x00000002, 3, "asks for ABI 0.2"),
    ("real", 0x00010000, 3, "serves ABI 0.0 to 0.1"),
    ("newer", 0x00000001, 0, "ABI 0.8, a table of"),
    ("smaller", 0x00000000, 4, "ABI 0.0 has no binding_describe"),
    ("smaller", 0x00000001, 3, "asks for ABI 0.1, this has 0.0"),
    ("major", 0x00000001, 3, "asks for ABI 0.1, this has 5.1"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--forged", required=True)
    options = parser.parse_args()
    failures = 0
    for kind, minimum, status, words in CASES:
        library = options.library if kind == "real" else options.forged
        done = subprocess.run([options.client, library, hex(minimum)], text=True,
                              capture_output=True, check=False,
                              env={**os.environ, "ATTN_FORGE": kind})
        if done.returncode == status and words in done.stdout:
            continue
        failures += 1
        print(f"{kind} library, minimum {minimum:#x}: exit status {done.returncode}, expected "
              f"{status}; it says {done.stdout!r}, expected {words!r}; {done.stderr}")
    print(f"{len(CASES)} pairs of client and library, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
