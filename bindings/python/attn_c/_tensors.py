"""Tensors in and out: DLPack of any family in without a copy, results in the caller's family."""

import numbers
import sys
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np

from . import native
from ._dtypes import code_of, is_extension, name_of, numpy_type
from ._introspection import SlotInfo
from ._memory import Tensor, empty
from ._streams import keywords_of, root_of
from ._values import integer, shown
from .errors import InvalidArgument

_NO_STRIDES = (0,) * native.ATTN_MAX_RANK


class TensorSpec(NamedTuple):
    """Type, shape and place of a tensor without its data. -1 or None in the shape is any size;
    the place is (device type, device id) as DLPack has it, None for the context's device."""

    dtype: Any
    shape: Sequence[Optional[int]]
    device: Optional[tuple[int, int]] = None


def _capsule(value: Any, stream: Optional[int]) -> object:
    """The DLPack capsule of an object; old producers know no version and no read-only arrays."""
    keywords: dict[str, int] = {}
    if stream is not None and value.__dlpack_device__()[0] == native.ATTN_DEVICE_CUDA:
        keywords = keywords_of(value, stream)
    try:
        return value.__dlpack__(max_version=(1, 1), **keywords)
    except TypeError:
        return value.__dlpack__(**keywords)


def _is_integer(item: object) -> bool:
    return isinstance(item, numbers.Integral) and not isinstance(item, bool)


def _array_of_numbers(where: str, info: SlotInfo, value: Any) -> "np.ndarray[Any, Any]":
    """An int, or a sequence of ints, for a slot that takes one integer type. where: operator and
    argument, for messages."""
    types = info.types
    if len(types) == 1 and types[0].startswith(("int", "uint")):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InvalidArgument(f"{where}: {error}") from error
        wanted = np.dtype(types[0])
        limits = np.iinfo(wanted)
        if array.dtype.kind not in "iu" and array.size:
            # numpy has no integer type for these numbers, or they are none.
            array = np.asarray(value, object)
        if array.dtype.kind in "iu" or all(_is_integer(item) for item in array.flat):
            if array.size and (array.min() < limits.min or array.max() > limits.max):
                raise InvalidArgument(f"{where}: expected {limits.min} to {limits.max}; "
                                      f"got {shown(value)}, which does not fit {wanted.name}")
            return array.astype(wanted)
    raise InvalidArgument(
        f"{where}: expected a tensor with DLPack of type {' or '.join(types)}; "
        f"got {type(value).__name__}")


