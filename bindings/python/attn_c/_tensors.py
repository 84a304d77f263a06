"""Tensors in and out: DLPack of any family in without a copy, results in the caller's family."""

import numbers
import sys
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from . import native
from ._dtypes import CODES, code_of, name_of, numpy_type
from ._introspection import SlotInfo
from ._memory import Tensor, empty
from ._streams import keywords_of, root_of
from ._values import integer, shown, sizes
from .errors import Error, InvalidArgument, OutOfMemory


class TensorSpec(NamedTuple):
    """Type, shape and place of a tensor without its data. -1 or None in the shape is any size;
    the place is (device type, device id) as DLPack has it, None for the context's device."""

    dtype: Any
    shape: Sequence[Optional[int]]
    device: Optional[tuple[int, int]] = None


def is_spec(value: Any) -> bool:
    """Whether a value stands for a tensor without data: a TensorSpec or a (type, shape) pair."""
    return isinstance(value, TensorSpec) or (
        isinstance(value, tuple) and len(value) in (2, 3)
        and not isinstance(value[0], numbers.Number))


def _capsule(value: Any, stream: Optional[int]) -> object:
    """The DLPack capsule of an object; old producers know no version and no read-only arrays."""
    keywords: dict[str, int] = {}
    if stream is not None and not hasattr(value, "__dlpack_device__"):
        raise TypeError("it has __dlpack__, and no __dlpack_device__")
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
    if is_spec(value):
        raise InvalidArgument(f"{where}: expected a tensor; got a type and a shape without data, "
                              "which query, infer and prepare take")
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
            self.native.add_tensor(info.slot, value._native)
            self.kept.append((value, None))
            return
        if not hasattr(value, "__dlpack__"):
            value = _array_of_numbers(self._where(info), info, value)
        try:
            capsule = _capsule(value, stream)
            self.native.add_capsule(info.slot, capsule)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            self.add_refused(info, value, error)
        else:
            self.kept.append((value, capsule))

    def add_refused(self, info: SlotInfo, value: Any, error: Exception) -> None:
        """Adds what DLPack could not pass on, or raises InvalidArgument with the reason. numpy has
        no DLPack for types that are not its own, nor before 2.1 for read-only arrays."""
        if isinstance(value, np.ndarray):
            self._add_array(info, value)
        elif isinstance(error, Error):
            raise error
        else:
            raise InvalidArgument(
                f"{self._where(info)}: expected a tensor of type {' or '.join(info.types)} that "
                f"DLPack can pass on; got {type(value).__name__}: {error}") from error

    def describe(self, info: SlotInfo, value: Any, stream: Optional[int],
                 error: Optional[Exception]) -> object:
        """A capsule that describes a value for native.execute_by_name. error: of its producer."""
        if error is not None:
            self.add_refused(info, value, error)
        else:
            self.add(info, value, stream)
        return native.described(self.native.tensor(0), self)

    def _add_array(self, info: SlotInfo, array: "np.ndarray[Any, Any]") -> None:
        """A numpy array by numpy's own words of its memory."""
        if array.dtype.isnative and array.dtype.name not in CODES:
            raise InvalidArgument(f"{self._where(info)}: expected a tensor of type "
                                  f"{' or '.join(info.types)}; got {array.dtype.name}")
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
        if not is_spec(value):
            self.add(info, value, stream)
            return
        spec, where = TensorSpec(*value), self._where(info)
        code, bits = code_of(spec.dtype, where)
        place = sizes(f"{where}: device", (0, 0) if spec.device is None else spec.device)
        if len(place) != 2:
            raise InvalidArgument(f"{where}: device: expected DLPack's (type, id); got "
                                  f"{shown(spec.device)}")
        device_type, device_id = (integer(f"{where}: device", number, "int32") for number in place)
        given: Any = spec.shape
        if isinstance(given, Sequence) and not isinstance(given, str):
            given = [-1 if size is None else size for size in given]
        shape = sizes(f"{where}: shape", given)
        if not self.native.add_shape(info.slot, device_type, device_id, code, bits, shape):
            raise InvalidArgument(f"{where}: expected at most {native.ATTN_MAX_RANK} axes; "
                                  f"got {len(shape)}")


