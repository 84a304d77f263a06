"""Compiles the kernel variants of tests/kernels/variants.txt for every architecture, without a GPU.

Fails on compile errors, spilled registers, remarks of lost performance and shared memory beyond the
architecture's limit; then compares registers, shared memory and code size with resources.txt.
"""

import argparse
import hashlib
import io
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools"))

from kernel_builds import (TARGETS, compile_variants, faults_of, find_nvrtc,  # noqa: E402
                           list_variants, resources_of, spill_allowances)

SKIP = 77
TABLE = HERE / "resources.txt"
# Architectures whose code differs little from that of an older one get a shorter list.
SHORT_SETS = {"sm_89": "few", "sm_103a": "few"}
CODE_TOLERANCE = 0.10  # of a kernel's code size; everything else must be equal
HEAD = """\
# What the kernels of the set "test" take: registers a thread, bytes of stack, of static and of
# dynamic shared memory a block, and of code. Made by NVRTC {version}; rewritten by
#   {command}
"""


def code_bytes(variant):
    """The size of the entry's instructions."""
    from elftools.elf.elffile import ELFFile  # pylint: disable=import-outside-toplevel
    section = ELFFile(io.BytesIO(variant.cubin)).get_section_by_name(".text." + variant.entry)
    return section["sh_size"]


def table_of(variants):
    """{variant: (registers, stack, static shared, dynamic shared, code)}"""
    rows = {}
    for variant in variants:
        used = resources_of(variant.log)[variant.entry]
        rows[variant.name()] = (used.registers, used.stack, used.static_shared, variant.shared,
                                code_bytes(variant))
    return rows


def write_table(rows, version, command):
    lines = [HEAD.format(version=version, command=command)]
    for name, values in rows.items():
        lines.append(f"{name:<66} " + " ".join(f"{value:>6}" for value in values) + "\n")
    TABLE.write_text("".join(lines), encoding="utf-8")


def read_table():
    rows = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            *name, a, b, c, d, e = line.split()
            rows[" ".join(name)] = tuple(map(int, (a, b, c, d, e)))
    return rows


def differences(rows, stored):
    """Lines about what is not as the table says."""
    labels = ("registers", "bytes of stack", "bytes of static shared memory",
              "bytes of dynamic shared memory")
    for name in sorted(set(rows) | set(stored)):
        if name not in stored:
            yield f"{name}: is not in the table"
            continue
        if name not in rows:
            yield f"{name}: is in the table, but no such variant is compiled"
            continue
        for label, now, then in zip(labels, rows[name], stored[name]):
            if now != then:
                yield f"{name}: {now} {label}, the table says {then}"
        now, then = rows[name][4], stored[name][4]
        if abs(now - then) > CODE_TOLERANCE * then:
            yield f"{name}: {now} bytes of code, the table says {then}"


def stamp_of(tool, nvrtc, variants):
    """A file that is there once just this was checked: in the build folder, named by everything
    that the check depends on. The keys of variants hold a digest of the kernel sources."""
    key = hashlib.sha256(Path(nvrtc).resolve().name.encode())
    for file in (Path(__file__), TABLE, HERE / "spills.txt"):
        key.update(file.read_bytes())
    for variant in variants:
        key.update(variant.line.encode())
    return Path(tool).resolve().parent.parent / "checked-kernels" / key.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="the program kernel_variants")
    parser.add_argument("--set", default="test", help="the set of variants.txt (test)")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--nvrtc", help="libnvrtc; without it, that of the wheel for CUDA 13")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--accept", action="store_true", help="rewrite resources.txt")
    options = parser.parse_args()

    nvrtc = options.nvrtc or find_nvrtc(13)
    if nvrtc is None:
        print("skipped: this Python lacks the wheel nvidia-cuda-nvrtc "
              "(tests/tools/requirements-kernels.txt)")
        return SKIP
    start = time.monotonic()
    variants = []
    for target in options.targets.split(","):
        chosen = SHORT_SETS.get(target, "test") if options.set == "test" else options.set
        variants += list_variants(options.tool, HERE / "variants.txt", chosen, [target])
    allowed = spill_allowances(HERE / "spills.txt")
    stamp = stamp_of(options.tool, nvrtc, variants)
    if stamp.exists() and not options.accept:
        print(f"{len(variants)} variants passed before, and neither they nor NVRTC changed since")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        compile_variants(options.tool, nvrtc, variants, folder, options.workers)
    faults = [f"{variant.name()}: {fault}" for variant in variants
              for fault in faults_of(variant, allowed(variant))]
    for fault in faults:
        print(fault)
    print(f"{len(variants)} variants compiled in {time.monotonic() - start:.0f} s, "
          f"{len(faults)} faults")
    if faults:
        return 1
    if options.set != "test" or options.targets != ",".join(TARGETS):
        return 0

    rows = table_of(variants)
    command = "./dev kernels-accept"
    if options.accept:
        version = Path(nvrtc).resolve().name
        write_table(rows, version, command)
        print(f"wrote {TABLE.name}: {len(rows)} rows")
        return 0
    changed = list(differences(rows, read_table()))
    for line in changed:
        print(line)
    if changed:
        print(f"{len(changed)} differences from tests/kernels/resources.txt; where they are meant: "
              f"{command}")
        return 1
    stamp.parent.mkdir(exist_ok=True)
    stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
