"""Streams of any library as the handles that the plugin takes."""

import operator
import sys
from typing import Any, Callable, Iterable, Optional

from . import native
from ._values import integer, shown
from .errors import InvalidArgument

NO_WAIT = -1  # DLPack's word for: the producer need not wait for anybody
_ATTRIBUTES = ("cuda_stream", "ptr")  # of PyTorch's and CuPy's streams


def _handle_by_protocol(protocol: Any, of: str) -> Any:
    """The handle from __cuda_stream__, a method or a property: the pair (0, handle)."""
    pair = protocol() if callable(protocol) else protocol
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidArgument(f"{of}stream: expected (0, handle) from __cuda_stream__; "
                              f"got {shown(pair)}")
    if pair[0] != 0:
        raise InvalidArgument(f"{of}stream: expected version 0 of __cuda_stream__; "
                              f"got {shown(pair[0])}")
    return pair[1]


def handle_of(stream: Any, of: str = "") -> Optional[int]:
    """The handle of a stream: an int, None for the null stream, an object with __cuda_stream__, or
    a stream of PyTorch or CuPy. of: the operator with its label, for messages."""
    if stream is None:
        return None
    of = f"{of}: " if of else ""
    if not isinstance(stream, int):
        protocol = getattr(stream, "__cuda_stream__", None)
        if protocol is not None:
            stream = _handle_by_protocol(protocol, of)
        else:
            for name in _ATTRIBUTES:
                if hasattr(stream, name):
                    stream = getattr(stream, name)
                    break
    try:
        number = operator.index(stream)
    except TypeError:
        raise InvalidArgument(
            f"{of}stream: expected an int, None, an object with __cuda_stream__ or a stream of "
            f"PyTorch or CuPy; got {type(stream).__name__}") from None
    return integer(f"{of}stream", number, "uint64") or None


def root_of(value: Any) -> str:
    """The package that a value's type comes from."""
    return type(value).__module__.partition(".")[0]


def _torch_current(value: Any) -> Callable[[], int]:
    torch = sys.modules["torch"]
    return lambda: torch.cuda.current_stream(value.device).cuda_stream


def _cupy_current(value: Any) -> Callable[[], int]:
    cupy = sys.modules["cupy"]
    return lambda: cupy.cuda.get_current_stream(value.device.id).ptr


_CURRENT = {"torch": _torch_current, "cupy": _cupy_current}


def current_of(values: Iterable[Any]) -> Optional[Callable[[], int]]:
    """What tells the current stream of the library that the first CUDA tensor among the values
    belongs to; None where none of them has one."""
    for value in values:
        make = _CURRENT.get(root_of(value))
        if make is not None and value.__dlpack_device__()[0] == native.ATTN_DEVICE_CUDA:
            return make(value)
    return None


def keywords_of(value: Any, stream: Optional[int]) -> dict[str, int]:
    """What __dlpack__ of a CUDA tensor is told, so that the producer's work comes before ours.
    `stream`: a handle, None for the null stream, NO_WAIT where nothing is launched yet."""
    if not stream:
        return {}
    if stream == NO_WAIT and root_of(value) in ("jax", "jaxlib"):
        value.block_until_ready()  # its stream is nobody's to wait for
        return {}
    current = _CURRENT.get(root_of(value))
    if stream != NO_WAIT and current is not None and current(value)() == stream:
        stream = NO_WAIT  # one stream, one order
    return {"stream": stream}
