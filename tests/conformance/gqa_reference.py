"""GroupQueryAttention in float64 with numpy, written from the operator's contract.

Rounds where the contract stores: keys and values to the cache's type, queries after norm and
rotary embedding, outputs once. Nothing here is shared with the library.
"""

import numpy as np


def _rms_norm(rows, weight, epsilon):
    if weight is None:
        return rows
    mean = np.mean(rows * rows, axis=-1, keepdims=True)
    return rows / np.sqrt(mean + epsilon) * weight.astype(np.float64)


def _rotate(rows, positions, cos_cache, sin_cache, interleaved):
    """rows (heads, tokens, D) in float64; positions (tokens)."""
    cos = cos_cache.astype(np.float64)[positions]
    sin = sin_cache.astype(np.float64)[positions]
    half = cos.shape[-1]
    out = rows.copy()
    if interleaved:
        first, second = rows[..., 0:2 * half:2], rows[..., 1:2 * half:2]
        out[..., 0:2 * half:2] = first * cos - second * sin
        out[..., 1:2 * half:2] = second * cos + first * sin
    else:
        first, second = rows[..., :half], rows[..., half:2 * half]
        out[..., :half] = first * cos - second * sin
        out[..., half:2 * half] = second * cos + first * sin
    return out


def _split(inputs, attributes):
    """Query (B, Hq, S, D), new keys and values (B, Hkv, N, D), in float64."""
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    query = inputs["query"].astype(np.float64)
    batch, tokens = query.shape[:2]
    if "key" in inputs:
        key, value = (inputs[name].astype(np.float64) for name in ("key", "value"))
        size = query.shape[2] // heads
    else:
        size = query.shape[2] // (heads + 2 * kv_heads)
        query, key, value = np.split(query, [heads * size, (heads + kv_heads) * size], axis=2)

    def by_head(rows, count):
        return rows.reshape(batch, rows.shape[1], count, size).transpose(0, 2, 1, 3)

    assert tokens == query.shape[1]
    return by_head(query, heads), by_head(key, kv_heads), by_head(value, kv_heads)


def _softmax(scores, visible, extra):
    """Rows of probabilities; `extra` is a logit that only joins the denominator, or None."""
    masked = np.where(visible, scores, -np.inf)
    largest = np.max(masked, axis=-1, keepdims=True, initial=-np.inf)
    if extra is not None:
        largest = np.maximum(largest, extra)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    weights = np.where(visible, np.exp(masked - shift), 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    alone = total == 0
    if extra is not None:
        total = total + np.exp(extra - shift)
    return np.where(alone, 0.0, weights / np.where(total == 0, 1.0, total))


def group_query_attention(inputs, attributes, capacity):
    """Outputs by name. `capacity`: rows of the present caches, which are separate from the past.

    Rows of right-padded queries are computed like others: what they hold is nobody's promise.
    """
    query, new_key, new_value = _split(inputs, attributes)
    kind = inputs["query"].dtype
    batch, heads, tokens, size = query.shape
    kv_heads, added = new_key.shape[1], new_key.shape[2]
    totals = inputs["seqlens_k"].astype(np.int64).reshape(-1) + 1
    bound = int(inputs["total_sequence_length"].reshape(()))
    first = bound == tokens and added == tokens
    scale = attributes.get("scale", 0.0) or 1.0 / np.sqrt(size)
    softcap = attributes.get("softcap", 0.0)
    window = attributes.get("local_window_size", -1)
    causal = attributes.get("causal", 1)
    epsilon = attributes.get("qk_norm_epsilon", 1e-6)
    bias, sink = inputs.get("attention_bias"), inputs.get("head_sink")

    query = _rms_norm(query, inputs.get("q_norm_weight"), epsilon)
    new_key = _rms_norm(new_key, inputs.get("k_norm_weight"), epsilon)
    output = np.zeros((batch, tokens, heads * size), kind)
    present = {"key": np.zeros((batch, kv_heads, capacity, size), kind),
               "value": np.zeros((batch, kv_heads, capacity, size), kind)}
    stages = np.zeros((batch, heads, tokens, bound), np.float64)
    for b in range(batch):
        total = int(totals[b])
        past = 0 if first else total - added
        start = 0 if first else total - tokens
        rows_q, rows_k = query[b], new_key[b]
        if attributes.get("do_rotary", 0):
            explicit = inputs.get("position_ids")
            at = start + np.arange(tokens) if explicit is None else explicit[b]
            tables = inputs["cos_cache"], inputs["sin_cache"]
            interleaved = attributes.get("rotary_interleaved", 0)
            rows_q = _rotate(rows_q, at, *tables, interleaved)
            if added:
                rows_k = _rotate(rows_k, at, *tables, interleaved)
        rows_q = rows_q.astype(kind).astype(np.float64)
        for name, rows in (("key", rows_k), ("value", new_value[b])):
            if past:
                present[name][b, :, :past] = inputs[f"past_{name}"][b, :, :past]
            present[name][b, :, past:past + added] = rows.astype(kind)
        keys = present["key"][b, :, :total].astype(np.float64)
        values = present["value"][b, :, :total].astype(np.float64)

        at_key = np.arange(total)
        at_query = start + np.arange(tokens)[:, None]
        visible = np.broadcast_to(at_key <= at_query, (tokens, total)) if causal else \
            np.ones((tokens, total), bool)
        if window > 0:
            visible = visible & (at_key > at_query - window)
        for h in range(heads):
            group = h // (heads // kv_heads)
            scores = rows_q[h] @ keys[group].T * scale
            if softcap > 0:
                scores = softcap * np.tanh(scores / softcap)
            shown = visible
            if bias is not None:
                cells = bias[b if bias.shape[0] > 1 else 0, h if bias.shape[1] > 1 else 0]
                cells = np.broadcast_to(cells[:, :total].astype(np.float64), (tokens, total))
                # The sum is a float32: a huge finite cell swallows the score.
                scores = (scores + cells).astype(np.float32).astype(np.float64) \
                    if np.any(np.abs(cells) > 1e4) else scores + cells
                shown = visible & ~np.isneginf(cells)
            extra = None
            if sink is not None:
                extra = float(sink[h])
            elif attributes.get("smooth_softmax", -1) == 1:
                extra = 0.0
            weights = _softmax(scores, shown, extra)
            output[b, :, h * size:(h + 1) * size] = (weights @ values[group]).astype(kind)
            stage = scores if attributes.get("qk_output", 0) == 1 else weights
            stages[b, h, :, :total] = np.where(visible, stage, 0.0)
    return {"output": output, "present_key": present["key"], "present_value": present["value"],
            "output_qk": stages.astype(kind)}
