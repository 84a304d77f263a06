"""An op's tensors tied to a session."""

import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from . import native
from ._introspection import SlotInfo
from ._plan import PlanInfo, execute_desc, fill_prepare_desc, plan_info, whole_text
from ._streams import NO_WAIT, current_of
from ._tensors import Arguments
from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._context import Session
    from ._op import Op


class Binding:
    """The caller's memory bound to an op, to be executed again and again. Threads: one at a time.

    Made by Op.bind. It keeps the bound arrays alive. A context manager: leaving it lets go of them.
    """

    def __init__(self, op: "Op", session: "Session", inputs: Mapping[str, Any],
                 outputs: Mapping[str, Any]) -> None:
        self.op: Op = op
        self.session: Session = session
        self._kept: dict[object, object] = {}
        self._handle: Optional[native.attn_binding] = native.attn_binding_create(
            op.handle, session.handle)
        ins, outs = op.input_arguments(inputs, NO_WAIT), op.output_arguments(outputs, NO_WAIT)
        self._current = None
        if op.context.device_type == native.ATTN_DEVICE_CUDA:
            self._current = current_of([*inputs.values(), *outputs.values()])
        native.attn_binding_set_tensors(self._open_handle, ins.native, outs.native)
        self._kept["all"] = (ins, outs)

    def __enter__(self) -> "Binding":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the library's object and of the arrays."""
        self._handle = None
        self._kept.clear()

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
        arguments.add(info, value, NO_WAIT)
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
                bake_host_values: bool = False) -> None:
        """Runs what is bound. Raises NotPrepared without a fitting plan, unless `prepare` asks for
        one to be made. Other threads of Python run meanwhile.

        stream: an int, an object with __cuda_stream__ or a stream of PyTorch or CuPy; None is the
        current stream of the library that the first CUDA tensor was bound from, else the null
        stream. Work of other streams on the tensors is the caller's to wait for.
        """
        if stream is None and self._current is not None:
            stream = self._current()
        native.attn_binding_execute(
            self._open_handle,
            execute_desc(stream, workspace, prepare, bake_host_values, self.op.title))

    def capture_support(self) -> PlanInfo:
        """Whether a stream capture can record execute, and what it would fix."""
        return plan_info(native.attn_binding_capture_support, self._open_handle)

    def describe(self) -> dict[str, Any]:
        """What runs and why. Raises NotPrepared without a plan."""
        described: dict[str, Any] = json.loads(
            whole_text(native.attn_binding_describe, self._open_handle))
        return described
