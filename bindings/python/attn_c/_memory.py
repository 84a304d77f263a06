"""Memory that speaks DLPack: for programs without an array library of their own for the device,
and for element types that numpy lacks."""

from typing import Any, Optional, Sequence

import numpy as np

from . import native
from ._dtypes import code_of, name_of, numpy_type
from ._streams import handle_of
from ._values import integer
from .errors import InvalidArgument, Unsupported

_KINDS = {"device": native.ATTN_MEMORY_DEVICE, "host": native.ATTN_MEMORY_HOST,
          "pinned": native.ATTN_MEMORY_PINNED}
_HOST_DEVICES = (native.ATTN_DEVICE_CPU, native.ATTN_DEVICE_CUDA_HOST)


class Allocation:
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


class Tensor:
    """A typed, shaped piece of memory; made by Context.empty, Context.put and attn_c.view.

    dtype: the type's name. shape; strides in elements. device: DLPack's (type, id). It keeps its
    memory alive, and so does everybody who takes it by DLPack. Threads: as the memory's.
    """

    def __init__(self, owner: Any, address: int, dtype: Any, shape: Sequence[int], *,
                 strides: Optional[Sequence[int]] = None, byte_offset: int = 0,
                 byte_size: int = 0, device: tuple[int, int] = (native.ATTN_DEVICE_CPU, 0),
                 read_only: bool = False, context: Any = None) -> None:
        code, bits = code_of(dtype)
        self.dtype: str = name_of(code, bits)
        self.shape: tuple[int, ...] = tuple(integer("shape", size, "int64") for size in shape)
        self.strides: tuple[int, ...] = (_row_major(self.shape) if strides is None else
                                         tuple(integer("strides", s, "int64") for s in strides))
        self.device = device
        self.read_only = read_only
        self._owner, self._context = owner, context
        self._list = native.ArgumentList()
        if not self._list.add_memory(
                0, native.ATTN_TENSOR_READ_ONLY if read_only else 0, *device, code, bits,
                self.shape, self.strides, integer("address", address, "uint64")):
            raise InvalidArgument(f"a tensor needs as many strides as axes, at most "
                                  f"{native.ATTN_MAX_RANK}; got {self.shape} and {self.strides}")
        self.native = self._list.tensor(0)
        self.native.byte_offset = integer("byte_offset", byte_offset, "uint64")
        self.native.data_bytes = integer("byte_size", byte_size, "uint64")

    def __repr__(self) -> str:
        return f"attn_c.Tensor({self.dtype}, {self.shape}, device={self.device})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    @property
    def address(self) -> int:
        """The address of the first element; of the device's memory where that is its place."""
        return self.native.data + self.native.byte_offset

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        count = self.native.dtype.bits // 8
        for size in self.shape:
            count *= size
        return count

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any:
        """A capsule. Work on the memory is the caller's to order: `stream` is not looked at."""
        if copy or (dl_device is not None and tuple(dl_device) != tuple(self.device)):
            raise BufferError("a tensor of attn_c is passed on where it lies, never copied")
        versioned = max_version is not None and max_version[0] >= 1
        if self.read_only and not versioned:
            raise BufferError("a read-only tensor needs DLPack 1.0: max_version=(1, 0)")
        return native.capsule_of(self.native, self, versioned)

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
            source = np.ascontiguousarray(source).reshape(np.shape(source))
            kind, shape = source.dtype.name, source.shape
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
    shape = tuple(integer("shape", size, "int64") for size in shape)
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
    strides the elements follow each other from `byte_offset` on. What lies outside the array is
    refused by the calls that take the tensor.
    """
    if not array.flags.c_contiguous:
        raise InvalidArgument(f"view: expected an array without gaps; got strides of "
                              f"{array.strides} bytes for {array.shape}")
    address = array.__array_interface__["data"][0]
    return Tensor(array, address, array.dtype if dtype is None else dtype,
                  array.shape if shape is None else shape, strides=strides,
                  byte_offset=byte_offset, byte_size=array.nbytes,
                  read_only=not array.flags.writeable)
