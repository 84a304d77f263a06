"""How a shape class of an op runs."""

import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional

from . import native
from ._streams import handle_of
from ._tensors import Arguments, memory_of
from ._values import integer, text

if TYPE_CHECKING:
    from ._context import Session
    from ._op import Op

_FIRST_TEXT_BYTES = 4096
_execute_by_name = native._native.execute_by_name  # the step below is felt by each call
_VERSION = {"max_version": (1, 1)}  # what __dlpack__ is told of us


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


def whole_text(ask: Callable[..., tuple[str, int]], *arguments: Any) -> str:
    """The text of a function with the two-call rule."""
    text, needed = ask(*arguments, _FIRST_TEXT_BYTES)
    if needed > _FIRST_TEXT_BYTES:
        text, needed = ask(*arguments, needed)
    return text


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


def execute_desc(stream: Any = None, workspace: Any = None, prepare: bool = False,
                 bake_host_values: bool = False,
                 of: str = "") -> Optional[native.attn_execute_desc]:
    """The options of execute; None where all are the defaults. of: as for prepare."""
    if stream is None and workspace is None and not prepare and not bake_host_values:
        return None
    desc = native.attn_execute_desc()
    desc.flags = ((native.ATTN_EXECUTE_PREPARE if prepare else 0)
                  | (native.ATTN_EXECUTE_BAKE_HOST_VALUES if bake_host_values else 0))
    desc.stream = handle_of(stream, of)
    if workspace is not None:
        desc.workspace, desc.workspace_bytes = memory_of(workspace, of)
    return desc


class Plan:
    """Engine, kernels and workspace need of a shape class; immutable. Threads: any.

    Made by Op.prepare. Plans of equal shape classes are the same plan below.
    """

    def __init__(self, op: "Op", handle: native.attn_plan) -> None:
        self.op: Op = op
        self._handle = handle

    def execute(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], *,
                session: Optional["Session"] = None, stream: Any = None,
                workspace: Any = None, bake_host_values: bool = False) -> None:
        """Runs on these tensors, by the standard's names; the outputs are the caller's memory.

        session: a Session of the context, one thread at a time; without it one is taken from the
        context's pool. stream: as Binding.execute's. workspace: an array for scratch instead of
        the session's.
        """
        op = self.op
        if stream is not None or op.on_device:
            stream = op.stream_of(stream, inputs)
        if session is not None and workspace is None and not bake_host_values:
            keywords = _VERSION if not stream else {"max_version": (1, 1), "stream": stream}
            if _execute_by_name(self._handle, session.handle, inputs, op.input_slots, outputs,
                                op.output_slots, keywords, stream):
                return
        ins = op.input_arguments(inputs, stream)
        outs = op.output_arguments(outputs, stream)
        desc = execute_desc(stream, workspace, bake_host_values=bake_host_values, of=op.title)
        self.run(ins, outs, session, desc)

    def run(self, ins: Arguments, outs: Arguments, session: Optional["Session"],
            desc: Optional[native.attn_execute_desc]) -> None:
        """As execute, with arguments that are made already."""
        if session is not None:
            native.attn_plan_execute(self._handle, session.handle, ins.native, outs.native, desc)
            return
        with self.op.context.borrowed_session() as borrowed:
            native.attn_plan_execute(self._handle, borrowed.handle, ins.native, outs.native, desc)

    def describe(self) -> dict[str, Any]:
        """What runs and why: engines considered and refused, workspace, expected flops, bytes."""
        described: dict[str, Any] = json.loads(
            whole_text(native.attn_plan_describe, self._handle))
        return described

    @property
    def info(self) -> PlanInfo:
        """Workspace, range and capture facts."""
        return plan_info(native.attn_plan_get_info, self._handle)
