"""Writes attn_c/native.pyi, the types of the SWIG module, from the C headers.

    make_native_stub.py            rewrites it
    make_native_stub.py --check    fails where it is not what the headers say

SWIG's own stub knows neither handles nor results. The rules are those of bindings/swig: a status
becomes an exception, out-parameters become results, addresses are ints, texts are strs.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUB = Path(__file__).parent / "attn_c" / "native.pyi"
HEADERS = ("attn_c.h", "attn_c_host.h")
LEFT_OUT = {"attn_get_api", "attn_host_get_api"}
INTERFACE = (ROOT / "bindings" / "swig" / "attn_c.i").read_text(encoding="utf-8")
# Structs and fields that stay in C.
HIDDEN = set(re.findall(r"^%ignore (attn_\w+);", INTERFACE, re.M))
READ_ONLY = set(re.findall(r"^%immutable (attn_\w+)::(\w+);", INTERFACE, re.M))
HIDDEN_FIELDS = set(re.findall(r"^%ignore (attn_\w+)::(\w+);", INTERFACE, re.M))
SCALARS = {"attn_status": "int", "double": "float", "float": "float", "size_t": "int",
           "int": "int", **{f"{sign}int{bits}_t": "int"
                            for sign in ("", "u") for bits in (8, 16, 32, 64)}}
METHODS = {
    "attn_tensor": ["def extent(self, axis: int) -> int: ...",
                    "def stride(self, axis: int) -> int: ..."],
    "attn_plan_info": ["def baked_slot(self, index: int) -> int: ..."],
    "attn_op_desc": ["def set_attributes(self, list: Optional[AttributeList]) -> None: ..."],
    **{name: ["def set_arguments(\n        self, inputs: Optional[ArgumentList],"
              "\n        outputs: Optional[ArgumentList]) -> None: ..."]
       for name in ("attn_query_desc", "attn_prepare_desc")}}
HELPERS = '''
def set_error_factory(factory: Callable[[int, int, int, int, str], Exception]) -> None: ...
def capsule_of(tensor: attn_tensor, owner: object, versioned: bool) -> object: ...
def described(tensor: attn_tensor, owner: object) -> object: ...
def execute_by_name(
    plan: attn_plan, session: attn_session, inputs: dict[str, Any], outputs: dict[str, Any],
    names: tuple[dict[str, int], dict[str, int], Callable[..., object], type],
    desc: Optional[attn_execute_desc], stream: Optional[int]) -> None: ...

class ArgumentList:
    def __init__(self) -> None: ...
    def add_memory(
        self, slot: int, flags: int, device_type: int, device_id: int, code: int, bits: int,
        shape: Sequence[int], strides: Sequence[int], address: int) -> bool: ...
    def add_shape(
        self, slot: int, device_type: int, device_id: int, code: int, bits: int,
        shape: Sequence[int]) -> bool: ...
    def add_tensor(self, slot: int, tensor: Optional[attn_tensor]) -> None: ...
    def add_capsule(self, slot: int, capsule: object) -> None: ...
    def add_name(self, slot: int) -> None: ...
    def add_alias(self, input_slot: int, output_slot: int) -> None: ...
    def size(self) -> int: ...
    def tensor(self, index: int) -> attn_tensor: ...

class AttributeList:
    def __init__(self) -> None: ...
    def add_int(self, name: str, value: int) -> None: ...
    def add_float(self, name: str, value: float) -> None: ...
    def add_string(self, name: str, value: str) -> None: ...
    def add_ints(self, name: str, values: Sequence[int]) -> None: ...
    def add_floats(self, name: str, values: Sequence[float]) -> None: ...
    def size(self) -> int: ...

'''


def plain(text):
    """C without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"^\s*#.*$", "", text, flags=re.M)


def constants(text):
    """Names of macros with a value that Python can have."""
    found = re.findall(r"^#define (ATTN_\w+) (.+)$", text, re.M)
    for name, value in found:
        value = re.sub(r"/\*.*", "", value).strip()
        if value.startswith('"'):
            yield f"{name}: str"
        elif re.match(r"\(?\(?\(?[\w ]*\)?\(?-?(0x)?[0-9a-fA-F]+u?\)*$", value):
            yield f"{name}: int"


