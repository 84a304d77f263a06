# ---- errors
from . import native as native
from _typeshed import Incomplete

class Error(Exception):
    status: int
    native_code: Incomplete
    native_domain: Incomplete
    sticky: Incomplete
    def __init__(self, message: str, native_code: int = 0, native_domain: int = 0, sticky: bool = False) -> None: ...

class InvalidArgument(Error, ValueError):
    status: Incomplete

class InvalidType(InvalidArgument, TypeError): ...

class Unsupported(Error, NotImplementedError):
    status: Incomplete

class VersionMismatch(Error):
    status: Incomplete

class Unavailable(Error):
    status: Incomplete

class NotPrepared(Error):
    status: Incomplete

class CaptureConflict(Error):
    status: Incomplete

class Busy(Error):
    status: Incomplete

class OutOfMemory(Error, MemoryError):
    status: Incomplete

class CompileFailed(Error):
    status: Incomplete

class DeviceFailed(Error):
    status: Incomplete

class Fault(Error):
    status: Incomplete

class Internal(Error):
    status: Incomplete

# ---- _introspection
from . import errors as errors, native as native
from ._values import integer as integer
from typing import Any, Callable, NamedTuple

class DeviceInfo(NamedTuple):
    device_type: int
    device_id: int
    name: str
    available: bool
    reason: str

class SlotInfo(NamedTuple):
    name: str
    slot: int
    optional: bool
    types: tuple[str, ...]
    shape: str
    memory: int
    may_alias: int | None

class AttributeInfo(NamedTuple):
    name: str
    type: str
    required: bool
    default: str
    summary: str

class OperatorInfo(NamedTuple):
    domain: str
    type: str
    version_first: int
    version_last: int
    summary: str
    inputs: tuple[SlotInfo, ...]
    outputs: tuple[SlotInfo, ...]
    attributes: tuple[AttributeInfo, ...]

def version() -> str: ...
def abi_version() -> int: ...
def fault_text(bits: int) -> str: ...
def devices() -> list[DeviceInfo]: ...
def whole_text(ask: Callable[..., tuple[str, int]], *arguments: Any) -> str: ...
def operators() -> list[OperatorInfo]: ...
def find_operator(domain: str, type: str, version: int) -> OperatorInfo: ...

# ---- _context
from . import errors as errors, native as native
from ._dtypes import code_of as code_of
from ._graph import Graph as Graph, Stream as Stream, capture as capture
from ._memory import Tensor as Tensor, empty as empty
from ._op import Op as Op
from ._sessions import Session as Session, Sessions as Sessions
from ._values import Uncopied as Uncopied, address as address, integer as integer, text as text
from .errors import InvalidArgument as InvalidArgument
from typing import Any, ContextManager, NamedTuple, Sequence

class ContextInfo(NamedTuple):
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

class Context(Uncopied):
    handle: native.attn_context
    device_type: int
    device_id: int
    sessions: Sessions
    def __init__(self, device: str = 'cpu', *, thread_count: int = 0, simd_level: str | None = None, engine: str | None = None, native_context: int | None = None, driver_path: str | None = None, nvrtc_path: str | None = None, cache_folder: str | None = None, cache_limit_bytes: int = 0, disk_cache: bool = True, ignore_environment: bool = False) -> None: ...
    def op(self, domain: str, type: str, /, version: int = 1, label: str | None = None, **attributes: Any) -> Op: ...
    def session(self, label: str | None = None) -> Session: ...
    @property
    def info(self) -> ContextInfo: ...
    @property
    def stats(self) -> ContextStats: ...
    def empty(self, shape: Sequence[int], dtype: Any = 'float32', *, kind: str = 'device') -> Tensor: ...
    def put(self, array: Any, *, kind: str = 'device', stream: Any = None) -> Tensor: ...
    def stream(self) -> Stream: ...
    def capture(self, stream: Any) -> ContextManager[Graph]: ...
    def trim(self) -> None: ...

