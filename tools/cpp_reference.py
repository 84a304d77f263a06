"""Reads the headers of C++ and what their comments say, as tools/c_reference.py does those of C.

A public member that only calls the C function needs no words of its own: the function's are its.
What else is public and has none is a finding.
"""

import re
import subprocess

from c_reference import Entry, Header, Section

SECTION = re.compile(r"^// -+ (.*?) -+$")
C_CALL = re.compile(r"\b(attn_(?!init\b)\w+)\s*(?:\(|\)\s*\{$)")
SHOWN_DETAILS = {"Handle"}  # the base of every handle
TYPES = ("CLASS_DECL", "STRUCT_DECL", "CLASS_TEMPLATE")
FUNCTIONS = ("CONSTRUCTOR", "CXX_METHOD", "FUNCTION_DECL", "FUNCTION_TEMPLATE",
             "CONVERSION_FUNCTION")
VALUES = ("FIELD_DECL", "VAR_DECL")


def source(header, extent):
    """The text between two places of a header."""
    begin, end = extent
    lines = header.lines[begin[0] - 1:end[0]]
    lines[-1] = lines[-1][:end[1] - 1]
    lines[0] = lines[0][begin[1] - 1:]
    return "\n".join(lines)


def place(location):
    return location.line, location.column


def signature(cursor, header):
    """A function without its body, or a variable, in one line."""
    end = place(cursor.extent.end)
    for child in cursor.get_children():
        if child.kind.name == "COMPOUND_STMT":
            end = place(child.extent.start)
    text = " ".join(source(header, (place(cursor.extent.start), end)).split())
    text = re.sub(r"\binline |\[\[noreturn\]\] ", "", text)
    # What initialises members is no part of it.
    return re.sub(r"(\)(?: noexcept)?) : (?!:).*$", r"\1", text).rstrip(" ;{")


def words_of(cursor, header):
    """What is said of a function: its comment, or the C function that it calls."""
    first, last = cursor.extent.start.line, cursor.extent.end.line
    words = header.behind.get(first) or header.behind.get(last) \
        or header.above.get(first - 1, (0, ""))[1]
    if cursor.kind.name == "VAR_DECL":  # one comment for a row of constants
        words = header.comment(first, last)
    calls = sorted(set(C_CALL.findall(source(header, (place(cursor.extent.start),
                                                      place(cursor.extent.end))))))
    if not words and calls:
        words = "As " + " and ".join(f"`{name}`" for name in calls) + "."
    return words


def is_shown(cursor):
    """Whether a member is a reader's: public, and not made by the compiler or deleted."""
    kind = cursor.kind.name
    if cursor.access_specifier.name not in ("PUBLIC", "INVALID"):
        return False
    special = kind == "CONSTRUCTOR" or cursor.spelling in ("operator=",)
    moves = cursor.spelling == "operator=" or (
        kind == "CONSTRUCTOR" and (cursor.is_move_constructor() or cursor.is_copy_constructor()))
    return kind in FUNCTIONS + VALUES and not (special and (moves or cursor.is_default_method()))


def type_entry(cursor, header):
    """A class with its public members."""
    first = cursor.extent.start.line
    bases = [one.type.spelling for one in cursor.get_children()
             if one.kind.name == "CXX_BASE_SPECIFIER"]
    text = f"class {cursor.spelling}" + (f" : public {', '.join(bases)}" if bases else "")
    entry = Entry("type", cursor.spelling, text, header.comment(first, first))
    entry.fields = [Entry("field", member.spelling, signature(member, header),
                          words_of(member, header))
                    for member in cursor.get_children() if is_shown(member)]
    return entry


def entries(cursor, header, path, inside=""):
    """What a namespace declares for readers, in its order."""
    for one in cursor.get_children():
        if one.location.file is None or one.location.file.name != str(path):
            continue
        kind = one.kind.name
        if kind == "NAMESPACE":
            yield from entries(one, header, path, one.spelling)
        elif inside == "detail" and one.spelling not in SHOWN_DETAILS:
            continue
        elif kind in TYPES and one.is_definition():
            yield one, type_entry(one, header)
        elif kind in FUNCTIONS + VALUES:
            what = "constant" if kind == "VAR_DECL" else "function"
            yield one, Entry(what, one.spelling, signature(one, header), words_of(one, header))


def compiler_headers():
    """Options by which libclang finds the standard library that the compiler uses."""
    done = subprocess.run(["g++", "-E", "-x", "c++", "-", "-v"], input="", text=True, check=True,
                          capture_output=True)
    folders = [line.strip() for line in done.stderr.splitlines() if re.fullmatch(r" /\S+", line)]
    return [option for folder in folders for option in ("-isystem", folder)]


def section_at(header, line):
    """The title of the last section that begins above a line."""
    titles = (SECTION.match(text) for text in reversed(header.lines[:line - 1]))
    return next((match[1] for match in titles if match), "")


def read_header(path):
    """(what the header says at its top, its sections). Raises where it does not parse."""
    from clang.cindex import Index  # an optional package

    unit = Index.create().parse(str(path), args=["-x", "c++", "-std=c++17", "-I", str(path.parent),
                                                 *compiler_headers()])
    errors = [str(one) for one in unit.diagnostics if "pragma once" not in one.spelling]
    if errors:
        raise ValueError("\n".join(errors))
    header = Header(path, unit)
    sections = {}
    for cursor, entry in entries(unit.cursor, header, path):
        title = section_at(header, cursor.extent.start.line)
        sections.setdefault(title, Section(title)).entries.append(entry)
    return header.text(1, min(header.above)), list(sections.values())
