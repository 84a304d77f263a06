"""What the shared library exports, needs and promises to the loader.

Exports are exactly src/api/api_list.inc, all in one version node, and the headers declare the same
functions. Nothing but the C and C++ run-time libraries is needed, of versions no newer than
docs/platforms.md says.
"""

import argparse
import re
import sys
from pathlib import Path

import abi_facts
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2",
          "ld-linux-aarch64.so.1"}
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (3, 0)}
MAX_BYTES = 15 << 20
# crtbeginS.o brings one, libgcc's reading of the processor's features another: more are ours.
MAX_CONSTRUCTORS = 2


def version_of(name):
    """'GLIBC_2.3.4' as ('GLIBC', (2, 3, 4)); (None, ()) for what is no such name."""
    found = re.fullmatch(r"(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", name)
    return (found[1], tuple(map(int, found[2].split(".")))) if found else (None, ())


def check_exports(library, api_list, abi, compiler):
    listed = abi_facts.listed_functions(api_list)
    exported = abi_facts.exported_symbols(library)
    declared = abi_facts.declared_functions(compiler, ROOT / "include")
    node = f"ATTN_{abi}"
    for name in sorted(set(listed) - set(exported)):
        yield f"{name} is listed but not exported"
    for name in sorted(set(exported) - set(listed)):
        yield f"{name} is exported but not listed"
    for name in sorted(set(listed) ^ set(declared)):
        yield f"{name} is {'listed' if name in listed else 'declared in a header'} only"
    for name, version in exported.items():
        if version != node:
            yield f"{name} has version {version}, not {node}"


def check_dynamic(elf, abi):
    tags = list(elf.get_section_by_name(".dynamic").iter_tags())
    names = {tag.entry.d_tag for tag in tags}
    for tag in tags:
        if tag.entry.d_tag == "DT_NEEDED" and tag.needed not in NEEDED:
            yield f"needs {tag.needed}"
        if tag.entry.d_tag == "DT_SONAME" and tag.soname != f"libattn_c.so.{abi}":
            yield f"SONAME is {tag.soname}"
        if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
            yield "has a run path"
        if tag.entry.d_tag == "DT_FLAGS" and tag.entry.d_val & 0x10:
            yield "uses static thread-local storage, so it may fail to be opened late"
    if "DT_SONAME" not in names:
        yield "has no SONAME"
    if "DT_TEXTREL" in names:
        yield "has text relocations"
    flags = [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS_1"]
    if not flags or not flags[0] & 0x8:
        yield "lacks the flag NODELETE"


def check_sections(elf):
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_GNU_STACK" and segment["p_flags"] & 1:
            yield "asks for an executable stack"
    constructors = elf.get_section_by_name(".init_array")
    count = constructors["sh_size"] // 8 if constructors is not None else 0
    if count > MAX_CONSTRUCTORS:
        yield f"runs {count - MAX_CONSTRUCTORS} global constructors when it is loaded"


def check_versions(elf):
    """Version nodes of other libraries that are newer than the floor of docs/platforms.md."""
    section = elf.get_section_by_name(".gnu.version_r")
    for library, names in section.iter_versions() if section is not None else []:
        for entry in names:
            family, version = version_of(entry.name)
            if family is not None and version > NEWEST[family]:
                yield f"needs {entry.name} of {library.name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--abi", required=True, help="the ABI number in SONAME and node")
    parser.add_argument("--compiler", default="cc")
    options = parser.parse_args()

    findings = list(check_exports(options.library, ROOT / "src" / "api" / "api_list.inc",
                                  options.abi, options.compiler))
    with open(options.library, "rb") as file:
        elf = ELFFile(file)
        findings += [*check_dynamic(elf, options.abi), *check_sections(elf), *check_versions(elf)]
    size = Path(options.library).stat().st_size
    if size > MAX_BYTES:
        findings.append(f"is {size} bytes, at most {MAX_BYTES}")
    for finding in findings:
        print(f"{options.library}: {finding}")
    print(f"{len(findings)} findings, {size} bytes")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
