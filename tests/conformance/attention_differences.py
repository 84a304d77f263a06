"""Where ONNX Runtime 1.32's CPU Attention and this library differ, and why.

Every entry makes a node; this library must give what float64 gives. `reason` says what decides: the
standard's text, or the float64 result that is computed along.
"""

import dataclasses
from typing import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Difference:
    """`peer`: what ONNX Runtime does with the node, "refuses" or "differs" from float64."""

    name: str
    reason: str
    make: Callable[[], tuple[dict, dict, list]]  # (attributes, inputs, outputs)
    peer: str
    version: int = 24


def node(attributes=None, outputs=("Y",), batch=2, heads=4, kv_heads=2, rows=3, keys=5, past=None,
         **inputs):
    """An ordinary 4-D node of float32; inputs are added as they are."""
    rng = np.random.default_rng(3)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    made = {"Q": normal(batch, heads, rows, 8), "K": normal(batch, kv_heads, keys, 8),
            "V": normal(batch, kv_heads, keys, 8)}
    if past is not None:
        made["past_key"] = normal(batch, kv_heads, past, 8)
        made["past_value"] = normal(batch, kv_heads, past, 8)
    made.update(inputs)
    return attributes or {}, made, list(outputs)


def _mask(*shape):
    return np.random.default_rng(4).random(shape) < 0.7


def _smallest():
    mask = np.zeros((3, 5), np.float32)
    mask[1] = np.finfo(np.float32).min
    return mask


DIFFERENCES = (
    Difference("mask_shorter_than_the_keys",
               "the standard pads a short mask with hidden keys from version 24 on",
               lambda: node(attn_mask=_mask(2, 4, 3, 4)), "refuses"),
    Difference("mask_shorter_than_the_keys_in_version_23",
               "version 23 has no padding rule; here a short mask hides the rest in every version",
               lambda: node(attn_mask=_mask(3, 4)), "refuses", 23),
    Difference("mask_of_rank_1", "the standard broadcasts a mask of one dimension over queries",
               lambda: node(attn_mask=_mask(5)), "refuses"),
    Difference("mask_with_one_row", "the standard broadcasts a mask over queries",
               lambda: node(attn_mask=_mask(2, 4, 1, 5)), "refuses"),
    Difference("mask_wider_than_the_keys",
               "what a mask holds beyond the keys is ignored, so that it may be as wide as a cache",
               lambda: node(attn_mask=_mask(2, 4, 3, 9)), "refuses"),
    Difference("mask_of_rank_0", "a scalar holds for all keys: what broadcasting makes of it",
               lambda: node(attn_mask=np.array(0.5, np.float32)), "refuses"),
    Difference("no_query_rows", "nothing to compute is a success with nothing in it",
               lambda: node(rows=0), "refuses"),
    Difference("no_keys", "a row that sees no key is zero",
               lambda: node(keys=0), "refuses"),
    Difference("past_without_present", "present outputs are optional in the standard",
               lambda: node(past=4), "refuses"),
    Difference("scale_of_zero", "a scale is used as it is: 0 weighs all keys alike, in float64 too",
               lambda: node({"scale": 0.0}), "refuses"),
    Difference("row_of_the_smallest_number",
               "a finite mask is added as it is: a row of equal values is uniform in float64",
               lambda: node(attn_mask=_smallest()), "differs"),
    Difference("hidden_cells_after_the_masks",
               "mode 2 shows the scores after the masks, -infinity where a key is hidden",
               lambda: node({"qk_matmul_output_mode": 2, "is_causal": 1},
                            ("Y", "qk_matmul_output")), "differs"),
)
