"""Runs a decode loop of a language with --cuda on the fake driver: run_decode_loop.py COMMAND...

The fake computes nothing, so the example must get as far as the replays and then say what differs,
with exit code 1. What a machine lacks skips it, as the command says.
"""

import subprocess
import sys

SKIP = 77
EXPECTED = ["Fake device with attn_c", "one step captured, 7 replayed",
            "largest difference from one call over all tokens on the CPU", "demo: FAILED"]


def main():
    done = subprocess.run(sys.argv[1:], text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    print(done.stdout, end="")
    if done.returncode == SKIP:
        return SKIP
    missing = [words for words in EXPECTED if words not in done.stdout]
    for words in missing:
        print(f"not said: {words}")
    if done.returncode != 1:
        print(f"expected exit code 1; got {done.returncode}")
    return 1 if missing or done.returncode != 1 else 0


if __name__ == "__main__":
    sys.exit(main())
