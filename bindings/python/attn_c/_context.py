"""A device with its options."""

from typing import Any, ContextManager, NamedTuple, Optional, Sequence

import numpy as np

from . import errors, native  # noqa: F401  (errors: so that native raises them)
from ._dtypes import code_of
from ._graph import Graph, Stream, capture
from ._memory import Tensor, empty
from ._op import Op
from ._sessions import Session, Sessions
from ._values import Uncopied, address, integer, text
from .errors import InvalidArgument

_DEVICE_TYPES = {"cpu": native.ATTN_DEVICE_CPU, "cuda": native.ATTN_DEVICE_CUDA}
_MOST_DIGITS = 10  # of a device's number


class ContextInfo(NamedTuple):
    """What a context runs on; texts that do not apply are empty."""

    device_type: int
    device_id: int
    thread_count: int
    device_name: str
    architecture: str
    simd_level: str
    simd_levels: tuple[str, ...]
    engines: tuple[str, ...]
    driver_version: str
    driver_path: str
    nvrtc_version: str
    nvrtc_path: str
    cache_folder: str
    uuid: str
    pci_id: str


class ContextStats(NamedTuple):
    """Counters since the context was made, and what lives now."""

    plans_created: int
    plan_cache_hits: int
    plans_live: int
    ops_live: int
    sessions_live: int
    bindings_live: int
    executions: int
    scratch_allocations: int
    scratch_bytes: int
    kernel_compiles: int
    disk_cache_hits: int
    disk_cache_misses: int


def _parse_device(device: str) -> tuple[int, int]:
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    is_number = number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
    if kind not in _DEVICE_TYPES or (number and not is_number):
        raise InvalidArgument(f'device: expected "cpu", "cuda" or "cuda:N"; got {device!r}')
    return _DEVICE_TYPES[kind], integer("device number", int(number or 0), "int32")


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


class Context(Uncopied):
    """A device: "cpu", "cuda" or "cuda:N". Threads: any.

    thread_count: threads of one execute on the CPU, 0 for all that the process may use.
    simd_level: a name of info.simd_levels. engine: force an engine of info.engines for every plan.
    native_context: address of a CUcontext to work in, which must live as long as this one; without
    it the device's primary context. driver_path, nvrtc_path: files of libcuda and libnvrtc instead
    of those that are found. cache_folder, cache_limit_bytes (0: the library's own bound),
    disk_cache=False: where compiled kernels are kept, how many bytes of them, or not at all.
    ignore_environment: no ATTN_C_ variable counts. What is given here wins over the environment.

    Raises InvalidArgument for a value that there is not, Unavailable where the device, its driver
    or its compiler cannot be used, DeviceFailed for the driver's own errors.
    """

    def __init__(self, device: str = "cpu", *, thread_count: int = 0,
                 simd_level: Optional[str] = None, engine: Optional[str] = None,
                 native_context: Optional[int] = None, driver_path: Optional[str] = None,
                 nvrtc_path: Optional[str] = None, cache_folder: Optional[str] = None,
                 cache_limit_bytes: int = 0, disk_cache: bool = True,
                 ignore_environment: bool = False) -> None:
        desc = native.attn_context_desc()
        desc.device_type, desc.device_id = _parse_device(device)
        desc.flags = ((native.ATTN_CONTEXT_IGNORE_ENVIRONMENT if ignore_environment else 0)
                      | (0 if disk_cache else native.ATTN_CONTEXT_NO_DISK_CACHE))
        desc.thread_count = integer("thread_count", thread_count, "int32")
        desc.native_context = address("native_context", native_context)
        desc.cache_limit_bytes = integer("cache_limit_bytes", cache_limit_bytes, "uint64")
        for name, value in (("simd_level", simd_level), ("engine", engine),
                            ("driver_path", driver_path), ("nvrtc_path", nvrtc_path),
                            ("cache_folder", cache_folder)):
            if value is not None:
                setattr(desc, name, text(name, value))
        self.handle: native.attn_context = native.attn_context_create(desc)
        self.device_type: int = desc.device_type
        self.device_id: int = desc.device_id
        self.sessions: Sessions = Sessions(self)

    def op(self, domain: str, type: str, /, version: int = 1, label: Optional[str] = None,
           **attributes: Any) -> Op:
        """An operator with its attributes, checked once.

        domain, type, version: as attn_c.operators lists them. label: the node's name for messages.
        attributes: by the standard's names; ints, floats, texts, sequences of numbers. Raises
        Unsupported for an operator that there is not, InvalidArgument for an attribute's value.
        """
        return Op(self, domain, type, version, label, attributes)

    def session(self, label: Optional[str] = None) -> Session:
        """A new order of executions. label: its name in the texts of faults."""
        return Session(self, label)

    @property
    def info(self) -> ContextInfo:
        """What the context runs on: a ContextInfo."""
        info = native.attn_context_info()
        native.attn_context_get_info(self.handle, info)
        values = {name: getattr(info, name) for name in ContextInfo._fields}
        values.update(simd_levels=_split(info.simd_levels), engines=_split(info.engines))
        return ContextInfo(**values)

    @property
    def stats(self) -> ContextStats:
        """Counters; each is exact, together they are no snapshot."""
        stats = native.attn_context_stats()
        native.attn_context_get_stats(self.handle, stats)
        return ContextStats(*(getattr(stats, name) for name in ContextStats._fields))

    def empty(self, shape: Sequence[int], dtype: Any = "float32", *,
              kind: str = "device") -> Tensor:
        """Memory with arbitrary content, as a tensor that speaks DLPack; given back with the last
        reference, on CUDA after the device has ended its work.

        shape: any number of sizes up to 8, 0 included. dtype: a name ("bfloat16"), or a type of
        numpy or another library. kind: device, host or pinned. Raises OutOfMemory.
        """
        return empty(self, shape, dtype, kind)

    def put(self, array: Any, *, kind: str = "device", stream: Any = None) -> Tensor:
        """A copy of a numpy array in memory of the device; it is there when this returns."""
        array = np.asarray(array)
        code_of(array.dtype, "put")
        return empty(self, array.shape, array.dtype, kind).copy_from(array, stream)

    def stream(self) -> Stream:
        """A new stream; on the CPU, which is synchronous, the null stream."""
        return Stream(self)

    def capture(self, stream: Any) -> ContextManager[Graph]:
        """Captures what the block executes in the stream:

            with ctx.capture(stream) as graph:
                binding.execute(stream)
            graph.launch(stream)

        Raises Unsupported on the CPU. Within PyTorch use torch.cuda.graph instead.
        """
        return capture(self, stream)

    def trim(self) -> None:
        """Frees plans that nobody holds, idle sessions of calls, and idle scratch."""
        self.sessions.clear()
        native.attn_context_trim(self.handle)
