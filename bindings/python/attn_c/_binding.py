"""An op's tensors tied to a session."""

import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from . import native
from ._introspection import SlotInfo, whole_text
from ._plan import PlanInfo, execute_options, fill_prepare_desc, plan_info
from ._streams import NO_WAIT, current_of, handle_of
from ._tensors import Arguments, is_spec
from ._values import Uncopied
from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._op import Op
    from ._sessions import Session


class Binding(Uncopied):
    """The caller's memory bound to an op, to be executed again and again. Threads: one at a time
    (else Busy), but for close.

    Made by Op.bind. It keeps the bound arrays alive. A context manager: leaving it lets go of them.
    """

    def __init__(self, op: "Op", session: "Session", inputs: Mapping[str, Any],
                 outputs: Mapping[str, Any]) -> None:
        self.op: Op = op
        self.session: Session = session
        self._kept: dict[tuple[str, int], object] = {}
        self._handle: Optional[native.attn_binding] = native.attn_binding_create(
            op.handle, session.handle)
        self._wait = NO_WAIT if op.on_device else None
        outputs = op.names.mapping("outputs", outputs)
        ins = op.input_arguments(inputs, self._wait)
        outs = op.output_arguments(outputs, self._wait)
        self._current = None
        if op.context.device_type == native.ATTN_DEVICE_CUDA:
            self._current = current_of([*inputs.values(), *outputs.values()])
        native.attn_binding_set_tensors(self._open_handle, ins.native, outs.native)
        for kind, names, taken in (("in", inputs, ins), ("out", outputs, outs)):
            self._keep(kind, names, taken)

    def __enter__(self) -> "Binding":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the library's object and of the arrays; an execute of another thread that is
        under way keeps both until it returns. Threads: any."""
        self._handle = None
        self._kept = {}

    def _keep(self, kind: str, values: Mapping[str, Any], taken: Arguments) -> None:
        """Keeps what was bound at once, each by its slot, so that it can be replaced alone."""
        find = self.op.input_info if kind == "in" else self.op.output_info
        kept = iter(taken.kept)
        for name, value in values.items():
            if value is not None and not is_spec(value):
                self._kept[kind, find(name).slot] = next(kept)

    @property
    def _open_handle(self) -> native.attn_binding:
        if self._handle is None:
            raise InvalidArgument(f"{self.op.title}: the binding is closed")
        return self._handle

    def _set(self, bind: Callable[..., None], kind: str, info: SlotInfo, value: Any) -> None:
        if value is None:
            bind(self._open_handle, info.slot, None)
            self._kept.pop((kind, info.slot), None)
            return
        arguments = Arguments(self.op.title)
        arguments.add(info, value, self._wait)
        bind(self._open_handle, info.slot, arguments.native.tensor(0))
        self._kept[kind, info.slot] = arguments

    def set_input(self, name: str, value: Any) -> None:
        """Binds another tensor to an input; None unbinds. A tensor of another shape class needs
        prepare again, one at another address does not."""
        self._set(native.attn_binding_set_input, "in", self.op.input_info(name), value)

    def set_output(self, name: str, value: Any) -> None:
        """Binds another tensor to an output; None unbinds. Raises InvalidArgument for a read-only
        one."""
        self._set(native.attn_binding_set_output, "out", self.op.output_info(name), value)

    def prepare(self, **options: Any) -> None:
        """Finds or makes the plan for what is bound; options as Op.prepare's. Raises Unsupported
        with the reason of every engine, InvalidArgument for shapes that do not fit."""
        desc = native.attn_prepare_desc()
        fill_prepare_desc(desc, of=self.op.title, **options)
        native.attn_binding_prepare(self._open_handle, desc)

    def execute(self, stream: Any = None, workspace: Any = None, prepare: bool = False,
                bake_host_values: bool = False, eager: bool = False) -> None:
        """Runs what is bound. Raises NotPrepared without a fitting plan, unless `prepare` asks for
        one to be made. Other threads of Python run meanwhile.

        stream: an int, an object with __cuda_stream__ or a stream of PyTorch or CuPy; None is the
        current stream of the library that the first CUDA tensor was bound from, else the null
        stream. Work of other streams on the tensors is the caller's to wait for. workspace: an
        array for scratch instead of the session's. eager: the caller knows that the stream does not
        capture and that the device's context is current in this thread, so the driver is not asked.
        """
        # Held by this frame, whatever other threads do with the binding meanwhile.
        handle, kept = self._open_handle, self._kept
        if stream is None and self._current is not None:
            stream = self._current()
        if stream is None and workspace is None and not (prepare or bake_host_values or eager):
            native.attn_binding_execute(handle, None)
        else:
            desc, keeps = execute_options(
                self.op.context, handle_of(stream, self.op.title), workspace, prepare,
                bake_host_values, eager, self.op.title)
            native.attn_binding_execute(handle, desc)
            del keeps
        del kept

    def capture_support(self) -> PlanInfo:
        """Whether a stream capture can record execute, and what it would fix."""
        return plan_info(native.attn_binding_capture_support, self._open_handle)

    def describe(self) -> dict[str, Any]:
        """What runs and why. Raises NotPrepared without a plan."""
        described: dict[str, Any] = json.loads(
            whole_text(native.attn_binding_describe, self._open_handle))
        return described
