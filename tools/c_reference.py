"""Reads the public C headers and what their comments say of every declaration.

libclang finds the declarations; a comment belongs to what stands directly below it, up to the next
empty line, or to what it stands behind. What has none is a finding: every function, type, field and
constant of the interface is documented.
"""

import dataclasses
import re
import subprocess
from pathlib import Path

# Said once, in the conventions of attn_c.h.
CONVENTIONS = {"struct_size": "Size of the struct in bytes.", "reserved": "Zero.",
               "user": "Handed to each function of the struct.",
               "release_user": "Called once, after the last use; may be null."}
# Macros that are no part of the interface: guards, attributes, and how initialisers are made.
OTHER_MACROS = re.compile(r"\w+_H_|ATTN_EXPORT|ATTN_INIT")
INITIALISER = re.compile(r"ATTN_(\w+)_INIT")
SECTION = re.compile(r"^/\* -+ (.*?) -+ \*/$")


@dataclasses.dataclass
class Entry:
    """A declaration: its name, its text, what the comment says, and its members."""

    kind: str  # "function", "type" or "constant"
    name: str
    text: str
    comment: str = ""
    fields: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Section:
    """A part of a header."""

    title: str
    entries: list = dataclasses.field(default_factory=list)


def words_of(comment):
    """A comment's text: a paragraph a line of the result."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in comment[2:-2].splitlines()]
    paragraphs = "\n".join(line.strip() for line in lines).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).strip()


class Header:
    """The lines of a header, and its comments by the lines on which they begin and end."""

    def __init__(self, path, unit):
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.above, self.behind = {}, {}
        for token in unit.get_tokens(extent=unit.cursor.extent):
            if token.kind.name != "COMMENT":
                continue
            start, end = token.extent.start, token.extent.end
            before = self.lines[start.line - 1][:start.column - 1].strip()
            if before:
                self.behind[start.line] = words_of(token.spelling)
            else:
                self.above[end.line] = (start.line, words_of(token.spelling))

    def text(self, first, last):
        return "\n".join(self.lines[first - 1:last])

    def section_at(self, line):
        """The title of the last section that begins above a line."""
        for text in reversed(self.lines[:line - 1]):
            if match := SECTION.match(text):
                return match[1]
        return ""

    def comment(self, first, last):
        """What is said of the declaration on these lines; empty where nothing is."""
        if last in self.behind:
            return self.behind[last]
        while first > 1:
            if first - 1 in self.above:
                begin, words = self.above[first - 1]
                return "" if SECTION.match(self.text(begin, first - 1)) else words
            # A comment serves all that follows it without an empty line, unless it stands behind
            # something: that is another's.
            line = self.lines[first - 2].strip()
            if not line or first - 1 in self.behind or line.endswith("{"):
                return ""
            first -= 1
        return ""


def lines_of(cursor):
    return cursor.extent.start.line, cursor.extent.end.line


def declaration(text):
    """A declaration without export macro and layout."""
    return " ".join(re.sub(r"ATTN_EXPORT\s+", "", text).split())


def fields_of(record, header, said, table):
    """The members of a struct, of which `said` speaks as a whole; those of a table are the
    functions themselves."""
    for field in record.get_children():
        if field.kind.name != "FIELD_DECL":
            continue
        first, last = lines_of(field)
        text = re.sub(r"/\*.*", "", header.text(first, last), flags=re.S)
        text = declaration(text).rstrip(";")
        words = header.comment(first, last) or CONVENTIONS.get(field.spelling, "")
        if not words and f"`{field.spelling}`" in said:
            words = "As said above."
        if table and not words:
            words = "The version of the table." if field.spelling == "abi_version" else \
                f"`attn_{field.spelling}`"
        yield Entry("field", field.spelling, text, words)


def entry_of(cursor, header, structs):
    """What a top-level cursor declares for readers; None for everything else."""
    kind, name = cursor.kind.name, cursor.spelling
    first, last = lines_of(cursor)
    if kind == "MACRO_DEFINITION":
        if OTHER_MACROS.fullmatch(name):
            return None
        words = header.comment(first, last)
        if match := INITIALISER.fullmatch(name):
            words = f"An `attn_{match[1].lower()}` of zeroes with its size set."
        text = re.sub(r"\s*/\*.*", "", header.text(first, last)).strip()
        return Entry("constant", name, text, words)
    if kind == "FUNCTION_DECL":
        # The export macro stands in front of what libclang calls the declaration.
        return Entry("function", name, declaration(header.text(first, last)).rstrip(";"),
                     header.comment(first, last))
    if kind == "TYPEDEF_DECL":
        record = structs.get(name)
        entry = Entry("type", name, declaration(header.text(first, last)).rstrip(";"),
                      header.comment(first, last))
        if record is not None:
            entry.text = f"struct {name}"
            entry.fields = list(fields_of(record, header, entry.comment,
                                          name.endswith("_api")))
        return entry
    return None


def compiler_headers():
    """Options by which libclang finds stddef.h and stdint.h, which its package does not have."""
    done = subprocess.run(["gcc", "-print-file-name=include"], text=True, check=True,
                          capture_output=True)
    return ["-isystem", done.stdout.strip()]


def read_header(path):
    """(what the header says at its top, its sections). Raises where it does not parse."""
    from clang.cindex import Index, TranslationUnit  # an optional package

    options = TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    unit = Index.create().parse(str(path), options=options, args=[
        "-x", "c", "-std=c99", "-I", str(path.parent), *compiler_headers()])
    errors = [str(one) for one in unit.diagnostics]
    if errors:
        raise ValueError("\n".join(errors))
    header = Header(path, unit)
    inside = [one for one in unit.cursor.get_children()
              if one.location.file is not None and one.location.file.name == str(path)]
    structs = {one.spelling: one for one in inside
               if one.kind.name == "STRUCT_DECL" and one.is_definition()}
    sections = {}
    for cursor in sorted(inside, key=lines_of):
        entry = entry_of(cursor, header, structs)
        if entry is not None:
            title = header.section_at(lines_of(cursor)[0])
            sections.setdefault(title, Section(title)).entries.append(entry)
    head = header.text(1, min(header.above))
    return head, list(sections.values())


def missing(name, sections):
    """Declarations without a comment, in words."""
    for section in sections:
        for entry in section.entries:
            if not entry.comment:
                yield f"{name}: {entry.name} has no comment"
            for field in entry.fields:
                if not field.comment:
                    yield f"{name}: {entry.name}.{field.name} has no comment"