class Names:
    """The inputs and outputs of an operator by name. title: operator with label, for messages."""

    def __init__(self, title: str, inputs: Sequence[SlotInfo],
                 outputs: Sequence[SlotInfo]) -> None:
        self.title = title
        self._inputs = {info.name: info for info in inputs}
        self._outputs = {info.name: info for info in outputs}

    def _find(self, slots: Mapping[str, SlotInfo], kind: str, name: Any) -> SlotInfo:
        try:
            return slots[name]
        except (KeyError, TypeError):
            raise InvalidArgument(f"{self.title} has no {kind} {name!r}; there are "
                                  f"{', '.join(slots)}") from None

    def input(self, name: str) -> SlotInfo:
        """The input of that name."""
        return self._find(self._inputs, "input", name)

    def output(self, name: str) -> SlotInfo:
        """The output of that name."""
        return self._find(self._outputs, "output", name)

    def by_name(self) -> tuple[dict[str, int], dict[str, int], Callable[..., object], type]:
        """What native.execute_by_name takes."""
        return ({name: info.slot for name, info in self._inputs.items()},
                {name: info.slot for name, info in self._outputs.items()}, self._describe, Tensor)

    def mapping(self, kind: str, values: Any) -> Mapping[str, Any]:
        """What a caller gave as tensors by name."""
        if not isinstance(values, Mapping):
            raise InvalidArgument(f"{self.title}: {kind}: expected a mapping of names to tensors; "
                                  f"got {type(values).__name__}")
        return values

    def _describe(self, outputs: bool, name: Any, value: Any, stream: int,
                  error: Optional[Exception]) -> object:
        info = self.output(name) if outputs else self.input(name)
        return Arguments(self.title).describe(info, value, stream or None, error)


def spec_of(tensor: native.attn_tensor) -> TensorSpec:
    """The type's name, shape and place of a tensor's description."""
    return TensorSpec(name_of(tensor.dtype.code, tensor.dtype.bits),
                      tuple(tensor.extent(axis) for axis in range(tensor.ndim)),
                      (tensor.device_type, tensor.device_id))


class Scratch(NamedTuple):
    """Memory for scratch: its address, bytes, DLPack's device type, and what keeps it."""

    address: int
    size: int
    device_type: int
    keeps: object


def memory_of(value: Any, of: str = "", stream: Optional[int] = None) -> Scratch:
    """A writable array without gaps as scratch; it lives as long as the result. of: as Arguments
    has it. stream: as Arguments.add has it."""
    arguments = Arguments(of)
    where = f"{of}: workspace" if of else "workspace"
    if not hasattr(value, "__dlpack__"):
        raise InvalidArgument(f"{where}: expected an array that can be written to; got "
                              f"{type(value).__name__}")
    info = SlotInfo("workspace", 0, False, tuple(CODES), "(bytes)", 0, None)
    arguments.add(info, value, stream)
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
    return Scratch((tensor.data or 0) + tensor.byte_offset, elements * tensor.dtype.bits // 8,
                   tensor.device_type, arguments)


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

    def empty(self, spec: TensorSpec, where: str) -> Any:
        """Memory for an output: of the family itself where it can be written to. where: operator
        and output, for messages. Raises OutOfMemory."""
        try:
            return self._empty(spec)
        except (MemoryError, ValueError, RuntimeError) as error:
            if isinstance(error, (Error, NotImplementedError)) and not isinstance(
                    error, OutOfMemory):
                raise
            raise OutOfMemory(f"{where}: no memory for {spec.dtype} {tuple(spec.shape)}: "
                              f"{error}") from error

    def _empty(self, spec: TensorSpec) -> Any:
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
