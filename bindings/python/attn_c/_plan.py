"""How a shape class of an op runs."""

import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional

from . import native
from ._introspection import whole_text
from ._sessions import Session, session_handle
from ._tensors import Arguments, memory_of
from ._values import Uncopied, integer, text
from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._context import Context
    from ._op import Op

_execute_by_name = native._native.execute_by_name  # the step below is felt by each call


class PlanInfo(NamedTuple):
    """Workspace of one execute, the range that the plan serves, and facts of capture."""

    workspace_bytes: int
    workspace_alignment: int
    max_batch: int
    max_query_length: int
    max_total_length: int
    capture_flags: int
    baked_slots: tuple[int, ...]
    reason: str

    @property
    def capturable(self) -> bool:
        """Whether a stream capture can record the execute."""
        return bool(self.capture_flags & native.ATTN_CAPTURE_SUPPORTED)

    @property
    def needs_prepare(self) -> bool:
        """Whether there is no plan yet."""
        return bool(self.capture_flags & native.ATTN_CAPTURE_NEEDS_PREPARE)


def plan_info(fill: Callable[[Any, native.attn_plan_info], None], handle: Any) -> PlanInfo:
    """Facts from attn_plan_get_info or attn_binding_capture_support."""
    info = native.attn_plan_info()
    fill(handle, info)
    return PlanInfo(
        info.workspace_bytes, info.workspace_alignment, info.max_batch, info.max_query_length,
        info.max_total_length, info.capture_flags,
        tuple(info.baked_slot(i) for i in range(info.baked_slot_count)), info.reason)


def fill_prepare_desc(desc: native.attn_prepare_desc, engine: Optional[str] = None,
                      batch_invariant: bool = False, allow_tf32: bool = False,
                      check_on_host: bool = False, max_batch: int = 0, max_query_length: int = 0,
                      max_total_length: int = 0, of: str = "") -> None:
    """The options of prepare; see Op.prepare. of: the operator with its label, for messages."""
    of = f"{of}: " if of else ""
    desc.flags = ((native.ATTN_PREPARE_BATCH_INVARIANT if batch_invariant else 0)
                  | (native.ATTN_PREPARE_ALLOW_TF32 if allow_tf32 else 0)
                  | (native.ATTN_PREPARE_CHECK_ON_HOST if check_on_host else 0))
    if engine is not None:
        desc.engine = text(f"{of}engine", engine)
    desc.max_batch = integer(f"{of}max_batch", max_batch, "int64")
    desc.max_query_length = integer(f"{of}max_query_length", max_query_length, "int64")
    desc.max_total_length = integer(f"{of}max_total_length", max_total_length, "int64")


class ExecuteOptions(NamedTuple):
    """The options of an execute as the library takes them (None: all are the defaults), and what
    keeps its workspace until the execute has returned."""

    desc: Optional[native.attn_execute_desc]
    keeps: object


def execute_options(context: "Context", stream: Optional[int] = None, workspace: Any = None,
                    prepare: bool = False, bake_host_values: bool = False, eager: bool = False,
                    of: str = "") -> ExecuteOptions:
    """The options of execute; `stream` is a handle. of: as for prepare."""
    flags = ((native.ATTN_EXECUTE_PREPARE if prepare else 0)
             | (native.ATTN_EXECUTE_BAKE_HOST_VALUES if bake_host_values else 0)
             | (native.ATTN_EXECUTE_EAGER if eager else 0))
    if stream is None and workspace is None and not flags:
        return ExecuteOptions(None, None)
    desc = native.attn_execute_desc()
    desc.flags, desc.stream = flags, stream
    keeps = None
    if workspace is not None:
        keeps = memory_of(workspace, of, stream)
        where = f"{of}: workspace" if of else "workspace"
        if keeps.device_type != context.device_type:
            raise InvalidArgument(f"{where}: expected memory of DLPack's device type "
                                  f"{context.device_type}; got {keeps.device_type}")
        desc.workspace, desc.workspace_bytes = keeps.address, keeps.size
    return ExecuteOptions(desc, keeps)


class Plan(Uncopied):
    """Engine, kernels and workspace need of a shape class; immutable. Threads: any.

    Made by Op.prepare. Plans of equal shape classes are the same plan below.
    """

    def __init__(self, op: "Op", handle: native.attn_plan) -> None:
        self.op: Op = op
        self._handle = handle

    def execute(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], *,
                session: Optional[Session] = None, stream: Any = None,
                workspace: Any = None, bake_host_values: bool = False,
                eager: bool = False) -> None:
        """Runs on these tensors, by the standard's names; the outputs are the caller's memory.

        session: a Session of the context, one thread at a time; without it one is taken from the
        context's pool, as Op.__call__ does. stream, eager: as Binding.execute's. workspace: an
        array for scratch instead of the session's.
        """
        op = self.op
        if type(inputs) is not dict:
            inputs = dict(op.names.mapping("inputs", inputs))
        if type(outputs) is not dict:
            outputs = dict(op.names.mapping("outputs", outputs))
        if stream is not None or op.on_device:
            stream = op.stream_of(stream, inputs)
        desc = keeps = None
        if workspace is not None or bake_host_values or eager:
            desc, keeps = execute_options(op.context, stream, workspace, False, bake_host_values,
                                          eager, op.title)
        if session is not None:
            handle = (session.handle if type(session) is Session else
                      session_handle(session, op.title))
            _execute_by_name(self._handle, handle, inputs, outputs, op.by_name, desc, stream)
        else:
            with op.context.sessions.lend(stream) as handle:
                _execute_by_name(self._handle, handle, inputs, outputs, op.by_name, desc, stream)
        del keeps

    def run(self, ins: Arguments, outs: Arguments, session: Optional[Session] = None,
            stream: Optional[int] = None) -> None:
        """As execute, with arguments that are made already, and the handle of a stream."""
        desc = execute_options(self.op.context, stream).desc
        if session is not None:
            native.attn_plan_execute(self._handle, session_handle(session, self.op.title),
                                     ins.native, outs.native, desc)
            return
        with self.op.context.sessions.lend(stream) as handle:
            native.attn_plan_execute(self._handle, handle, ins.native, outs.native, desc)

    def describe(self) -> dict[str, Any]:
        """What runs and why: engines considered and refused, workspace, expected flops, bytes."""
        described: dict[str, Any] = json.loads(
            whole_text(native.attn_plan_describe, self._handle))
        return described

    @property
    def info(self) -> PlanInfo:
        """Workspace, range and capture facts."""
        return plan_info(native.attn_plan_get_info, self._handle)
