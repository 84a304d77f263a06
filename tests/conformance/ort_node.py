"""ONNX Runtime's CPU operators one at a time: one-node models, runs, runs on given memory."""

import functools

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

# What models of each domain import beside the operator's own version.
_STANDARD_OPSET = 21


def names_of(order, used):
    """A node's argument list: "" where an optional argument is absent, nothing after the last."""
    last = max(i for i, name in enumerate(order) if name in used)
    return [name if name in used else "" for name in order[:last + 1]]


def make_model(operator, attributes, inputs, outputs):
    """Bytes of a model that holds one node.

    operator: (domain, version, type, names of all inputs, names of all outputs), in slot order.
    inputs, outputs: {name: (type's name, shape or None where the runtime shall infer it)}.
    """
    domain, version, kind, input_order, output_order = operator

    def infos(order, used):
        return [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(used[name][0])), used[name][1])
            for name in order if name in used]

    node = helper.make_node(kind, names_of(input_order, inputs), names_of(output_order, outputs),
                            domain=domain, **attributes)
    graph = helper.make_graph([node], kind, infos(input_order, inputs),
                              infos(output_order, outputs))
    opsets = {"": _STANDARD_OPSET, domain: version}
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid(name, number) for name, number in opsets.items()])
    return model.SerializeToString()


def make_session(model, thread_count=1):
    """A session of the CPU provider with `thread_count` threads within an operator."""
    options = ort.SessionOptions()
    # Between runs its threads would spin on the processors of whoever is measured next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.intra_op_num_threads = thread_count
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # refusals are answers here, not news
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def signature_of(arrays):
    """{name: (type's name, shape)} of arrays."""
    return {name: (array.dtype.name, array.shape) for name, array in arrays.items()}


@functools.lru_cache(maxsize=256)
def _cached_session(operator, attributes, inputs, outputs):
    return make_session(make_model(operator, dict(attributes), dict(inputs), dict(outputs)))


def run(operator, attributes, feeds, outputs):
    """Outputs by name. feeds: arrays by name; outputs: {name: type's name}."""
    session = _cached_session(
        operator, tuple(sorted(attributes.items())), tuple(signature_of(feeds).items()),
        tuple((name, (kind, None)) for name, kind in outputs.items()))
    return dict(zip(outputs, session.run(list(outputs), feeds)))


def bind(session, inputs, outputs):
    """An io_binding on these arrays' own memory, which the caller keeps; shared where equal."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return binding


def version():
    """The versions that the results belong to."""
    return {"onnxruntime": ort.__version__, "onnx": onnx.__version__, "numpy": np.__version__}
