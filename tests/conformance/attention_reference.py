"""Attention in float64 with numpy, written from the operator's contract.

attention(attributes, inputs) takes what a node has, by the standard's names, and gives Y (in the
query's layout), the score output of the node's mode, and the log-sum-exp, all in float64.
"""

import numpy as np


def _by_heads(array, heads):
    array = array.astype(np.float64)
    if array.ndim == 4:
        return array
    batch, rows, width = array.shape
    return array.reshape(batch, rows, heads, width // heads).transpose(0, 2, 1, 3)


def _mask(mask, columns):
    """(bias, shown) that broadcast to (B, Hq, S, T): a short mask hides the rest."""
    if mask is None:
        return 0.0, True
    if mask.ndim and mask.shape[-1] < columns:
        fill = False if mask.dtype == bool else -np.inf
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, columns - mask.shape[-1])]
        mask = np.pad(mask, missing, constant_values=fill)
    mask = mask[..., :columns] if mask.ndim else mask
    if mask.dtype == bool:
        return 0.0, mask
    mask = mask.astype(np.float64)
    return np.where(np.isneginf(mask), 0, mask), ~np.isneginf(mask)


def attention(attributes, inputs):
    kv_heads = attributes.get("kv_num_heads")
    query = _by_heads(inputs["Q"], attributes.get("q_num_heads"))
    key, value = (_by_heads(inputs[name], kv_heads) for name in ("K", "V"))
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[2]
        key = np.concatenate([inputs["past_key"].astype(np.float64), key], 2)
        value = np.concatenate([inputs["past_value"].astype(np.float64), value], 2)
    group = query.shape[1] // key.shape[1]
    batch, _, rows, size = query.shape
    total = key.shape[2]
    lengths = np.full(batch, total)
    start = np.full(batch, past)
    if "nonpad_kv_seqlen" in inputs:
        lengths = inputs["nonpad_kv_seqlen"]
        start = lengths - rows

    scale = attributes.get("scale", 1 / np.sqrt(size))
    raw = scale * np.einsum("bhid,bhjd->bhij", query, np.repeat(key, group, 1))
    cap = attributes.get("softcap", 0)
    capped = cap * np.tanh(raw / cap) if cap else raw
    bias, shown = _mask(inputs.get("attn_mask"), total)

    position = (start[:, None] + np.arange(rows))[:, None, :, None]
    keys = np.arange(total)
    inside = keys < lengths[:, None, None, None]
    visible = inside & shown
    if attributes.get("is_causal"):
        visible = visible & (keys <= position)
    if attributes.get("left_window_size", -1) >= 0:
        visible = visible & (keys >= position - attributes["left_window_size"])
    if attributes.get("right_window_size", -1) >= 0:
        visible = visible & (keys <= position + attributes["right_window_size"])
    visible = np.broadcast_to(visible, raw.shape)

    masked = np.where(visible, capped + bias, -np.inf)
    top = masked.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(masked - np.where(np.isneginf(top), 0, top))
    total_weight = weights.sum(-1, keepdims=True)
    empty = ~visible.any(-1, keepdims=True)
    weights = np.where(empty, 0, weights / np.where(empty, 1, total_weight))
    with np.errstate(divide="ignore"):
        log_sum_exp = np.where(empty, -np.inf, top + np.log(np.where(empty, 1, total_weight)))
    output = np.einsum("bhij,bhjd->bhid", weights, np.repeat(value, group, 1))
    if inputs["Q"].ndim == 3:
        output = output.transpose(0, 2, 1, 3).reshape(batch, rows, -1)
    scores = [np.where(inside, raw, 0), np.where(inside, capped, 0), masked,
              weights][attributes.get("qk_matmul_output_mode", 0)]
    return {"Y": output, "qk_matmul_output": scores, "log_sum_exp": log_sum_exp[..., 0]}