# ---- _sessions
import contextlib
from . import native as native
from ._context import Context as Context
from ._streams import handle_of as handle_of
from ._values import Uncopied as Uncopied, text as text
from .errors import Fault as Fault, InvalidArgument as InvalidArgument
from typing import Any, Iterator, NamedTuple

class FaultInfo(NamedTuple):
    bits: int
    text: str
    label: str = ...
    batch: int = ...
    value: int = ...
    def __bool__(self) -> bool: ...

class Session(Uncopied):
    context: Context
    handle: native.attn_session
    def __init__(self, context: Context, label: str | None = None) -> None: ...
    def poll_faults(self) -> FaultInfo: ...
    def clear_faults(self, stream: Any = None) -> None: ...

def session_handle(session: Any, of: str) -> native.attn_session: ...

class Sessions:
    def __init__(self, context: Context) -> None: ...
    @contextlib.contextmanager
    def lend(self, stream: int | None) -> Iterator[native.attn_session]: ...
    def rest(self, stream: int | None) -> None: ...
    def forget(self, stream: int | None) -> None: ...
    def clear(self) -> None: ...

# ---- _op
from . import native as native
from ._binding import Binding as Binding
from ._context import Context as Context
from ._introspection import OperatorInfo as OperatorInfo, SlotInfo as SlotInfo, find_operator as find_operator
from ._plan import Plan as Plan, fill_prepare_desc as fill_prepare_desc
from ._sessions import Session as Session, session_handle as session_handle
from ._streams import current_of as current_of, handle_of as handle_of
from ._tensors import Arguments as Arguments, Family as Family, Names as Names, TensorSpec as TensorSpec, spec_of as spec_of
from ._values import Uncopied as Uncopied, integer as integer, real as real, shown as shown, text as text
from .errors import InvalidArgument as InvalidArgument, Unsupported as Unsupported
from _typeshed import Incomplete
from typing import Any, Mapping, NamedTuple, Sequence

class Support(NamedTuple):
    ok: bool
    reason: str
    capturable: bool
    status: int
    def __bool__(self) -> bool: ...

class Op(Uncopied):
    title: str
    context: Context
    handle: native.attn_op
    info: OperatorInfo
    on_device: bool
    names: Names
    by_name: Incomplete
    def __init__(self, context: Context, domain: str, type: str, version: int, label: str | None, attributes: Mapping[str, Any]) -> None: ...
    def input_info(self, name: str) -> SlotInfo: ...
    def output_info(self, name: str) -> SlotInfo: ...
    def input_arguments(self, inputs: Mapping[str, Any], stream: int | None = None, specs: bool = True) -> Arguments: ...
    def output_arguments(self, outputs: Mapping[str, Any] | Sequence[str], stream: int | None = None, specs: bool = True) -> Arguments: ...
    def stream_of(self, stream: Any, tensors: Mapping[str, Any]) -> int | None: ...
    def query(self, *, outputs: Mapping[str, Any] | Sequence[str] | None = None, aliases: Mapping[str, str] | None = None, engine: str | None = None, **inputs: Any) -> Support: ...
    def infer(self, output: str, /, **inputs: Any) -> TensorSpec: ...
    def prepare(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | Sequence[str] | None = None, *, aliases: Mapping[str, str] | None = None, engine: str | None = None, batch_invariant: bool = False, allow_tf32: bool = False, check_on_host: bool = False, max_batch: int = 0, max_query_length: int = 0, max_total_length: int = 0) -> Plan: ...
    def bind(self, session: Session | None = None, inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | None = None) -> Binding: ...
    def __call__(self, *, outputs: Sequence[str] | None = None, out: Mapping[str, Any] | None = None, session: Session | None = None, stream: Any = None, engine: str | None = None, **inputs: Any) -> Any: ...

