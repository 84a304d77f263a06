"""Memory that speaks DLPack: for programs without an array library of their own for the device,
and for element types that numpy lacks."""

import operator
from typing import Any, Optional, Sequence

import numpy as np

from . import native
from ._dtypes import code_of, name_of, numpy_type
from ._streams import handle_of
from ._values import Uncopied, integer, sizes
from .errors import InvalidArgument, Unsupported

_KINDS = {"device": native.ATTN_MEMORY_DEVICE, "host": native.ATTN_MEMORY_HOST,
          "pinned": native.ATTN_MEMORY_PINNED}


class Allocation(Uncopied):
    """Memory of a context, given back with the last reference."""

    def __init__(self, context: Any, kind: int, size: int) -> None:
        self._handle, self._kind = context.handle, kind
        self.address: int = native.attn_host_memory_alloc(context.handle, kind, size)

    def __del__(self, _free: Any = native.attn_host_memory_free) -> None:
        address = getattr(self, "address", 0)
        if address:
            _free(self._handle, self._kind, address)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _index_of(value: Any) -> Optional[int]:
    try:
        return operator.index(value)
    except TypeError:
        return None


def _array_of(source: Any) -> "np.ndarray[Any, Any]":
    """A numpy array without gaps of an array or of numbers."""
    try:
        return np.ascontiguousarray(source).reshape(np.shape(source))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"copy_from: expected an array; got {type(source).__name__}: "
                              f"{error}") from error


def _reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest index of an element; (0, -1) without elements."""
    if 0 in shape:
        return 0, -1
    steps = [stride * (size - 1) for size, stride in zip(shape, strides)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)


class Tensor(Uncopied):
    """A typed, shaped piece of memory; made by Context.empty, Context.put and attn_c.view.

    It keeps its memory alive, and so does everybody who takes it by DLPack. byte_size: bytes from
    `address` on, within which the elements must lie; None where that is not known. Raises
    InvalidArgument for elements that lie outside. Threads: as the memory's.
    """

    __slots__ = ("__weakref__", "_context", "_described", "_device", "_dtype", "_list", "_native",
                 "_owner", "_read_only", "_shape", "_strides")

    def __init__(self, owner: Any, address: int, dtype: Any, shape: Sequence[int], *,
                 strides: Optional[Sequence[int]] = None, byte_offset: int = 0,
                 byte_size: Optional[int] = None,
                 device: tuple[int, int] = (native.ATTN_DEVICE_CPU, 0),
                 read_only: bool = False, context: Any = None) -> None:
        code, bits = code_of(dtype)
        self._dtype = name_of(code, bits)
        self._shape = sizes("shape", shape)
        if any(size < 0 for size in self._shape):
            raise InvalidArgument(f"shape: expected no negative sizes; got {self._shape}")
        self._strides = (_row_major(self._shape) if strides is None else
                         sizes("strides", strides))
        self._device = device
        self._read_only = read_only
        self._owner, self._context = owner, context
        if len(self._strides) != len(self._shape) or len(self._shape) > native.ATTN_MAX_RANK:
            raise InvalidArgument(f"a tensor needs as many strides as axes, at most "
                                  f"{native.ATTN_MAX_RANK}; got {self._shape} and {self._strides}")
        integer("byte_offset", byte_offset, "uint64")
        if byte_size is not None:
            self._check_room(byte_offset, integer("byte_size", byte_size, "uint64"), bits // 8)
        self._list = native.ArgumentList()
        self._list.add_memory(
            0, native.ATTN_TENSOR_READ_ONLY if read_only else 0, *device, code, bits,
            self._shape, self._strides, integer("address", address, "uint64"))
        self._native = self._list.tensor(0)
        self._native.byte_offset = byte_offset
        self._native.data_bytes = byte_size or 0
        self._described = native.described(self._native, self._list)

    def _check_room(self, byte_offset: int, byte_size: int, item: int) -> None:
        least, most = _reach(self._shape, self._strides)
        begin, end = byte_offset + least * item, byte_offset + (most + 1) * item
        if most >= 0 and (begin < 0 or end > byte_size):
            raise InvalidArgument(
                f"shape {self._shape}, strides {self._strides} and byte_offset {byte_offset}: "
                f"expected elements within the {byte_size} bytes that there are; got {self._dtype} "
                f"from byte {begin} to {end}")

    @property
    def dtype(self) -> str:
        """The element type's name."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self._strides

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's (type, id)."""
        return self._device

    @property
    def read_only(self) -> bool:
        """Whether it may not be written to."""
        return self._read_only

    def __repr__(self) -> str:
        return f"attn_c.Tensor({self.dtype}, {self.shape}, device={self.device})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    @property
    def address(self) -> int:
        """The address of the first element; of the device's memory where that is its place."""
        return self._native.data + self._native.byte_offset

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        count = self._native.dtype.bits // 8
        for size in self.shape:
            count *= size
        return count

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any:
        """A capsule. As DLPack has it, `stream` (None: the legacy default one) may use the memory
        at once: for memory of a CUDA context this waits for the device, unless it is -1."""
        if copy or (dl_device is not None and tuple(dl_device) != tuple(self.device)):
            raise BufferError("a tensor of attn_c is passed on where it lies, never copied")
        versioned = max_version is not None and max_version[0] >= 1
        if self.read_only and not versioned:
            raise BufferError("a read-only tensor needs DLPack 1.0: max_version=(1, 0)")
        self._wait_for(stream)
        return native.capsule_of(self._native, self, versioned)

    def _wait_for(self, stream: Any) -> None:
        if stream is not None:
            number = _index_of(stream)
            if number is None or number < -1 or number == 0:
                raise BufferError("stream: expected None, -1, 1, 2 or a handle, as DLPack has "
                                  f"them; got {stream!r}")
            if number != -1 and self._device[0] != native.ATTN_DEVICE_CUDA:
                raise BufferError(f"stream: expected None for memory of the host; got {stream!r}")
            if number == -1:
                return
        if self._context is not None and self._context.device_type == native.ATTN_DEVICE_CUDA:
            # Nobody keeps book of the streams that use it; giving memory back waits for them all.
            Allocation(self._context, native.ATTN_MEMORY_DEVICE, 0)

    def _check_dense(self, what: str) -> None:
        if self.nbytes and self.strides != _row_major(self.shape):
            raise InvalidArgument(f"{what}: expected memory without gaps; got strides "
                                  f"{self.strides} for {self.shape}")

    def copy_from(self, source: Any, stream: Any = None) -> "Tensor":
        """Copies an array's or a tensor's elements in, in the order of the stream; returns itself.
        Type and shape must be its own, without gaps."""
        self._check_dense("copy_from")
        if self.read_only:
            raise InvalidArgument("copy_from: expected a tensor that can be written to; got a "
                                  "read-only one")
        if isinstance(source, Tensor):
            source._check_dense("copy_from: source")
            kind, shape, address = source.dtype, source.shape, source.address
        else:
            source = _array_of(source)
            kind, shape = name_of(*code_of(source.dtype, "copy_from")), source.shape
            address = source.__array_interface__["data"][0]
        if kind != self.dtype or tuple(shape) != self.shape:
            raise InvalidArgument(f"copy_from: expected {self.dtype} {self.shape}; "
                                  f"got {kind} {tuple(shape)}")
        self._copy(self.address, address, stream, isinstance(source, Tensor))
        return self

    def _copy(self, target: int, source: int, stream: Any, may_run_on: bool) -> None:
        if self._context is None:
            raise Unsupported("only memory of a context can be copied: Context.empty, Context.put")
        if self.nbytes:
            handle = handle_of(stream)
            native.attn_host_memory_copy(self._context.handle, target, source, self.nbytes, handle)
            if not may_run_on:  # the host's array is the caller's again
                native.attn_host_stream_synchronize(self._context.handle, handle)

    def numpy(self, stream: Any = None) -> np.ndarray:
        """A copy as a numpy array, after what the stream holds; bfloat16 needs ml_dtypes."""
        self._check_dense("numpy")
        result = np.empty(self.shape, numpy_type(self.dtype))
        self._copy(result.__array_interface__["data"][0], self.address, stream, False)
        return result


