"""A backend for onnx.backend.test: models of one node, run by an operator of this library.

    from onnx.backend.test import BackendTest
    import attn_c.onnx_backend

    backend = attn_c.onnx_backend.for_engine("cpu")  # or with the name of an engine to force
    globals().update(BackendTest(backend, __name__).include("test_rotary_embedding").test_cases)

Needs the package onnx. Inputs and outputs lie in memory of the device; an output holds 0xFF bytes
before the node runs. What engine ran is taken from the plan's own description, and held against the
one that was forced.
"""

from typing import Optional

import numpy as np
import onnx
import onnx.backend.base

from . import native
from ._context import Context
from ._dtypes import code_of, numpy_type
from ._introspection import devices, operators
from ._tensors import Arguments
from .errors import DeviceFailed, Internal, Unsupported

_KINDS = {"CPU": native.ATTN_DEVICE_CPU, "CUDA": native.ATTN_DEVICE_CUDA}


class OtherStage(Unsupported):
    """The forced engine serves other operators than the node's."""


def operator_of(node: onnx.NodeProto, opset: int) -> Optional[str]:
    """None where the library has the node's operator in that version, else why not."""
    domain = node.domain or "ai.onnx"
    known = [info for info in operators()
             if info.type == node.op_type and (info.domain or "ai.onnx") == domain]
    if not known:
        return f"the library has no operator {domain}::{node.op_type}"
    if any(info.version_first <= opset <= info.version_last for info in known):
        return None
    versions = ", ".join(f"{info.version_first} to {info.version_last}" for info in known)
    return f"version {opset} of {domain}::{node.op_type} is not known; known: {versions}"


class _Memory:
    """Memory of the context's device while a node runs. Copies are in the order of the null
    stream, as is the node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._taken: list[int] = []

    def __enter__(self) -> "_Memory":
        return self

    def __exit__(self, *error) -> None:
        for address in self._taken:
            native.attn_host_memory_free(self._context.handle, native.ATTN_MEMORY_DEVICE, address)
        self._taken.clear()

    def take(self, bytes_: int) -> int:
        address = native.attn_host_memory_alloc(
            self._context.handle, native.ATTN_MEMORY_DEVICE, max(bytes_, 1))
        self._taken.append(address)
        return address

    def copy(self, target: int, source: int, bytes_: int) -> None:
        if bytes_ > 0:
            native.attn_host_memory_copy(self._context.handle, target, source, bytes_, None)

    def wait(self) -> None:
        native.attn_host_stream_synchronize(self._context.handle, None)


def _strides(array: np.ndarray) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


class NodeRun(onnx.backend.base.BackendRep):
    """A model of one node, ready to run. `engines`: what ran it last, by stage."""

    def __init__(self, context: Context, model: onnx.ModelProto, engine: Optional[str]) -> None:
        graph = model.graph
        if len(graph.node) != 1:
            raise Unsupported(f"the model {graph.name} has {len(graph.node)} nodes; expected one")
        self._node = graph.node[0]
        self._context = context
        self._engine = engine
        self._fixed = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
        self._fed = [one.name for one in graph.input if one.name not in self._fixed]
        self._results = [one.name for one in graph.output]
        self.engines: dict[str, str] = {}
        domain = self._node.domain or "ai.onnx"
        opsets = {one.domain or "ai.onnx": one.version for one in model.opset_import}
        reason = operator_of(self._node, opsets.get(domain, 1))
        if reason is not None:
            raise Unsupported(reason)
        attributes = {one.name: onnx.helper.get_attribute_value(one)
                      for one in self._node.attribute}
        self._op = context.op(domain, self._node.op_type, opsets.get(domain, 1),
                              self._node.name or None, **attributes)
        info = self._op.info
        self._inputs = [(slot, name) for slot, name in zip(info.inputs, self._node.input) if name]
        self._outputs = [(slot, name) for slot, name in zip(info.outputs, self._node.output)
                         if name]

    def _add(self, arguments: Arguments, slot, array: np.ndarray, memory: _Memory, fill) -> int:
        """Adds an array's copy on the device; `fill` copies into it. Returns its address."""
        host = (self._context.info.device_type == native.ATTN_DEVICE_CPU
                or not slot.memory & native.ATTN_MEMORY_DEVICE)
        place = native.ATTN_DEVICE_CPU if host else native.ATTN_DEVICE_CUDA
        address = array.ctypes.data if host else memory.take(array.nbytes)
        if not host and fill:
            memory.copy(address, array.ctypes.data, array.nbytes)
        code, bits = code_of(array.dtype)
        device = 0 if host else self._context.info.device_id
        arguments.native.add_memory(slot.slot, 0, place, device, code, bits, array.shape,
                                    _strides(array), address)
        arguments.kept.append((array, None))
        return 0 if host else address

    def run(self, inputs, **kwargs):
        """The node's outputs for these numpy arrays, as a tuple in the order of the graph's."""
        values = {**self._fixed, **dict(zip(self._fed, inputs))}
        with _Memory(self._context) as memory:
            return self._run(values, memory)

    def _run(self, values, memory: _Memory):
        ins, outs = Arguments(), Arguments()
        for slot, name in self._inputs:
            self._add(ins, slot, np.ascontiguousarray(values[name]), memory, True)
        results, places = {}, {}
        for slot, name in self._outputs:
            spec, depends = self._op._infer(ins, slot)
            if depends:
                raise Unsupported(f"{slot.name}: its shape depends on a value on the device")
            array = np.empty(tuple(spec.shape), numpy_type(spec.dtype))
            array.reshape(-1).view(np.uint8)[:] = 0xFF
            places[name] = self._add(outs, slot, array, memory, True)
            results[name] = array
        plan = self._op._prepare(ins, outs, engine=self._engine)
        self.engines = self._engines_of(plan.describe())
        session = self._context.session()
        plan.run(ins, outs, session)
        memory.wait()
        faults = session.poll_faults()
        if faults:
            raise DeviceFailed(f"the node faulted: {faults.text}")
        for name, address in places.items():
            if address:
                memory.copy(results[name].ctypes.data, address, results[name].nbytes)
        memory.wait()
        return tuple(results[name] for name in self._results)

    def _engines_of(self, description: dict) -> dict[str, str]:
        """The engine of each stage; the forced one is among them."""
        stages = description["stages"]
        chosen = {stage["stage"]: stage["engine"] for stage in stages}
        if self._engine is None or self._engine in chosen.values():
            return chosen
        considered = {verdict["engine"] for stage in stages for verdict in stage["considered"]}
        if self._engine not in considered:
            raise OtherStage(f"{self._engine} is no engine of {self._node.op_type}")
        raise Internal(f"{self._engine} is forced, but the plan says {chosen}")


