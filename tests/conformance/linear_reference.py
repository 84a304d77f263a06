"""LinearAttention in float64 with numpy, written from the operator's contract."""

import numpy as np


def recurred(attributes, inputs):
    """Output and present state; inputs by the operator's names, gates of the rule alone."""
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    query_heads, heads = attributes["q_num_heads"], attributes["kv_num_heads"]
    batch, tokens, width = wide["query"].shape
    dk = width // query_heads
    query = wide["query"].reshape(batch, tokens, query_heads, dk)
    key = wide["key"].reshape(batch, tokens, -1, dk)
    value = wide["value"].reshape(batch, tokens, heads, -1)
    key = np.repeat(key, heads // key.shape[2], axis=2)
    outputs = max(query_heads, heads)
    query = np.repeat(query, outputs // query_heads, axis=2)
    state = wide.get("past_state", np.zeros((batch, heads, dk, value.shape[3]))).copy()
    scale = attributes.get("scale", 0) or 1 / np.sqrt(dk)
    out = np.zeros((batch, tokens, outputs, value.shape[3]))
    for t in range(tokens):
        if "decay" in wide:
            state *= np.exp(wide["decay"][:, t].reshape(batch, heads, -1, 1))
        change = value[:, t]
        if "beta" in wide:
            held = np.einsum("bhkv,bhk->bhv", state, key[:, t])
            change = wide["beta"][:, t].reshape(batch, -1, 1) * (change - held)
        state += key[:, t, :, :, None] * change[:, :, None, :]
        seen = np.repeat(state, outputs // heads, axis=1)
        out[:, t] = scale * np.einsum("bhkv,bhk->bhv", seen, query[:, t])
    return out.reshape(batch, tokens, -1), state


def error(result, want):
    """The norm of the difference over the norm of what is wanted."""
    return np.linalg.norm(np.asarray(result).astype(np.float64) - want) / np.linalg.norm(want)
