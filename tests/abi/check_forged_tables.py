"""Clients and tables that are not of the same version: what a client in C does that asks for
the least that it needs and looks at a table's size before it uses a member, and what attn_c.hpp
accepts.
(The safe interface of Rust opens the same forged library in tests of its own.)
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
# Likewise for a program of attn_c.hpp, which the forged library is put in front of.
WRAPPER_CASES = [
    ("real", 0x00000001, 0, "ABI 0.1, a table of"),
    ("real", 0x00000002, 3, "asks for ABI 0.2"),
    ("newer", 0x00000001, 0, "ABI 0.8, a table of"),
    ("smaller", 0x00000000, 0, "ABI 0.0, a table of"),
    ("smaller", 0x00000001, 3, "asks for ABI 0.1, this has 0.0"),
    ("short", 0x00000001, 3, "refused: asked for the ABI 0.1, the library gave a table of "),
    ("major", 0x00000001, 3, "asks for ABI 0.1, this has 5.1"),
    ("liar", 0x00000001, 3, "bytes of 5.1; needed are"),
    ("none", 0x00000001, 3, "the library gave a table of 0 bytes"),
]


def run_table_client(options, kind, minimum):
    library = options.library if kind == "real" else options.forged
    return run([options.client, library, hex(minimum)], ATTN_FORGE=kind)


def run_wrapper(options, kind, minimum):
    front = {} if kind == "real" else {"LD_PRELOAD": options.forged}
    return run([options.wrapper, hex(minimum)], ATTN_FORGE=kind, **front)


def run(command, **environment):
    return subprocess.run(command, text=True, capture_output=True, check=False,
                          env={**os.environ, **environment})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", required=True)
    parser.add_argument("--wrapper", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--forged", required=True)
    options = parser.parse_args()
    failures = 0
    all_cases = [(run_table_client, case) for case in CASES]
    all_cases += [(run_wrapper, case) for case in WRAPPER_CASES]
    for start, (kind, minimum, status, words) in all_cases:
        done = start(options, kind, minimum)
        if done.returncode == status and words in done.stdout:
            continue
        failures += 1
        print(f"{start.__name__}, {kind} library, minimum {minimum:#x}: exit status "
              f"{done.returncode}, expected {status}; it says {done.stdout!r}, expected {words!r}; "
              f"{done.stderr}")
    print(f"{len(all_cases)} pairs of client and library, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
