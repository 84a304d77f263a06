"""The structs of a public header, as text: enough to make a header of an older version from it."""

import re

STRUCT = re.compile(r"typedef struct (attn_\w+) \{\n(.*?)\n\} \1;", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def fields_of(body):
    """The declarations of a struct's fields, in their order."""
    return [field.strip() for field in COMMENT.sub("", body).split(";") if field.strip()]


def growable_structs(header):
    """{name: fields} of every struct that begins with its size."""
    found = {name: fields_of(body) for name, body in STRUCT.findall(header)}
    return {name: fields for name, fields in found.items()
            if fields[0] == "uint32_t struct_size"}


def init_macros(header):
    """{macro: struct} of the initialisers."""
    return dict(re.findall(r"^#define (ATTN_\w+_INIT) ATTN_INIT\((attn_\w+)\)$", header, re.M))