# ---- _plan
from . import native as native
from ._context import Context as Context
from ._introspection import whole_text as whole_text
from ._op import Op as Op
from ._sessions import Session as Session, session_handle as session_handle
from ._tensors import Arguments as Arguments, memory_of as memory_of
from ._values import Uncopied as Uncopied, integer as integer, text as text
from .errors import InvalidArgument as InvalidArgument
from typing import Any, Callable, Mapping, NamedTuple

class PlanInfo(NamedTuple):
    workspace_bytes: int
    workspace_alignment: int
    max_batch: int
    max_query_length: int
    max_total_length: int
    capture_flags: int
    baked_slots: tuple[int, ...]
    reason: str
    @property
    def capturable(self) -> bool: ...
    @property
    def needs_prepare(self) -> bool: ...

def plan_info(fill: Callable[[Any, native.attn_plan_info], None], handle: Any) -> PlanInfo: ...
def fill_prepare_desc(desc: native.attn_prepare_desc, engine: str | None = None, batch_invariant: bool = False, allow_tf32: bool = False, check_on_host: bool = False, max_batch: int = 0, max_query_length: int = 0, max_total_length: int = 0, of: str = '') -> None: ...

class ExecuteOptions(NamedTuple):
    desc: native.attn_execute_desc | None
    keeps: object

def execute_options(context: Context, stream: int | None = None, workspace: Any = None, prepare: bool = False, bake_host_values: bool = False, eager: bool = False, of: str = '') -> ExecuteOptions: ...

class Plan(Uncopied):
    op: Op
    def __init__(self, op: Op, handle: native.attn_plan) -> None: ...
    def execute(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], *, session: Session | None = None, stream: Any = None, workspace: Any = None, bake_host_values: bool = False, eager: bool = False) -> None: ...
    def run(self, ins: Arguments, outs: Arguments, session: Session | None = None, stream: int | None = None) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    @property
    def info(self) -> PlanInfo: ...

# ---- _binding
from . import native as native
from ._introspection import SlotInfo as SlotInfo, whole_text as whole_text
from ._op import Op as Op
from ._plan import PlanInfo as PlanInfo, execute_options as execute_options, fill_prepare_desc as fill_prepare_desc, plan_info as plan_info
from ._sessions import Session as Session
from ._streams import NO_WAIT as NO_WAIT, current_of as current_of, handle_of as handle_of
from ._tensors import Arguments as Arguments, is_spec as is_spec
from ._values import Uncopied as Uncopied
from .errors import InvalidArgument as InvalidArgument
from typing import Any, Mapping