def empty(context: Any, shape: Sequence[int], dtype: Any, kind: str) -> Tensor:
    """Memory of a context with arbitrary content; see Context.empty."""
    if kind not in _KINDS:
        raise InvalidArgument(f"kind: expected {', '.join(_KINDS)}; got {kind!r}")
    place = (native.ATTN_DEVICE_CPU, 0)
    if context.device_type == native.ATTN_DEVICE_CUDA and kind != "host":
        place = ((native.ATTN_DEVICE_CUDA_HOST, 0) if kind == "pinned" else
                 (native.ATTN_DEVICE_CUDA, context.device_id))
    shape = sizes("shape", shape)
    if any(size < 0 for size in shape):
        raise InvalidArgument(f"shape: expected no negative sizes; got {shape}")
    size = code_of(dtype)[1] // 8
    for extent in shape:
        size *= extent
    memory = Allocation(context, _KINDS[kind], integer("bytes", size, "uint64"))
    return Tensor(memory, memory.address, dtype, shape, device=place, byte_size=size,
                  context=context)


def view(array: np.ndarray, dtype: Any = None, shape: Optional[Sequence[int]] = None, *,
         strides: Optional[Sequence[int]] = None, byte_offset: int = 0) -> Tensor:
    """The memory of a numpy array as another type, shape and strides (in elements).

    So bfloat16 comes without ml_dtypes: view(bits, "bfloat16") of an array of uint16. Without
    strides the elements follow each other from `byte_offset` on. Raises InvalidArgument where they
    reach beyond the array.
    """
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(f"view: expected a numpy array; got {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise InvalidArgument(f"view: expected an array without gaps; got strides of "
                              f"{array.strides} bytes for {array.shape}")
    if dtype is None or array.dtype.kind in "iuf":
        code_of(array.dtype, "view")  # of this machine's byte order
    address = array.__array_interface__["data"][0]
    return Tensor(array, address, array.dtype if dtype is None else dtype,
                  array.shape if shape is None else shape, strides=strides,
                  byte_offset=byte_offset, byte_size=array.nbytes,
                  read_only=not array.flags.writeable)
