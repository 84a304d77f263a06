"""Builds attn_c_kernels.pack: ready cubins of common kernels, read by the library from the file
beside it. The layout is described in src/cuda/cubin_pack.h.
"""

import argparse
import struct
import sys
import tempfile
import time
from pathlib import Path

from kernel_builds import (WHEELS, compile_variants, faults_of, find_nvrtc, list_variants,
                           spill_allowances)

SKIP = 77
TARGETS = ["sm_80", "sm_89", "sm_90a"]
KERNEL_TESTS = Path(__file__).resolve().parent.parent / "tests" / "kernels"
VARIANTS = KERNEL_TESTS / "variants.txt"


def fnv(data):
    """FNV-1a, 64 bits."""
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 & 0xffffffffffffffff
    return value


def pack_of(entries):
    """The file's bytes for {key: content}."""
    offset = 16 + sum(32 + len(key.encode()) for key in entries)
    index, contents = [b"ATTNPAK1", struct.pack("<Q", len(entries))], []
    for key, content in entries.items():
        name = key.encode()
        index += [struct.pack("<4Q", len(name), offset, len(content), fnv(content)), name]
        contents.append(content)
        offset += len(content)
    return b"".join(index + contents)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="the program kernel_variants")
    parser.add_argument("--output", required=True)
    parser.add_argument("--nvrtc", help="libnvrtc; without it, a wheel's, that for CUDA 12 first: "
                                        "its cubins suit drivers of CUDA 12 and 13")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--set", default="pack", help="the set of tests/kernels/variants.txt")
    parser.add_argument("--engines", help="kernels of these engines alone, joined with commas")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    nvrtc = options.nvrtc or find_nvrtc(12) or find_nvrtc(13)
    if nvrtc is None:
        print("skipped: there is no NVRTC; give --nvrtc, or install the wheel "
              "nvidia-cuda-nvrtc-cu12 for this Python")
        return SKIP
    start = time.monotonic()
    engines = options.engines.split(",") if options.engines else None
    variants = [variant for variant in list_variants(options.tool, VARIANTS, options.set,
                                                     options.targets.split(","))
                if engines is None or variant.engine in engines]
    with tempfile.TemporaryDirectory() as folder:
        compile_variants(options.tool, nvrtc, variants, folder, options.workers, lines=False)
    reviewed = [KERNEL_TESTS / "spills.txt"]
    if Path(nvrtc).name == Path(WHEELS[12]).name:
        reviewed.append(KERNEL_TESTS / "spills_nvrtc12.txt")
    allowed = spill_allowances(*reviewed)
    faults = [f"{variant.name()}: {fault}" for variant in variants
              for fault in faults_of(variant, allowed(variant))]
    for fault in faults:
        print(fault)
    if faults:
        return 1

    output = Path(options.output)
    content = pack_of({variant.key: variant.cubin for variant in variants})
    partial = output.with_name(output.name + ".part")
    partial.write_bytes(content)
    partial.replace(output)
    print(f"{output}: {len(variants)} kernels, {len(content)} bytes, by {nvrtc}, "
          f"in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
