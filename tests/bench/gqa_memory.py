"""The arrays of a GroupQueryAttention benchmark case, shared by all that are measured."""

import itertools

import numpy as np

# Decode reads its cache from memory, not from the last cache level: as many copies as make more
# than twice its size take turns.
DEFAULT_LAST_LEVEL_BYTES = 32 << 20


def numpy_type(name):
    """The numpy type of an element type's name; bfloat16 needs ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _normal(rng, shape, dtype):
    """N(0,1) of any size: four million draws, repeated."""
    count = int(np.prod(shape))
    draws = rng.standard_normal(min(count, (1 << 22) - 3), dtype=np.float32).astype(dtype)
    return np.resize(draws, shape)


def last_level_bytes():
    """Size of the largest cache of processor 0."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size") as file:
            return int(file.read().strip().rstrip("K")) << 10
    except (OSError, ValueError):
        return DEFAULT_LAST_LEVEL_BYTES


def attributes(case):
    """The node's attributes."""
    return {"num_heads": case.num_heads, "kv_num_heads": case.kv_num_heads, "do_rotary": 1}


def argument_sets(case, seed=1):
    """A list of (inputs, outputs): arrays by the standard's names, one pair a turn.

    Decode shares its caches between inputs and outputs, and its turns have different caches.
    """
    rng = np.random.default_rng(seed)
    dtype = numpy_type(case.type)
    new = case.tokens if case.phase == "prefill" else 1
    batch, kv_heads, size = case.batch, case.kv_num_heads, case.head_size
    angle = np.outer(np.arange(case.tokens), 1e4 ** (-np.arange(size // 2) / (size / 2)))
    inputs = {
        "query": _normal(rng, (batch, new, case.num_heads * size), dtype),
        "key": _normal(rng, (batch, new, kv_heads * size), dtype),
        "value": _normal(rng, (batch, new, kv_heads * size), dtype),
        "seqlens_k": np.full(batch, case.tokens - 1, np.int32),
        "total_sequence_length": np.array(case.tokens, np.int32),
        "cos_cache": np.cos(angle).astype(dtype), "sin_cache": np.sin(angle).astype(dtype)}
    output = np.zeros((batch, new, case.num_heads * size), dtype)
    cache = (batch, kv_heads, case.tokens, size)
    if case.phase == "prefill":
        return [(inputs, {"output": output, "present_key": np.zeros(cache, dtype),
                          "present_value": np.zeros(cache, dtype)})]
    turns = 1 + 2 * last_level_bytes() // case.cache_bytes
    sets = []
    for _ in range(turns):
        caches = {name: _normal(rng, cache, dtype) for name in ("key", "value")}
        sets.append(({**inputs, **{f"past_{k}": v for k, v in caches.items()}},
                     {"output": output, **{f"present_{k}": v for k, v in caches.items()}}))
    return sets


def taking_turns(calls, start=0.0):
    """A function that makes the next of `calls` each time, around and around.

    `start` is where it begins, as a part of the whole: two that share memory begin far apart, so
    that neither finds in the processor's caches what the other has just read.
    """
    first = int(len(calls) * start)
    following = itertools.cycle([*calls[first:], *calls[:first]]).__next__
    return lambda: following()()
