"""An operator with its attributes."""

import collections
import functools
import numbers
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import native
from ._binding import Binding
from ._introspection import OperatorInfo, SlotInfo, find_operator
from ._plan import Plan, fill_prepare_desc
from ._sessions import session_handle
from ._streams import current_of, handle_of
from ._tensors import Arguments, Family, Names, TensorSpec, spec_of
from ._values import Uncopied, integer, real, shown, text
from .errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from ._context import Context
    from ._sessions import Session


class Support(NamedTuple):
    """The claim gate's answer; true where the op would run. `status` is what prepare would give."""

    ok: bool
    reason: str
    capturable: bool
    status: int

    def __bool__(self) -> bool:
        return self.ok


def _is_integer(value: Any) -> bool:
    """A bool is none: the standard's attributes have no such type, and write 0 or 1."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _add_attribute(of: str, attributes: native.AttributeList, name: str, value: Any) -> None:
    name = text(f"{of}: the name of an attribute", name)
    title = f"{of}: attribute '{name}'"
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (str, bytes)):
        attributes.add_string(name, text(title, value))
    elif _is_integer(value):
        attributes.add_int(name, integer(title, value, "int64"))
    elif _is_real(value):
        attributes.add_float(name, real(title, value))
    elif isinstance(value, collections.abc.Iterable):
        values = list(value)
        if all(_is_integer(item) for item in values):
            attributes.add_ints(name, [integer(title, item, "int64") for item in values])
        elif all(_is_real(item) for item in values):
            attributes.add_floats(name, [real(title, item) for item in values])
        else:
            raise InvalidArgument(f"{title}: expected numbers; got {shown(value)}")
    else:
        hint = ", for which 0 or 1 is written" if isinstance(value, (bool, np.bool_)) else ""
        raise InvalidArgument(f"{title}: expected an int, a float, a text or a sequence "
                              f"of numbers; got {type(value).__name__}{hint}")


@functools.lru_cache(maxsize=64)
def _results_type(type_name: str, names: tuple[str, ...]) -> Any:
    return collections.namedtuple(f"{type_name}Outputs", names)


class Op(Uncopied):
    """An operator of a context, immutable. Threads: any. Made by Context.op.

    Inputs and outputs go by the standard's names; `info` lists them. None means absent.
    """

    def __init__(self, context: "Context", domain: str, type: str, version: int,
                 label: Optional[str], attributes: Mapping[str, Any]) -> None:
        desc = native.attn_op_desc()
        desc.domain, desc.type = text("domain", domain), text("type", type)
        if label is not None:
            desc.label = text(f"{desc.type}: label", label)
        # As the library's own messages begin.
        self.title: str = f"{desc.type} '{desc.label}'" if desc.label else desc.type
        desc.version = integer(f"{self.title}: version", version, "int32")
        kept = native.AttributeList()
        for name, value in attributes.items():
            _add_attribute(self.title, kept, name, value)
        desc.set_attributes(kept)
        self.context: Context = context
        self.handle: native.attn_op = native.attn_op_create(context.handle, desc)
        self.info: OperatorInfo = find_operator(desc.domain, desc.type, desc.version)
        self.on_device: bool = context.device_type != native.ATTN_DEVICE_CPU
        self.names: Names = Names(self.title, self.info.inputs, self.info.outputs)
        self.by_name = self.names.by_name()

    # ---- names ----------------------------------------------------------------------------------

    def input_info(self, name: str) -> SlotInfo:
        """The input of that name."""
        return self.names.input(name)

    def output_info(self, name: str) -> SlotInfo:
        """The output of that name."""
        return self.names.output(name)

    def input_arguments(self, inputs: Mapping[str, Any], stream: Optional[int] = None,
                        specs: bool = True) -> Arguments:
        """The inputs as the library takes them; arrays or, with `specs`, TensorSpecs."""
        arguments = Arguments(self.title)
        add = arguments.add_spec if specs else arguments.add
        for name, value in self.names.mapping("inputs", inputs).items():
            info = self.input_info(name)
            if value is not None:
                add(info, value, stream)
        return arguments

    def output_arguments(self, outputs: Union[Mapping[str, Any], Sequence[str]],
                         stream: Optional[int] = None, specs: bool = True) -> Arguments:
        """The outputs as the library takes them; names alone where their shape follows."""
        arguments = Arguments(self.title)
        add = arguments.add_spec if specs else arguments.add
        for name, value in self._wanted(outputs).items():
            info = self.output_info(name)
            if value is None:
                arguments.native.add_name(info.slot)
            else:
                add(info, value, stream)
        return arguments

    def _wanted(self, outputs: Any) -> Mapping[str, Any]:
        """Outputs by name; names alone have no value."""
        if isinstance(outputs, Mapping):
            return outputs
        if isinstance(outputs, str) or not isinstance(outputs, collections.abc.Iterable):
            raise InvalidArgument(f"{self.title}: outputs: expected names, or a mapping of names "
                                  f"to tensors; got {shown(outputs)}")
        return dict.fromkeys(outputs)

    def stream_of(self, stream: Any, tensors: Mapping[str, Any]) -> Optional[int]:
        """The handle of a stream; for None the current one of the library that the first CUDA
        tensor comes from, else the null stream's."""
        if stream is None and self.on_device:
            current = current_of(tensors.values())
            return current() if current is not None else None
        return handle_of(stream, self.title)

    def _add_aliases(self, outs: Arguments, aliases: Optional[Mapping[str, str]]) -> None:
        for output, source in (aliases or {}).items():
            outs.native.add_alias(self.input_info(source).slot, self.output_info(output).slot)

    def _required_outputs(self) -> list[str]:
        return [info.name for info in self.info.outputs if not info.optional]

    # ---- questions ------------------------------------------------------------------------------

    def query(self, *, outputs: Union[Mapping[str, Any], Sequence[str], None] = None,
              aliases: Optional[Mapping[str, str]] = None, engine: Optional[str] = None,
              **inputs: Any) -> Support:
        """Would the op run with this? No data is touched.

        inputs: (type, shape) pairs, TensorSpecs or arrays. outputs: names, or a mapping to the
        same; without it those that are not optional, and those of aliases. aliases: {output:
        input}.
        """
        if outputs is None:
            outputs = list(dict.fromkeys([*self._required_outputs(), *(aliases or {})]))
        ins, outs = self.input_arguments(inputs), self.output_arguments(outputs)
        self._add_aliases(outs, aliases)
        desc = native.attn_query_desc()
        desc.set_arguments(ins.native, outs.native)
        if engine is not None:
            desc.engine = text(f"{self.title}: engine", engine)
        support = native.attn_support()
        native.attn_op_query(self.handle, desc, support)
        return Support(bool(support.supported), support.reason,
                       bool(support.capture_flags & native.ATTN_CAPTURE_SUPPORTED), support.status)

    def infer(self, output: str, /, **inputs: Any) -> TensorSpec:
        """Type and shape of an output for these inputs; -1 where a size depends on a value that is
        not there. inputs: as query's. Raises InvalidArgument where they do not fit each other."""
        return self._infer(self.input_arguments(inputs), self.output_info(output))[0]

    def _infer(self, ins: Arguments, info: SlotInfo) -> tuple[TensorSpec, bool]:
        tensor = native.attn_tensor()
        depends = native.attn_op_infer_output(self.handle, ins.native, info.slot, tensor)
        return spec_of(tensor), bool(depends)

    def _default_outputs(self, ins: Arguments) -> list[str]:
        """What the op can give for these inputs, extensions left out."""
        names = []
        for info in self.info.outputs:
            if info.slot >= native.ATTN_SLOT_EXTENSION:
                continue
            try:
                self._infer(ins, info)
            except (InvalidArgument, Unsupported):
                if not info.optional:
                    raise
                continue
            names.append(info.name)
        return names

    # ---- work -----------------------------------------------------------------------------------

    def prepare(self, inputs: Mapping[str, Any],
                outputs: Union[Mapping[str, Any], Sequence[str], None] = None, *,
                aliases: Optional[Mapping[str, str]] = None, engine: Optional[str] = None,
                batch_invariant: bool = False, allow_tf32: bool = False,
                check_on_host: bool = False, max_batch: int = 0, max_query_length: int = 0,
                max_total_length: int = 0) -> Plan:
        """Plans for tensors or specs; equal shape classes share one plan.

        outputs: a mapping of tensors or specs, or names whose shapes follow. max_...: the range of
        sizes that the plan serves, 0 for what the tensors have. batch_invariant: a sequence's
        result does not depend on its batch.

        Shapes of specs may have None or -1 for any size. Raises InvalidArgument for what the
        operator does not take, Unsupported where no engine runs it, CompileFailed where a kernel
        cannot be compiled.
        """
        ins = self.input_arguments(inputs)
        outs = self.output_arguments(self._default_outputs(ins) if outputs is None else outputs)
        self._add_aliases(outs, aliases)
        return self._prepare(
            ins, outs, engine=engine, batch_invariant=batch_invariant, allow_tf32=allow_tf32,
            check_on_host=check_on_host, max_batch=max_batch, max_query_length=max_query_length,
            max_total_length=max_total_length)

    def _prepare(self, ins: Arguments, outs: Arguments, **options: Any) -> Plan:
        desc = native.attn_prepare_desc()
        desc.set_arguments(ins.native, outs.native)
        fill_prepare_desc(desc, of=self.title, **options)
        return Plan(self, native.attn_op_prepare(self.handle, desc))

    def bind(self, session: Optional["Session"] = None,
             inputs: Optional[Mapping[str, Any]] = None,
             outputs: Optional[Mapping[str, Any]] = None) -> Binding:
        """Ties the caller's memory to a session (a new one without).

        inputs, outputs: tensors by the standard's names; an output may be the very tensor of an
        input, for work in place. Shapes are those of Op.info, which prepare checks.
        """
        if session is None:
            session = self.context.session()
        session_handle(session, self.title)
        return Binding(self, session, {} if inputs is None else inputs,
                       {} if outputs is None else outputs)

    def __call__(self, *, outputs: Optional[Sequence[str]] = None,
                 out: Optional[Mapping[str, Any]] = None, session: Optional["Session"] = None,
                 stream: Any = None, engine: Optional[str] = None, **inputs: Any) -> Any:
        """Runs the op and gives a named tuple of outputs in the family of the first input; numpy's
        (on a device attn_c.Tensor) where that family's module has no from_dlpack.

        outputs: the names wanted; without it all that the op can give. out: memory of the caller
        for some of them, an input's own for work in place. stream: as Binding.execute's. Prepares
        by itself. session: without it one of the context's pool, of the same stream; a fault on a
        device is then raised as Fault by a later call in the stream, once.

        Shapes are the standard's: those of outputs that are made here follow from the inputs'.
        Raises InvalidArgument for a shape, type, stride or length that the operator does not take,
        Unsupported where no engine runs it, Busy where the session is in use, OutOfMemory,
        CompileFailed and DeviceFailed from the device.
        """
        stream = self.stream_of(stream, inputs)
        ins = self.input_arguments(inputs, stream, specs=False)
        given = {} if out is None else dict(self.names.mapping("out", out))
        if outputs is None:
            names = self._default_outputs(ins)
            names += [name for name in given if name not in names]
        else:
            names = list(dict.fromkeys([*self._wanted(outputs), *given]))
        first = next((inputs[info.name] for info in self.info.inputs
                      if inputs.get(info.name) is not None), None)
        family = Family(first, self.context)
        results = {}
        for name in names:
            results[name] = given[name] if name in given else self._make(ins, name, family)
        outs = self.output_arguments(results, stream, specs=False)
        plan = self._prepare(ins, outs, engine=engine)
        plan.run(ins, outs, session, stream)
        family.wait(stream)
        values = [value if name in given else family.finish(value)
                  for name, value in results.items()]
        return _results_type(self.info.type, tuple(names))(*values)

    def _make(self, ins: Arguments, name: str, family: Family) -> Any:
        spec, depends = self._infer(ins, self.output_info(name))
        if depends:
            raise InvalidArgument(f"{self.title}: {name}: its shape {tuple(spec.shape)} depends "
                                  f"on a value on the device; give its memory with out=")
        return family.empty(spec, f"{self.title}: {name}")
