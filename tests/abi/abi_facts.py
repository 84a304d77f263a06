"""What the ABI is, read from the headers and from the library itself.

The headers are read through the C compiler (its preprocessor, and the debug data it writes), never
by a parser of our own, so that a fact here is what a client's compiler sees.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

HEADERS = ("attn_c.h", "attn_c_host.h")
LIST_LINE = re.compile(r"^ATTN_(?:API|HOST_API|ENTRY)\(\s*([a-z0-9_]+)")


def listed_functions(api_list):
    """The functions that src/api/api_list.inc exports, in its order."""
    lines = Path(api_list).read_text(encoding="utf-8").splitlines()
    return ["attn_" + found[1] for found in map(LIST_LINE.match, lines) if found]


def exported_symbols(library):
    """Defined dynamic symbols, {name: version node}; the nodes' own symbols are left out."""
    with open(library, "rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        versions = elf.get_section_by_name(".gnu.version")
        definitions = elf.get_section_by_name(".gnu.version_d")
        nodes = {}
        if definitions is not None:
            for definition, names in definitions.iter_versions():
                nodes[definition["vd_ndx"]] = next(iter(names)).name
        assert isinstance(table, SymbolTableSection)
        found = {}
        for index, symbol in enumerate(table.iter_symbols()):
            defined = symbol["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS")
            if defined and symbol["st_info"]["bind"] != "STB_LOCAL":
                number = versions.get_symbol(index)["ndx"] if versions is not None else None
                if isinstance(number, int):
                    number &= 0x7FFF  # the top bit only hides a node from the linker
                found[symbol.name] = nodes.get(number, str(number))
        return found


def preprocess(compiler, include, flags):
    """Both headers through the preprocessor with more flags; the text."""
    source = "".join(f'#include "{header}"\n' for header in HEADERS)
    command = [compiler, "-std=c99", "-E", *flags, "-I", str(include), "-x", "c", "-"]
    return subprocess.run(command, input=source, text=True, capture_output=True, check=True).stdout


def constants(compiler, include):
    """Every ATTN_ macro of the headers, as `NAME text`, sorted."""
    text = preprocess(compiler, include, ["-dM"])
    return sorted(re.findall(r"^#define (ATTN_\w.*)$", text, re.M))


def own_text(compiler, include):
    """The headers without comments, macros and what the system's headers bring."""
    mine, kept = False, []
    for line in preprocess(compiler, include, []).splitlines():
        marker = re.match(r'^# \d+ "([^"]*)"', line)
        if marker:
            mine = Path(marker[1]).name in HEADERS
        elif mine:
            kept.append(line)
    return " ".join(" ".join(kept).split())


def declarations(compiler, include):
    """The declarations of the headers, one a line, however they are laid out there."""
    text = own_text(compiler, include)
    text = re.sub(r"__attribute__\(\(visibility\(\"default\"\)\)\) ?", "", text)
    lines, depth, line = [], 0, ""
    for piece in re.split(r"([{};])", text):
        depth += {"{": 1, "}": -1}.get(piece, 0)
        line += piece
        if piece == ";" and depth == 0:
            lines.append(line.strip())
            line = ""
    return lines


def declared_functions(compiler, include):
    """Names of the functions that the headers declare."""
    found = []
    for line in declarations(compiler, include):
        match = re.match(r"^[\w\s*]*?\b(attn_\w+)\s*\(", line)
        if match and not line.startswith("typedef"):
            found.append(match[1])
    return found


def type_text(die):
    """A C-like spelling of a type in the debug data."""
    if die is None:
        return "void"
    name = die.attributes.get("DW_AT_name")
    target = die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None
    if name is not None:
        return name.value.decode()
    if die.tag == "DW_TAG_pointer_type":
        return type_text(target) + "*"
    if die.tag == "DW_TAG_const_type":
        return "const " + type_text(target)
    if die.tag == "DW_TAG_array_type":
        bounds = [child.attributes["DW_AT_upper_bound"].value + 1 for child in die.iter_children()]
        return type_text(target) + "".join(f"[{bound}]" for bound in bounds)
    if die.tag == "DW_TAG_subroutine_type":
        arguments = [type_text(child.get_DIE_from_attribute("DW_AT_type"))
                     for child in die.iter_children()]
        return f"{type_text(target)}({', '.join(arguments)})"
    return die.tag


def layouts(compiler, include):
    """Size of every struct, and offset and type of its fields, as text lines."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "layout.c", Path(folder) / "layout.o"
        source.write_text("".join(f'#include "{header}"\n' for header in HEADERS))
        subprocess.run([compiler, "-std=c99", "-g", "-fno-eliminate-unused-debug-types", "-c",
                        "-I", str(include), source, "-o", built], check=True)
        lines = []
        with open(built, "rb") as file:
            for unit in ELFFile(file).get_dwarf_info().iter_CUs():
                for die in unit.get_top_DIE().iter_children():
                    lines += struct_lines(die)
    return lines


def struct_lines(die):
    """Lines of one struct; nothing for what is no struct of ours, or incomplete."""
    name = die.attributes.get("DW_AT_name")
    if die.tag != "DW_TAG_structure_type" or name is None:
        return []
    title = name.value.decode()
    if not title.startswith("attn_") or "DW_AT_byte_size" not in die.attributes:
        return []
    lines = [f"{title}: {die.attributes['DW_AT_byte_size'].value} bytes"]
    for field in die.iter_children():
        offset = field.attributes["DW_AT_data_member_location"].value
        kind = type_text(field.get_DIE_from_attribute("DW_AT_type"))
        lines.append(f"  {offset:5} {field.attributes['DW_AT_name'].value.decode()}: {kind}")
    return lines
