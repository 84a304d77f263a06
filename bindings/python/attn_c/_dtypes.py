"""Element types: names of the documentation, DLPack's (code, bits), and numpy's types."""

from typing import Any

import numpy as np

from . import native
from .errors import InvalidArgument, Unsupported

CODES = {
    "float32": (native.ATTN_DTYPE_FLOAT, 32),
    "float16": (native.ATTN_DTYPE_FLOAT, 16),
    "bfloat16": (native.ATTN_DTYPE_BFLOAT, 16),
    "float64": (native.ATTN_DTYPE_FLOAT, 64),
    "int8": (native.ATTN_DTYPE_INT, 8),
    "int16": (native.ATTN_DTYPE_INT, 16),
    "int32": (native.ATTN_DTYPE_INT, 32),
    "int64": (native.ATTN_DTYPE_INT, 64),
    "uint8": (native.ATTN_DTYPE_UINT, 8),
    "uint16": (native.ATTN_DTYPE_UINT, 16),
    "uint32": (native.ATTN_DTYPE_UINT, 32),
    "uint64": (native.ATTN_DTYPE_UINT, 64),
    "bool": (native.ATTN_DTYPE_BOOL, 8),
    # DLPack's codes; only operators that move elements take these.
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
}
_NAMES = {code: name for name, code in CODES.items()}
# As the standard spells them, and attn_c.operators.
_ALIASES = {name.replace("_", ""): name for name in CODES if name.startswith("float8")}


def code_of(dtype: Any, where: str = "") -> tuple[int, int]:
    """(code, bits) of a name, a numpy type, or anything whose text ends in a name. where: operator
    and argument, for messages. Raises InvalidArgument for a type that is unknown, or of the other
    byte order."""
    of = f"{where}: " if where else ""
    if isinstance(dtype, str):
        name = dtype
    elif dtype is None:
        name = "None"  # which numpy would take for float64
    else:
        try:
            known = np.dtype(dtype)
        except (TypeError, ValueError):
            name = str(dtype).rpartition(".")[2]  # torch.float16
        else:
            name = known.name
            if not known.isnative:
                raise InvalidArgument(f"{of}expected elements in this machine's byte order; got "
                                      f"{known.newbyteorder('=').name} in the other one")
    name = _ALIASES.get(name, name)
    if name not in CODES:
        raise InvalidArgument(f"{of}the element type {dtype!r} is unknown; there are "
                              f"{', '.join(CODES)}")
    return CODES[name]


def name_of(code: int, bits: int) -> str:
    """The name of DLPack's pair."""
    try:
        return _NAMES[code, bits]
    except KeyError:
        raise Unsupported(
            f"the element type with code {code} and {bits} bits has no name") from None


def numpy_type(name: str) -> "np.dtype[Any]":
    """numpy's type of a name; bfloat16 and those of 8 bits are the package ml_dtypes'."""
    if not name.startswith(("bfloat16", "float8")):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise Unsupported(f"{name} in numpy needs the package ml_dtypes") from None
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return made