class Arguments:
    """The inputs or outputs of one call: descriptions for the library, and what keeps the memory.

    `native` points into memory of the objects in `kept`: both live until the call, or the binding
    that took them, has ended. of: the operator with its label, for messages.
    """

    def __init__(self, of: str = "") -> None:
        self._of = of
        self.native = native.ArgumentList()
        self.kept: list[tuple[object, object]] = []

    def _where(self, info: SlotInfo) -> str:
        return f"{self._of}: {info.name}" if self._of else info.name

    def add(self, info: SlotInfo, value: Any, stream: Optional[int] = None) -> None:
        """Adds an array, a tensor, or for integer slots plain numbers. stream: the handle of the
        stream that will use it, NO_WAIT where nothing is launched yet."""
        if isinstance(value, Tensor):
            self.native.add_tensor(info.slot, value.native)
            self.kept.append((value, None))
            return
        if not hasattr(value, "__dlpack__"):
            value = _array_of_numbers(self._where(info), info, value)
        try:
            if isinstance(value, np.ndarray) and is_extension(value.dtype):
                self._add_extension_type(info, value)
                return
            capsule = _capsule(value, stream)
            self.native.add_capsule(info.slot, capsule)
        except (BufferError, TypeError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(f"{self._where(info)}: {error}") from error
        self.kept.append((value, capsule))

    def _add_extension_type(self, info: SlotInfo, array: "np.ndarray[Any, Any]") -> None:
        """A numpy array of a type that numpy cannot pass on by DLPack, as bfloat16."""
        code, bits = code_of(array.dtype, self._where(info))
        size = array.itemsize
        if any(stride % size for stride in array.strides):
            raise InvalidArgument(f"{self._where(info)}: expected strides in bytes that are "
                                  f"multiples of the element size {size}; got {array.strides}")
        flags = 0 if array.flags.writeable else native.ATTN_TENSOR_READ_ONLY
        if not self.native.add_memory(
                info.slot, flags, native.ATTN_DEVICE_CPU, 0, code, bits, array.shape,
                [stride // size for stride in array.strides],
                array.__array_interface__["data"][0]):
            raise InvalidArgument(f"{self._where(info)}: expected at most {native.ATTN_MAX_RANK} "
                                  f"axes; got {array.ndim}")
        self.kept.append((array, None))

    def add_spec(self, info: SlotInfo, value: Any, stream: Optional[int] = None) -> None:
        """Adds a TensorSpec, a (type, shape) pair, or as add."""
        if not isinstance(value, tuple) or len(value) not in (2, 3) or isinstance(value[0], int):
            self.add(info, value, stream)
            return
        spec, where = TensorSpec(*value), self._where(info)
        code, bits = code_of(spec.dtype, where)
        device_type, device_id = (integer(f"{where}: device", number, "int32")
                                  for number in spec.device or (0, 0))
        shape = [-1 if size is None else integer(f"{where}: shape", size, "int64")
                 for size in spec.shape]
        if not self.native.add_shape(info.slot, device_type, device_id, code, bits, shape):
            raise InvalidArgument(f"{where}: expected at most {native.ATTN_MAX_RANK} axes; "
                                  f"got {len(shape)}")


def spec_of(tensor: native.attn_tensor) -> TensorSpec:
    """The type's name, shape and place of a tensor's description."""
    return TensorSpec(name_of(tensor.dtype.code, tensor.dtype.bits),
                      tuple(tensor.extent(axis) for axis in range(tensor.ndim)),
                      (tensor.device_type, tensor.device_id))


def memory_of(value: Any, of: str = "") -> tuple[int, int]:
    """(address, bytes) of a writable array without gaps, for scratch. of: as Arguments has it."""
    arguments = Arguments(of)
    where = f"{of}: workspace" if of else "workspace"
    info = SlotInfo("workspace", 0, False, ("uint8",), "(bytes)", 0, None)
    arguments.add(info, value)
    tensor = arguments.native.tensor(0)
    elements = 1
    for axis in reversed(range(tensor.ndim)):
        if tensor.extent(axis) > 1 and tensor.stride(axis) != elements:
            strides = [tensor.stride(at) for at in range(tensor.ndim)]
            raise InvalidArgument(f"{where}: expected an array without gaps; got strides {strides}")
        elements *= tensor.extent(axis)
    if tensor.flags & native.ATTN_TENSOR_READ_ONLY:
        raise InvalidArgument(f"{where}: expected an array that can be written to; got a "
                              "read-only one")
    return tensor.data + tensor.byte_offset, elements * tensor.dtype.bits // 8


def _from_dlpack_of(root: str) -> Optional[Callable[[Any], Any]]:
    """What makes a tensor of a package from DLPack; None where it has nothing of the kind."""
    if root in ("jax", "jaxlib"):
        root = "jax.dlpack"
    maker: Any = getattr(sys.modules.get(root), "from_dlpack", None)
    return maker if callable(maker) else None


class Family:
    """Makes outputs in the family of an input: that of its type's module, or of a base's, if there
    is one that makes tensors from DLPack; else numpy on the host, and attn_c.Tensor on a device.
    Decided before anything runs."""

    def __init__(self, like: Any, context: Any) -> None:
        self._like, self._context = like, context
        self._on_device = context.device_type != native.ATTN_DEVICE_CPU
        self._torch: Any = None
        self._from_dlpack: Optional[Callable[[Any], Any]] = None
        if isinstance(like, (np.ndarray, Tensor)) or not hasattr(like, "__dlpack__"):
            return
        for kind in type(like).__mro__:
            root = kind.__module__.partition(".")[0]
            if root == "torch" and root in sys.modules:
                self._torch = sys.modules[root]
                return
            self._from_dlpack = _from_dlpack_of(root)
            if self._from_dlpack is not None:
                return

    def empty(self, spec: TensorSpec) -> Any:
        """Memory for an output: of the family itself where it can be written to."""
        shape = tuple(-1 if size is None else size for size in spec.shape)
        if self._torch is not None:
            return self._torch.empty(shape, dtype=getattr(self._torch, spec.dtype),
                                     device=self._like.device)
        if root_of(self._like) == "cupy" and spec.dtype != "bfloat16":
            return sys.modules["cupy"].empty(shape, spec.dtype)
        # numpy has no DLPack for what is not its own type; the family has, since it gave such.
        foreign = self._from_dlpack is not None and spec.dtype.startswith(("bfloat16", "float8"))
        if self._on_device or foreign or isinstance(self._like, Tensor):
            return empty(self._context, shape, spec.dtype, "device")
        return np.empty(shape, numpy_type(spec.dtype))

    def wait(self, stream: Optional[int]) -> None:
        """Waits for the call where the family's own streams cannot be told to: its arrays might be
        used again, and the results be read, before the call is done."""
        if self._on_device and self._from_dlpack is not None and root_of(self._like) != "cupy":
            native.attn_host_stream_synchronize(self._context.handle, stream)

    def finish(self, array: Any) -> Any:
        """What the caller gets of `empty`'s memory once it is filled."""
        if self._from_dlpack is None or root_of(array) == root_of(self._like):
            return array
        return self._from_dlpack(array)
