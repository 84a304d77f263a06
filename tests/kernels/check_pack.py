"""A pack that tools/make_kernel_pack.py made: the library's reader finds every entry, and takes a
damaged one for a miss.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIP = 77
ENGINES = ["fused-kv-update", "thread-scatter"]


def look_up(tool, pack, lines):
    """Whether the reader found all, and the size of each cubin (0: a miss)."""
    done = subprocess.run([tool, "find", pack], input=lines, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode == 0, [int(size) for size in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="the program kernel_variants")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder) / "attn_c_kernels.pack"
        # A few kernels of every target are enough: the whole pack takes minutes.
        code = subprocess.call([sys.executable, ROOT / "tools" / "make_kernel_pack.py",
                                "--tool", options.tool, "--output", pack,
                                "--engines", ",".join(ENGINES)])
        if code != 0:
            return code
        listed = subprocess.run([options.tool, "list", ROOT / "tests/kernels/variants.txt", "pack",
                                 "sm_80", "sm_89", "sm_90a"], text=True, check=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        lines = "".join(line for line in listed.splitlines(keepends=True)
                        if line.split("\t")[2] in ENGINES)
        good, sizes = look_up(options.tool, pack, lines)
        assert good and len(sizes) == len(lines.splitlines()) and min(sizes) > 1000, sizes

        # Contents lie one after the other at the end: half of the last one is enough.
        content = bytearray(pack.read_bytes())
        content[-sizes[-1] // 2] ^= 1
        pack.write_bytes(content)
        good, damaged = look_up(options.tool, pack, lines)
        assert not good and damaged == [*sizes[:-1], 0], damaged

        pack.write_bytes(content[:-sum(sizes)])
        good, cut = look_up(options.tool, pack, lines)
        assert not good and not any(cut), cut
    print(f"{len(sizes)} entries found; a damaged one is a miss, and so are those that are cut off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