class OnnxBackend(onnx.backend.base.Backend):
    """What for_engine derives from. `last`: the NodeRun that was made last."""

    context_name = "cpu"
    engine: Optional[str] = None
    last: Optional[NodeRun] = None
    _contexts: dict[str, Context] = {}

    @classmethod
    def context(cls) -> Context:
        """The context of the backend's device, made at the first use."""
        if cls.context_name not in OnnxBackend._contexts:
            OnnxBackend._contexts[cls.context_name] = Context(cls.context_name)
        return OnnxBackend._contexts[cls.context_name]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether tests for "CPU" or "CUDA" are of this backend's device."""
        kind = device.split(":")[0]
        wanted = "CUDA" if cls.context_name.startswith("cuda") else "CPU"
        return kind == wanted and any(
            one.device_type == _KINDS[wanted] and one.available for one in devices())

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        """A NodeRun of the model. Raises Unsupported for operators that there are not."""
        cls.last = NodeRun(cls.context(), model, cls.engine)
        return cls.last

    @classmethod
    def run_model(cls, model, inputs, device="CPU", **kwargs):
        """The outputs of a model of one node."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs) -> bool:
        """Whether the model is one node of an operator that there is."""
        if len(model.graph.node) != 1:
            return False
        node = model.graph.node[0]
        opsets = {one.domain or "ai.onnx": one.version for one in model.opset_import}
        return operator_of(node, opsets.get(node.domain or "ai.onnx", 1)) is None


def for_engine(device: str = "cpu", engine: Optional[str] = None) -> type[OnnxBackend]:
    """A backend class for "cpu", "cuda" or "cuda:N" that forces an engine; None lets the library
    choose."""
    return type("AttnBackend", (OnnxBackend,), {"context_name": device, "engine": engine})
