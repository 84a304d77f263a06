"""A client compiled from a header with shorter structs runs against the library as it is.

The header is the present one without the last field of every growable struct: what a client of an
older version was compiled from. (Structs whose last field is needed were never shorter.) The same
program is built from the present header too.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from header_structs import STRUCT, growable_structs

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = ROOT / "include" / "attn_c.h"
# Without its last field these say nothing that the library could work with.
WHOLE = {"attn_op_desc", "attn_allocator", "attn_logger", "attn_executor"}


def shortened(name, fields):
    """The fields of an older version of the struct."""
    if name in WHOLE:
        return fields
    if name == "attn_error":
        return fields[:-1] + ["char message[40]"]
    return fields[:-1]


def short_header(header):
    """The whole header with shorter structs, and how many there are."""
    structs = growable_structs(header)
    count = 0

    def replace(match):
        nonlocal count
        name = match[1]
        if name not in structs or shortened(name, structs[name]) == structs[name]:
            return match[0]
        count += 1
        fields = "".join(f"  {field};\n" for field in shortened(name, structs[name]))
        return f"typedef struct {name} {{\n{fields}}} {name};"

    return STRUCT.sub(replace, header), count


def run_client(include, options, folder, name):
    """Builds the client from the headers in `include` and runs it; its exit status."""
    program = Path(folder) / name
    source = Path(__file__).with_name("short_client.c")
    subprocess.run([options.compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", str(include),
                    source, options.library, f"-Wl,-rpath,{Path(options.library).parent}", "-lm",
                    "-o", program], check=True)
    return subprocess.run([program], check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--compiler", default="cc")
    options = parser.parse_args()

    text, count = short_header(HEADER.read_text(encoding="utf-8"))
    if count < 15:
        print(f"only {count} structs were shortened: the header was not understood")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "attn_c.h").write_text(text, encoding="utf-8")
        results = [run_client(folder, options, folder, "short"),
                   run_client(HEADER.parent, options, folder, "whole")]
    print(f"{count} structs shorter than the library's: exit status {results[0]};"
          f" the same program with the present header: {results[1]}")
    return 0 if results == [0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())
