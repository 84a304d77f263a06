"""The arrays of a GroupQueryAttention benchmark case, shared by all that are measured."""

import numpy as np

import memory


def attributes(case):
    """The node's attributes."""
    return {"num_heads": case.num_heads, "kv_num_heads": case.kv_num_heads, "do_rotary": 1}


def argument_sets(case, seed=1):
    """A list of (inputs, outputs): arrays by the standard's names, one pair a turn.

    Decode shares its caches between inputs and outputs, and its turns have different caches.
    """
    rng = np.random.default_rng(seed)
    dtype = memory.numpy_type(case.type)
    new = case.tokens if case.phase == "prefill" else 1
    batch, kv_heads, size = case.batch, case.kv_num_heads, case.head_size
    angle = np.outer(np.arange(case.tokens), 1e4 ** (-np.arange(size // 2) / (size / 2)))
    inputs = {
        "query": memory.normal(rng, (batch, new, case.num_heads * size), dtype),
        "key": memory.normal(rng, (batch, new, kv_heads * size), dtype),
        "value": memory.normal(rng, (batch, new, kv_heads * size), dtype),
        "seqlens_k": np.full(batch, case.tokens - 1, np.int32),
        "total_sequence_length": np.array(case.tokens, np.int32),
        "cos_cache": np.cos(angle).astype(dtype), "sin_cache": np.sin(angle).astype(dtype)}
    output = np.zeros((batch, new, case.num_heads * size), dtype)
    cache = (batch, kv_heads, case.tokens, size)
    if case.phase == "prefill":
        return [(inputs, {"output": output, "present_key": np.zeros(cache, dtype),
                          "present_value": np.zeros(cache, dtype)})]
    sets = []
    for _ in range(memory.turns_of(case.cache_bytes)):
        caches = {name: memory.normal(rng, cache, dtype) for name in ("key", "value")}
        sets.append(({**inputs, **{f"past_{k}": v for k, v in caches.items()}},
                     {"output": output, **{f"present_{k}": v for k, v in caches.items()}}))
    return sets
