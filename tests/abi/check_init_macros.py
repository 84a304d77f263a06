"""ATTN_X_INIT gives the same bytes in C and C++: the size, then zeros; and no struct lacks one.

Every other constant may be used in both without a warning, casts of the old style included.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from header_structs import growable_structs, init_macros

INCLUDE = Path(__file__).resolve().parent.parent.parent / "include"

FILL = """void {prefix}_{name}(void* target) {{
  {name} value = {macro};
  memcpy(target, &value, sizeof value);
}}
"""
CHECK = """  memset(bytes[0], 0x5a, sizeof bytes[0]);
  memset(bytes[1], 0xa5, sizeof bytes[1]);
  c_{name}(bytes[0]);
  cxx_{name}(bytes[1]);
  failures += check("{name}", sizeof({name}));
"""
MAIN = """#include <stdio.h>
#include <string.h>
#include "attn_c.h"
{declarations}
static unsigned char bytes[2][4096];
static int check(const char* name, size_t size) {{
  const uint32_t word = (uint32_t)size;
  int bad = memcmp(bytes[0], &word, sizeof word) != 0;
  for (size_t i = 0; i < size; ++i) {{
    bad |= bytes[0][i] != bytes[1][i] || (i >= sizeof word && bytes[0][i] != 0);
  }}
  if (bad) printf("%s: the initialisers differ, or are not size and zeros\\n", name);
  return bad;
}}
int main(void) {{
  int failures = 0;
{checks}  return failures;
}}
"""

CONSTANT = re.compile(r"^#define (ATTN_\w+) (?!ATTN_INIT)\S", re.M)
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Werror", "-fsyntax-only"]


def used_constants(options):
    """Uses every constant of the headers under strict warnings; their number, and failures."""
    headers = ("attn_c.h", "attn_c_host.h")
    names = [name for header in headers
             for name in CONSTANT.findall((INCLUDE / header).read_text(encoding="utf-8"))
             if name not in ("ATTN_EXPORT", "ATTN_VERSION_STRING")]
    text = "".join(f'#include "{header}"\n' for header in headers)
    text += "int64_t sum(void);\nint64_t sum(void) {\n  attn_status status = ATTN_OK;\n"
    text += "  int64_t all = status;\n" + "".join(f"  all += {name};\n" for name in names)
    text += "  return all;\n}\n"
    failures = 0
    for command in ([options.c_compiler, "-std=c99", "-x", "c"],
                    [options.cxx_compiler, "-std=c++11", "-Wold-style-cast", "-x", "c++"]):
        failures += subprocess.run([*command, *STRICT, "-I", str(INCLUDE), "-"], input=text,
                                   text=True, check=False).returncode != 0
    return len(names), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--c-compiler", default="cc")
    parser.add_argument("--cxx-compiler", default="c++")
    options = parser.parse_args()

    header = (INCLUDE / "attn_c.h").read_text(encoding="utf-8")
    macros = init_macros(header)
    lacking = set(growable_structs(header)) - set(macros.values()) - {"attn_api"}
    if lacking or len(macros) < 15:
        print(f"structs without an initialiser: {', '.join(sorted(lacking))}")
        return 1

    def fill(prefix):
        return "".join(FILL.format(prefix=prefix, name=name, macro=macro)
                       for macro, name in macros.items())

    names = list(macros.values())
    includes = '#include <string.h>\n#include "attn_c.h"\n'
    sources = {
        "fill_c.c": includes + fill("c"),
        "fill_cxx.cc": includes + 'extern "C" {\n' + fill("cxx") + "}\n",
        "main.c": MAIN.format(
            declarations="".join(f"void c_{name}(void*);\nvoid cxx_{name}(void*);\n"
                                 for name in names),
            checks="".join(CHECK.format(name=name) for name in names)),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            source = Path(folder) / name
            source.write_text(text, encoding="utf-8")
            compiler, standard = ((options.cxx_compiler, "c++11") if name.endswith(".cc")
                                  else (options.c_compiler, "c99"))
            subprocess.run([compiler, f"-std={standard}", "-O2", "-c", "-I", str(INCLUDE), source,
                            "-o", source.with_suffix(".o")], check=True)
        program = Path(folder) / "check"
        subprocess.run([options.cxx_compiler, *Path(folder).glob("*.o"), "-o", program], check=True)
        failures = subprocess.run([program], check=False).returncode
    print(f"{len(names)} initialisers in C and C++, {failures} bad")
    count, warned = used_constants(options)
    print(f"{count} constants in C and C++, {warned} programs with warnings")
    return 1 if failures or warned or count < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
