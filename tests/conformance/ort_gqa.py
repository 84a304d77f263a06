"""ONNX Runtime's GroupQueryAttention on the CPU: one-node models, runs, runs on given memory."""

import functools

from onnx import TensorProto, helper
from ort_node import bind, make_session, names_of

INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
    "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale",
    "q_norm_weight", "k_norm_weight")
OUTPUTS = ("output", "present_key", "present_value", "output_qk")

# What the standard says of the shapes; only the ranks matter to a model with open sizes.
_RANKS = {
    "query": 3, "key": 3, "value": 3, "past_key": 4, "past_value": 4, "seqlens_k": 1,
    "total_sequence_length": 0, "cos_cache": 2, "sin_cache": 2, "position_ids": 2,
    "attention_bias": 4, "head_sink": 1, "k_scale": 1, "v_scale": 1, "q_norm_weight": 1,
    "k_norm_weight": 1, "output": 3, "present_key": 4, "present_value": 4,
    "output_qk": 4}
_FIXED_TYPES = {
    "seqlens_k": TensorProto.INT32, "total_sequence_length": TensorProto.INT32,
    "position_ids": TensorProto.INT64, "k_scale": TensorProto.FLOAT, "v_scale": TensorProto.FLOAT}
_FLOAT_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def _value_info(name, element_type, rank=None):
    element = _FIXED_TYPES.get(name, element_type)
    rank = _RANKS[name] if rank is None else rank
    return helper.make_tensor_value_info(name, element, [f"{name}_{i}" for i in range(rank)])


def make_model(type_name, attributes, inputs, outputs=OUTPUTS[:3], ranks=None):
    """Bytes of a model that holds one GroupQueryAttention node with these inputs and outputs."""
    element = _FLOAT_TYPES[type_name]
    ranks = ranks or {}
    node = helper.make_node(
        "GroupQueryAttention", names_of(INPUTS, inputs), names_of(OUTPUTS, outputs),
        domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node], "group_query_attention",
        [_value_info(name, element, ranks.get(name)) for name in INPUTS if name in inputs],
        [_value_info(name, element) for name in OUTPUTS if name in outputs])
    model = helper.make_model(
        graph, ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    return model.SerializeToString()


@functools.lru_cache(maxsize=256)
def _cached_session(type_name, attributes, inputs, outputs, ranks):
    model = make_model(type_name, dict(attributes), inputs, outputs, dict(ranks))
    return make_session(model)


def run(type_name, attributes, feeds, outputs=OUTPUTS[:3]):
    """Outputs by name. `feeds`: arrays by the standard's names."""
    ranks = tuple(
        (name, array.ndim) for name, array in feeds.items() if array.ndim != _RANKS[name])
    session = _cached_session(
        type_name, tuple(sorted(attributes.items())), tuple(n for n in INPUTS if n in feeds),
        tuple(outputs), ranks)
    wanted = [name for name in OUTPUTS if name in outputs]
    return dict(zip(wanted, session.run(wanted, feeds)))


def run_bound(type_name, attributes, inputs, outputs):
    """As run, on memory: results go to the arrays of `outputs`, which may be inputs too."""
    session = _cached_session(
        type_name, tuple(sorted(attributes.items())), tuple(n for n in INPUTS if n in inputs),
        tuple(n for n in OUTPUTS if n in outputs),
        tuple((n, a.ndim) for n, a in inputs.items() if a.ndim != _RANKS[n]))
    session.run_with_iobinding(bind(session, inputs, outputs))