class Binding(Uncopied):
    op: Op
    session: Session
    def __init__(self, op: Op, session: Session, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None: ...
    def __enter__(self) -> Binding: ...
    def __exit__(self, *exception: Any) -> None: ...
    def close(self) -> None: ...
    def set_input(self, name: str, value: Any) -> None: ...
    def set_output(self, name: str, value: Any) -> None: ...
    def prepare(self, **options: Any) -> None: ...
    def execute(self, stream: Any = None, workspace: Any = None, prepare: bool = False, bake_host_values: bool = False, eager: bool = False) -> None: ...
    def capture_support(self) -> PlanInfo: ...
    def describe(self) -> dict[str, Any]: ...

# ---- _memory
import numpy as np
from . import native as native
from ._dtypes import code_of as code_of, name_of as name_of, numpy_type as numpy_type
from ._streams import handle_of as handle_of
from ._values import Uncopied as Uncopied, integer as integer, sizes as sizes
from .errors import InvalidArgument as InvalidArgument, Unsupported as Unsupported
from typing import Any, Sequence

class Allocation(Uncopied):
    address: int
    def __init__(self, context: Any, kind: int, size: int) -> None: ...
    def __del__(self, _free: Any = ...) -> None: ...

class Tensor(Uncopied):
    def __init__(self, owner: Any, address: int, dtype: Any, shape: Sequence[int], *, strides: Sequence[int] | None = None, byte_offset: int = 0, byte_size: int | None = None, device: tuple[int, int] = ..., read_only: bool = False, context: Any = None) -> None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def read_only(self) -> bool: ...
    def __len__(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...
    def copy_from(self, source: Any, stream: Any = None) -> Tensor: ...
    def numpy(self, stream: Any = None) -> np.ndarray: ...

def empty(context: Any, shape: Sequence[int], dtype: Any, kind: str) -> Tensor: ...
def view(array: np.ndarray, dtype: Any = None, shape: Sequence[int] | None = None, *, strides: Sequence[int] | None = None, byte_offset: int = 0) -> Tensor: ...

# ---- _graph
import contextlib
from . import native as native
from ._streams import handle_of as handle_of
from ._values import Uncopied as Uncopied
from .errors import Error as Error, InvalidArgument as InvalidArgument
from _typeshed import Incomplete
from typing import Any, Iterator

class Stream(Uncopied):
    context: Incomplete
    def __init__(self, context: Any) -> None: ...
    @property
    def handle(self) -> int | None: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...
    def __enter__(self) -> Stream: ...
    def __exit__(self, *exception: Any) -> None: ...
    def __del__(self) -> None: ...
    def synchronize(self) -> None: ...
    def close(self) -> None: ...

class Graph(Uncopied):
    def __init__(self) -> None: ...
    def __enter__(self) -> Graph: ...
    def __exit__(self, *exception: Any) -> None: ...
    def launch(self, stream: Any = None) -> None: ...
    def close(self) -> None: ...

@contextlib.contextmanager
def capture(context: Any, stream: Any) -> Iterator[Graph]: ...

# ---- _tensors
from . import native as native
from ._dtypes import CODES as CODES, code_of as code_of, name_of as name_of, numpy_type as numpy_type
from ._introspection import SlotInfo as SlotInfo
from ._memory import Tensor as Tensor, empty as empty
from ._streams import keywords_of as keywords_of, root_of as root_of
from ._values import integer as integer, shown as shown, sizes as sizes
from .errors import Error as Error, InvalidArgument as InvalidArgument, OutOfMemory as OutOfMemory
from _typeshed import Incomplete
from typing import Any, Callable, Mapping, NamedTuple, Sequence

class TensorSpec(NamedTuple):
    dtype: Any
    shape: Sequence[int | None]
    device: tuple[int, int] | None = ...

def is_spec(value: Any) -> bool: ...

class Arguments:
    native: Incomplete
    kept: list[tuple[object, object]]
    def __init__(self, of: str = '') -> None: ...
    def add(self, info: SlotInfo, value: Any, stream: int | None = None) -> None: ...
    def add_refused(self, info: SlotInfo, value: Any, error: Exception) -> None: ...
    def describe(self, info: SlotInfo, value: Any, stream: int | None, error: Exception | None) -> object: ...
    def add_spec(self, info: SlotInfo, value: Any, stream: int | None = None) -> None: ...

class Names:
    title: Incomplete
    def __init__(self, title: str, inputs: Sequence[SlotInfo], outputs: Sequence[SlotInfo]) -> None: ...
    def input(self, name: str) -> SlotInfo: ...
    def output(self, name: str) -> SlotInfo: ...
    def by_name(self) -> tuple[dict[str, int], dict[str, int], Callable[..., object], type]: ...
    def mapping(self, kind: str, values: Any) -> Mapping[str, Any]: ...

def spec_of(tensor: native.attn_tensor) -> TensorSpec: ...

class Scratch(NamedTuple):
    address: int
    size: int
    device_type: int
    keeps: object

def memory_of(value: Any, of: str = '', stream: int | None = None) -> Scratch: ...

class Family:
    def __init__(self, like: Any, context: Any) -> None: ...
    def empty(self, spec: TensorSpec, where: str) -> Any: ...
    def wait(self, stream: int | None) -> None: ...
    def finish(self, array: Any) -> Any: ...
