"""Every function of the C interface is used by the layer of each language above it.

The functions are those of src/api/api_list.inc. A language's layer is its hand-written sources, and
what SWIG writes of every function by itself is none of it; words in comments and texts do not
count. What a language leaves to C on purpose stands in LEFT_TO_C.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ENTRY = re.compile(r"^ATTN_(?:ENTRY|API|HOST_API)\((\w+)\)", re.M)

SWIG = ROOT / "bindings/swig/attn_c.i"
LAYERS = {
    "C++": ["include/*.hpp"],
    "Python": ["bindings/python/attn_c/*.py"],
    "C#": ["bindings/csharp/AttnC/**/*.cs"],
    "Rust": ["bindings/rust/attn-c/src/**/*.rs"],
}
TABLES = {"get_api", "host_get_api"}  # of function pointers: for C and what can call them
LEFT_TO_C = {"Python": TABLES, "C#": TABLES, "Rust": TABLES}


def functions():
    """Names of all exported functions, without their prefix."""
    return ENTRY.findall((ROOT / "src/api/api_list.inc").read_text(encoding="utf-8"))


def c_like(text):
    """C++, C# or Rust without comments and texts."""
    skipped = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(skipped, " ", text, flags=re.S)


def python_names(text):
    """The names that Python code uses: comments and texts are none."""
    tree = ast.parse(text)
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return names + [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def layer_of(language):
    """The names that a layer uses, in one text; empty where it is not there."""
    paths = sorted(path for pattern in LAYERS[language] for path in ROOT.glob(pattern))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    if language != "Python":
        return "\n".join(c_like(text) for text in texts)
    # The handles' objects release them.
    released = re.findall(r"^ATTN_HANDLE\((\w+)\)", SWIG.read_text(encoding="utf-8"), re.M)
    return " ".join([*(name for text in texts for name in python_names(text)),
                     *(f"{handle}_release" for handle in released)])


def missing(names, text, left):
    """Functions that a layer does not name, and those that it was to leave out but names."""
    used = set(re.findall(r"\battn_(\w+)", text))
    return [name for name in names if (name in used) == (name in left)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=LAYERS)
    options = parser.parse_args()
    names = functions()
    text = layer_of(options.language)
    left = LEFT_TO_C.get(options.language, set())
    findings = missing(names, text, left)
    for name in findings:
        what = "is named, although it is left to C" if name in left else "is not used"
        print(f"attn_{name} {what}")
    print(f"{options.language}: {len(names) - len(left)} functions, {len(findings)} findings")
    return 1 if findings or not names else 0


if __name__ == "__main__":
    sys.exit(main())
