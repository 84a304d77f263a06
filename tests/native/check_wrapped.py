"""Every function of the C interface is used by the layer of each language above it.

The functions are those of src/api/api_list.inc. A language's layer is its hand-written sources; of
Python, whose layer is built by SWIG, the module that SWIG wrote. What a language leaves to C on
purpose stands in LEFT_TO_C.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ENTRY = re.compile(r"^ATTN_(?:ENTRY|API|HOST_API)\((\w+)\)", re.M)

LAYERS = {
    "C++": ["include/*.hpp"],
    "C#": ["bindings/csharp/AttnC/**/*.cs"],
    "Rust": ["bindings/rust/attn-c/src/**/*.rs"],
}
TABLES = {"get_api", "host_get_api"}  # of function pointers: for C and what can call them
LEFT_TO_C = {"Python": TABLES, "C#": TABLES, "Rust": TABLES}


def functions():
    """Names of all exported functions, without their prefix."""
    return ENTRY.findall((ROOT / "src/api/api_list.inc").read_text(encoding="utf-8"))


def text_of(patterns):
    """The sources of one layer, in one text; empty where it is not there."""
    paths = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def missing(names, text, left):
    """Functions that a layer does not name, and those that it was to leave out but names."""
    used = set(re.findall(r"\battn_(\w+)", text))
    return [name for name in names if (name in used) == (name in left)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=[*LAYERS, "Python"])
    parser.add_argument("files", nargs="*", type=Path, help="the layer, where it is generated")
    options = parser.parse_args()
    names = functions()
    text = "\n".join(path.read_text(encoding="utf-8") for path in options.files)
    text = text or text_of(LAYERS[options.language])
    left = LEFT_TO_C.get(options.language, set())
    findings = missing(names, text, left)
    for name in findings:
        what = "is named, although it is left to C" if name in left else "is not used"
        print(f"attn_{name} {what}")
    print(f"{options.language}: {len(names) - len(left)} functions, {len(findings)} findings")
    return 1 if findings or not names else 0


if __name__ == "__main__":
    sys.exit(main())