def field_type(struct, kind, pointer, array):
    """What the caller sets may be null; what the library fills is a text or an address."""
    if pointer:
        plain_type = "str" if kind == "char" else "int"
        return f"Optional[{plain_type}]" if struct.endswith("_desc") else plain_type
    if array:
        return "str"
    return SCALARS.get(kind, kind)


def structs(text):
    """Lines of the classes of all structs and handles."""
    bodies = re.findall(r"typedef struct (attn_\w+) \{(.*?)\} \1;", text, re.S)
    known = {name for name, _ in bodies}
    for name in dict.fromkeys(re.findall(r"typedef struct (attn_\w+) \1;", text)):
        if name not in known and name not in HIDDEN:
            yield f"\nclass {name}:  # made by functions alone"
            yield "    def __init__(self, *args: Any, **kwargs: Any) -> None: ..."
    for name, body in bodies:
        if name in HIDDEN:
            continue
        yield f"\nclass {name}:"
        yield "    def __init__(self) -> None: ..."
        for kind, pointer, field, array in re.findall(
                r"(?:const )?(?:struct )?(\w+)\s*(\*?)\s*(\w+)(\[\w+\])?;", body):
            if field != "struct_size" and (name, field) not in HIDDEN_FIELDS:
                shown = field_type(name, kind, pointer, array)
                if (name, field) in READ_ONLY:
                    yield "    @property"
                    yield f"    def {field}(self) -> {shown}: ..."
                else:
                    yield f"    {field}: {shown}"
        for method in METHODS.get(name, ()):
            yield f"    {method}"


def parameters(text):
    """([(name, type)], [result types]) of a parameter list."""
    given, results = [], []
    parts = [] if text.strip() == "void" else [part.strip() for part in text.split(",")]
    while parts:
        kind, stars, name = re.match(
            r"(?:const )?(?:struct )?(\w+)\s*(\**)\s*(\w+)$", parts.pop(0)).groups()
        if kind == "attn_error":
            continue
        if kind == "attn_arg":
            given.append((name, "Optional[ArgumentList]"))
            parts.pop(0)
        elif kind == "char" and name == "buffer":
            given.append((name, "int"))
            results += ["str", "int"]
            del parts[:2]
        elif kind == "void" and stars == "**":
            results.append("int")
        elif stars == "**":
            results.append(kind)
        elif stars and kind in SCALARS:
            results.append("int")
        elif kind == "void":
            given.append((name, "Optional[int]"))
        elif kind == "char":
            given.append((name, "str"))
        elif stars:
            given.append((name, f"Optional[{kind}]" if kind.endswith(("_desc", "_tensor"))
                          and name != "output" else kind))
        else:
            given.append((name, SCALARS[kind]))
    return given, results


def functions(text):
    for result, pointer, name, arguments in re.findall(
            r"ATTN_EXPORT (?:const )?(\w+)(\*?)\s*(attn_\w+)\((.*?)\);", text, re.S):
        if name in LEFT_OUT:
            continue
        given, results = parameters(" ".join(arguments.split()))
        shown = ", ".join(f"{key}: {kind}" for key, kind in given)
        if pointer:
            back = "str"
        elif result not in ("attn_status", "void"):
            back = SCALARS[result]
        else:
            back = (results[0] if len(results) == 1 else
                    f"tuple[{', '.join(results)}]" if results else "None")
        line = f"def {name}({shown}) -> {back}: ..."
        if len(line) > 100:
            line = f"def {name}(\n    " + ",\n    ".join(shown.split(", ")) + f") -> {back}: ..."
        yield line


def stub():
    """The whole text."""
    texts = [(ROOT / "include" / name).read_text(encoding="utf-8") for name in HEADERS]
    lines = ['"""The flat functions of attn_c.h and attn_c_host.h; made by make_native_stub.py."""',
             "", "from typing import Any, Callable, Optional, Sequence", "",
             "_native: Any  # the extension module itself", ""]
    for text in texts:
        lines += constants(text)
    for text in texts:
        lines += structs(plain(text))
    lines += HELPERS.splitlines()
    for text in texts:
        lines += functions(plain(text))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        if STUB.read_text(encoding="utf-8") == stub():
            return 0
        print(f"{STUB.relative_to(ROOT)} is not what the headers say: run {Path(__file__).name}")
        return 1
    STUB.write_text(stub(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
