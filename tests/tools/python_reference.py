"""Writes docs/reference/python.md, the reference of the Python package, from its docstrings.

    python_reference.py            rewrites the page
    python_reference.py --check    fails where the page is not what the docstrings say

A public name without a docstring, or one that no group has, is an error.
"""

import argparse
import enum
import inspect
import re
import sys
from pathlib import Path

import attn_c

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "python.md"
HEAD = """# The Python package, name by name

Made from the docstrings by `tests/tools/python_reference.py`; the guide is
[python.md](../python.md).

    {summary}
"""
GROUPS = {
    "Contexts and sessions": ["Context", "ContextInfo", "ContextStats", "Session",
                              "FaultInfo", "fault_text"],
    "Operators": ["Op", "Support", "Plan", "PlanInfo", "Binding"],
    "Memory, streams, graphs": ["Tensor", "TensorSpec", "view", "Stream", "Graph"],
    "What there is": ["version", "abi_version", "devices", "DeviceInfo", "operators",
                      "OperatorInfo", "SlotInfo", "AttributeInfo"],
    "Errors": ["Error", "InvalidArgument", "InvalidType", "Unsupported", "VersionMismatch",
               "Unavailable", "NotPrepared", "CaptureConflict", "Busy", "OutOfMemory",
               "CompileFailed", "DeviceFailed", "Fault", "Internal"]}


class Kind(enum.Enum):
    """What a public member is."""

    METHOD = "method"
    PROPERTY = "property"


def document(name, item, missing):
    """The docstring's paragraphs; a name without one is noted."""
    text = inspect.getdoc(item) if getattr(item, "__doc__", None) else None
    if not text:
        missing.append(name)
        return ""
    return text


def signature(item):
    """The signature as Python writes it, without the module's own paths."""
    text = str(inspect.signature(item))
    text = re.sub(r"(attn_c|typing|numpy|collections\.abc)\.(_\w+\.)?", "", text)
    text = re.sub(r"ForwardRef\('(\w+)'\)", r"\1", text)
    text = re.sub(r"(: |-> |\[)'([\w.]+)'", r"\1\2", text)  # names of types, not defaults
    return re.sub(r"\(self(, )?", "(", text, count=1)


def members(kind):
    """(name, what, object) of the public members that a class itself defines."""
    for name, value in vars(kind).items():
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(value, property):
            yield name, Kind.PROPERTY, value.fget
        elif inspect.isfunction(value):
            yield name, Kind.METHOD, value


def section_of_class(name, kind, missing):
    made = issubclass(kind, (tuple, Exception)) or name in ("Op", "Plan", "Binding", "Session",
                                                             "Stream", "Graph", "Tensor")
    yield f"### {name}\n"
    if not made:
        yield f"**`{name}{signature(kind).removesuffix(' -> None')}`**\n"
    bases = [base.__name__ for base in kind.__bases__ if base not in (object, tuple)]
    if issubclass(kind, Exception) and bases:
        yield f"A kind of {', '.join(f'`{base}`' for base in bases)}.\n"
    yield document(name, kind, missing) + "\n"
    fields = getattr(kind, "_fields", ())
    if fields:
        types = inspect.get_annotations(kind, eval_str=False)
        shown = (str(getattr(types[one], "__name__", types[one])) if "[" not in str(types[one])
                 else str(types[one]) for one in fields)
        yield "".join(f"- `{one}`: {re.sub(r'typing.', '', text)}\n"
                      for one, text in zip(fields, shown))
    for member, what, value in members(kind):
        shown = f"{member}{signature(value)}" if what is Kind.METHOD else member
        yield f"**`{shown}`**\n"
        yield document(f"{name}.{member}", value, missing) + "\n"


def page():
    """(the page, names without a docstring, names that no group has)."""
    missing = []
    parts = [HEAD.format(summary=inspect.getdoc(attn_c).replace("\n", "\n    "))]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            item = getattr(attn_c, name)
            if inspect.isclass(item):
                parts += section_of_class(name, item, missing)
            else:
                parts += [f"### {name}\n", f"**`{name}{signature(item)}`**\n",
                          document(name, item, missing) + "\n"]
    left = set(attn_c.__all__) ^ {name for names in GROUPS.values() for name in names}
    text = "\n".join(parts)
    return re.sub(r"[ \t]+$", "", text, flags=re.M).rstrip() + "\n", missing, sorted(left)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text, missing, left = page()
    findings = [f"{name} has no docstring" for name in missing]
    findings += [f"{name} is public and in no group, or the other way round" for name in left]
    if options.check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            findings.append(f"{PAGE.relative_to(ROOT)} is not what the docstrings say: run "
                            f"{Path(__file__).name}")
    else:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
