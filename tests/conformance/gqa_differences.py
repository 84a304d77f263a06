"""Where ONNX Runtime 1.32's CPU GroupQueryAttention and this library differ, and why.

Every entry makes a node and says what each side does with it. `reason` cites what decides: the
operator's contract as this project documents it, or the float64 reference, which is computed along.
"""

import dataclasses
from typing import Callable, Optional

import numpy as np

HEADS, KV_HEADS, SIZE = 4, 2, 16


@dataclasses.dataclass(frozen=True)
class Difference:
    """`peer`: what ONNX Runtime does: "refuses", "differs" from the reference, "agrees" with it, or
    "runs" (where there is no reference). `ours`: "agrees", or "refuses" with `message`."""

    name: str
    reason: str
    make: Callable[[], tuple[dict, dict]]  # (attributes, inputs)
    peer: str
    ours: str
    message: str = ""
    type: str = "float32"
    capacity: Optional[int] = None


def node(attributes=None, type_name="float32", batch=2, tokens=4, totals=None, bound=None,
         past=0, width=0, size=SIZE, **inputs):
    """Attributes and inputs of an ordinary node; `past`: rows of the past caches."""
    rng = np.random.default_rng(7)
    dtype = np.dtype(type_name)

    def normal(*shape):
        return rng.standard_normal(shape).astype(dtype)

    totals = [tokens] * batch if totals is None else totals
    made = {"query": normal(batch, tokens, HEADS * size),
            "key": normal(batch, tokens, KV_HEADS * size),
            "value": normal(batch, tokens, KV_HEADS * size)}
    if past:
        made["past_key"] = normal(batch, KV_HEADS, past, size)
        made["past_value"] = normal(batch, KV_HEADS, past, size)
    made["seqlens_k"] = np.array(totals, np.int32) - 1
    made["total_sequence_length"] = np.array(max(totals) if bound is None else bound, np.int32)
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **(attributes or {})}
    if width:
        attributes["do_rotary"] = 1
        angle = np.outer(np.arange(32), 1e2 ** (-np.arange(width // 2) / (width // 2)))
        made["cos_cache"], made["sin_cache"] = np.cos(angle).astype(dtype), \
            np.sin(angle).astype(dtype)
    made.update({name: value(normal) if callable(value) else value
                 for name, value in inputs.items()})
    return attributes, made


def _bias(value, type_name):
    """A bias whose first query row is `value` everywhere, and zero elsewhere."""
    cells = np.zeros((1, 1, 4, 4), type_name)
    cells[:, :, 0] = value
    return cells


DIFFERENCES = (
    Difference(
        "positions of a first prompt differ between tokens",
        "position_ids give each token its own position, in prompts too; ONNX Runtime takes the "
        "first element as an offset for all rows. The reference decides.",
        lambda: node(width=16, position_ids=np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.int64)),
        "differs", "agrees"),
    Difference(
        "a row hidden by -inf in float16",
        "A row with nothing visible is zero; ONNX Runtime gives NaN in float16 (and zero in "
        "float32). The reference decides.",
        lambda: node(type_name="float16", attention_bias=_bias(-np.inf, "float16")),
        "differs", "agrees", type="float16"),
    Difference(
        "a row of equal huge finite bias",
        "Finite masks are added as they are: in float32 the sum is the bias, so that the row is "
        "uniform over what it sees; with causality ONNX Runtime gives zero. The reference, which "
        "rounds the sum, decides.",
        lambda: node(attention_bias=_bias(np.finfo(np.float32).min, "float32")),
        "differs", "agrees"),
    Difference(
        "several new tokens, a past and more than one sequence",
        "Chunked prefill and speculative decoding of batches are ordinary here; ONNX Runtime "
        "demands a batch of 1. The reference decides.",
        lambda: node(tokens=3, totals=[7, 5], past=9), "refuses", "agrees", capacity=9),
    Difference(
        "a bias that is wider than the keys",
        "Masks as wide as the capacity can be captured once for all lengths; ONNX Runtime demands "
        "the exact width. The reference, which ignores the rest, decides.",
        lambda: node(attention_bias=lambda normal: normal(1, 1, 4, 9)), "refuses", "agrees"),
    Difference(
        "a bias that is shared by the queries",
        "The query axis of the bias broadcasts here; ONNX Runtime demands its full size. The "
        "reference decides.",
        lambda: node(attention_bias=lambda normal: normal(2, HEADS, 1, 4)),
        "refuses", "agrees"),
    Difference(
        "more new keys than queries",
        "Without rotary embedding the numbers of new keys and of queries are independent here; "
        "ONNX Runtime demands that they are equal, or no new keys. The reference decides.",
        lambda: node(tokens=1, past=9, totals=[5, 7], key=lambda normal: normal(
            2, 2, KV_HEADS * SIZE), value=lambda normal: normal(2, 2, KV_HEADS * SIZE)),
        "refuses", "agrees", capacity=9),
    Difference(
        "norms of queries and keys",
        "The CPU kernel of ONNX Runtime refuses q_norm_weight and k_norm_weight; the contract has "
        "them, and here they run. The reference decides.",
        lambda: node(attributes={"qk_norm_epsilon": 1e-3}, width=16,
                     q_norm_weight=lambda normal: normal(SIZE),
                     k_norm_weight=lambda normal: normal(SIZE)),
        "refuses", "agrees"),
    Difference(
        "a rotary width that is no multiple of 16",
        "Any even width up to the head size is legal here; ONNX Runtime demands a multiple of 8 "
        "columns in its tables. The reference decides.",
        lambda: node(width=6), "refuses", "agrees"),
    Difference(
        "a head size that is no multiple of 8",
        "Every head size is legal here; ONNX Runtime demands a multiple of 8. The reference "
        "decides.",
        lambda: node(size=13), "refuses", "agrees"),
    Difference(
        "seqlens_k of rank 0",
        "A scalar is accepted where there is one sequence; ONNX Runtime refuses it. The reference "
        "decides.",
        lambda: node(batch=1, seqlens_k=np.array(3, np.int32)), "refuses", "agrees"),
    Difference(
        "lengths of shape (1, B)",
        "Accepted forms of seqlens_k are (B), (B, 1) and a scalar for one sequence; ONNX Runtime "
        "also takes (1, B).",
        lambda: node(seqlens_k=np.array([[3, 2]], np.int32)),
        "agrees", "refuses", r"seqlens_k.*\(B, 1\)"),
    Difference(
        "a bound below a length",
        "total_sequence_length is an upper bound of every length; ONNX Runtime does not check it "
        "when decoding.",
        lambda: node(tokens=1, totals=[7, 5], bound=5, past=9),
        "runs", "refuses", "total_sequence_length", capacity=9),
    Difference(
        "a window of 0",
        "A window counts the current token, so 0 sees nothing: refused at creation; ONNX Runtime "
        "writes zeros.",
        lambda: node(attributes={"local_window_size": 0}),
        "runs", "refuses", "local_window_size"),
    Difference(
        "a window below -1",
        "-1 is the one value that means no window; ONNX Runtime takes every negative one.",
        lambda: node(attributes={"local_window_size": -2}),
        "runs", "refuses", "local_window_size"),
    Difference(
        "a negative softcap",
        "Refused at creation; ONNX Runtime takes it for off.",
        lambda: node(attributes={"softcap": -1.0}), "runs", "refuses", "softcap"),
)

# Legal nowhere: both sides refuse.
REFUSED_BY_BOTH = (
    ("a negative length", lambda: node(totals=[0, 4], bound=4)),
    ("a length beyond the buffer", lambda: node(tokens=1, totals=[10, 5], bound=9, past=9)),
    ("a chunk that is longer than its sequence",
     lambda: node(batch=1, tokens=3, totals=[2], bound=7, past=9)),
    ("a key without a value", lambda: _without(node(), "value")),
    ("a past key without a past value", lambda: _without(node(past=9), "past_value")),
    ("rotary embedding of another number of keys than queries", lambda: node(
        tokens=1, past=9, totals=[5, 5], width=16, key=lambda normal: normal(2, 2, KV_HEADS * SIZE),
        value=lambda normal: normal(2, 2, KV_HEADS * SIZE))),
    ("a window without causality", lambda: node({"causal": 0, "local_window_size": 3})),
    ("heads that do not divide", lambda: node({"num_heads": 5})),
    ("scores of an unknown stage", lambda: node({"qk_output": 3})),
    ("tables without rows enough",
     lambda: node(width=16, cos_cache=np.ones((3, 8), np.float32),
                  sin_cache=np.zeros((3, 8), np.float32))),
    ("positions outside of the tables",
     lambda: node(width=16, tokens=1, totals=[5, 5], past=9,
                  position_ids=np.array([[32], [0]], np.int64))),
    ("a bias that is narrower than the keys",
     lambda: node(attention_bias=lambda normal: normal(1, 1, 4, 3))),
    ("a sink of another size", lambda: node(head_sink=lambda normal: normal(HEADS + 1))),
)


def _without(made, name):
    attributes, inputs = made
    return attributes, {key: value for key, value in inputs.items() if key != name}
