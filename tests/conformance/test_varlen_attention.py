"""VarlenAttention and PackedVarlenAttention: random problems under every engine against float64.

Outputs are poisoned, what lies beyond a length is NaN, and each sequence must give the bits that
Attention gives for it alone under the same engine.
"""

import os
import time

import numpy as np
import pytest
from attention_reference import attention

import attn_c

ENGINES = (None, "generic", "simd-prefill", "simd-decode")
BLOCKS, PER_BLOCK = 10, 55  # 550 problems an operator
BOUNDS = {"float32": 8e-6, "float16": 2.4e-3}  # of a row, relative to the largest element


def first_seed():
    """Half of the seeds change with the day; ATTN_C_TEST_SEED repeats them."""
    return int(os.environ.get("ATTN_C_TEST_SEED", int(time.time()) // 86400 * 1000))


@pytest.fixture(scope="session")
def contexts():
    return [attn_c.Context("cpu", thread_count=count) for count in (1, 3)]


def seeds(block):
    fixed = range(block * PER_BLOCK, block * PER_BLOCK + PER_BLOCK // 2)
    rest = range(PER_BLOCK // 2, PER_BLOCK)
    return [*fixed, *(first_seed() + block * PER_BLOCK + i for i in rest)]


def draw_common(rng):
    kv_heads = int(rng.integers(1, 4))
    heads = kv_heads * int(rng.integers(1, 4))
    size = int(rng.choice([8, 16, 64, 80, 128, int(rng.integers(1, 200))]))
    v_size = size if rng.random() < 0.6 else int(rng.integers(1, 150))
    attributes = {"num_heads": heads}
    if kv_heads != heads or rng.random() < 0.5:
        attributes["kv_num_heads"] = kv_heads
    attributes["is_causal"] = int(rng.random() < 0.5)
    if rng.random() < 0.2:
        attributes["softcap"] = float(np.float32(rng.choice([0.5, 5.0, 30.0])))
    if rng.random() < 0.3:
        attributes["scale"] = float(np.float32(rng.choice([0.0, 0.1, 0.3])))
    dtype = np.float32 if rng.random() < 0.6 else np.float16
    return heads, kv_heads, size, v_size, attributes, dtype


def settings(attributes):
    """The attributes as Attention has them."""
    kept = {name: value for name, value in attributes.items()
            if name in ("is_causal", "softcap", "scale", "left_window_size", "right_window_size")}
    return kept


def compare(got, want, dtype, text):
    got = np.asarray(got).astype(np.float64)
    assert np.array_equal(np.isfinite(got), np.isfinite(want)), f"{text}: not finite where it is"
    finite = np.isfinite(want)
    limit = BOUNDS[np.dtype(dtype).name] * max(np.abs(want[finite]).max(initial=0), 0.05)
    error = np.abs(got - want)[finite].max(initial=0)
    assert error <= limit, f"{text}: off by {error}, allowed {limit}"


def runs(contexts, type_name, attributes, inputs, shapes, text):
    """(engine, context, outputs) of every engine that takes the problem."""
    taken = 0
    for number, engine in enumerate(ENGINES):
        ctx = contexts[number % len(contexts)]
        out = {"output": np.full(shapes[0], np.nan, inputs["query"].dtype),
               "log_sum_exp": np.full(shapes[1], np.nan, np.float32)}
        try:
            ctx.op("pkg.nxrt", type_name, 1, **attributes)(
                out=out, outputs=list(out), engine=engine, **inputs)
        except attn_c.Unsupported:
            assert engine == "simd-decode", f"{text} under {engine}"
            continue
        taken += 1
        yield engine, ctx, out
    assert taken >= 3, text


def strided(rng, array):
    """The same values, sometimes with gaps between rows."""
    if rng.random() < 0.6:
        return array
    wide = np.full((*array.shape[:-1], array.shape[-1] + 3), np.nan, array.dtype)
    wide[..., :array.shape[-1]] = array
    return wide[..., :array.shape[-1]]


def varlen_problem(seed):
    rng = np.random.default_rng([seed, 1])
    heads, kv_heads, size, v_size, attributes, dtype = draw_common(rng)
    batch = int(rng.integers(1, 5))
    rows = int(rng.choice([1, 1, 2, 7, 33]))
    keys = int(rng.choice([0, 1, 9, 40, 130, 300]))
    lengths = rng.integers(0, keys + 1, batch)
    made = [rng.standard_normal((batch, count, number, channels)).astype(dtype)
            for count, number, channels in ((rows, heads, size), (keys, kv_heads, size),
                                            (keys, kv_heads, v_size))]
    for b, length in enumerate(lengths):
        made[1][b, length:] = made[2][b, length:] = np.nan
    ranks = [4 if rng.random() < 0.5 else 3 for _ in made]
    inputs = {}
    for name, array, rank in zip(("query", "key", "value"), made, ranks):
        if rank == 3:
            array = array.reshape(*array.shape[:2], array.shape[2] * array.shape[3])
        inputs[name] = strided(rng, array)
    inputs["nonpad_kv_seqlen"] = lengths
    return attributes, made, inputs, ranks[0], dtype


def by_heads(array):
    return np.ascontiguousarray(array.swapaxes(-2, -3))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_varlen(contexts, block):
    for seed in seeds(block):
        attributes, made, inputs, rank, dtype = varlen_problem(seed)
        lengths = inputs["nonpad_kv_seqlen"]
        clean = {name: np.nan_to_num(by_heads(array)) for name, array in zip("QKV", made)}
        want = attention(settings(attributes), {**clean, "nonpad_kv_seqlen": lengths})
        batch, rows, heads = made[0].shape[:3]
        output = want["Y"].swapaxes(1, 2)
        shape = output.shape if rank == 4 else (batch, rows, heads * output.shape[-1])
        text = f"seed {seed}, {attributes}, lengths {lengths}"
        for engine, ctx, out in runs(contexts, "VarlenAttention", attributes, inputs,
                                     (shape, (batch, heads, rows)), text):
            compare(out["output"].reshape(output.shape), output, dtype, f"{text}, {engine}")
            compare(out["log_sum_exp"], want["log_sum_exp"], np.float32, f"{text}, {engine}")
            same = ctx.op("", "Attention", 24, **settings(attributes))(
                outputs=["Y"], engine=engine, nonpad_kv_seqlen=lengths,
                **{name: by_heads(array) for name, array in zip("QKV", made)}).Y
            assert np.array_equal(np.asarray(same).swapaxes(1, 2),
                                  out["output"].reshape(output.shape)), f"{text}, {engine}"


def packed_problem(seed):
    rng = np.random.default_rng([seed, 2])
    heads, kv_heads, size, v_size, attributes, dtype = draw_common(rng)
    if rng.random() < 0.3:
        attributes["left_window_size"] = int(rng.choice([-1, 0, 3, 20]))
        attributes["right_window_size"] = int(rng.choice([-1, 0, 2]))
    sequences = int(rng.integers(0, 6))
    longest = int(rng.choice([1, 3, 20, 70]))
    key_longest = int(rng.choice([2, 30, 150, 400]))
    rows = rng.integers(0, longest + 1, sequences)
    shared = rng.random() < 0.2
    keys = rows if shared else rng.integers(0, key_longest + 1, sequences)
    before, behind = (int(rng.integers(0, 4)) if rng.random() < 0.3 else 0 for _ in range(2))
    ends_q = np.concatenate([[before], before + np.cumsum(rows)]).astype(np.int32)
    ends_k = ends_q if shared else np.concatenate([[0], np.cumsum(keys)]).astype(np.int32)
    counts = int(ends_q[-1]) + behind, int(ends_k[-1]) + behind
    made = [rng.standard_normal(shape).astype(dtype)
            for shape in ((counts[0], heads, size), (counts[1], kv_heads, size),
                          (counts[1], kv_heads, v_size))]
    for array in made[1:]:
        array[:ends_k[0]] = array[ends_k[-1]:] = np.nan
    inputs = {name: strided(rng, array) for name, array in zip(("query", "key", "value"), made)}
    inputs["cu_seqlens_q"] = ends_q
    if not shared:
        inputs["cu_seqlens_k"] = ends_k
    if rng.random() < 0.3:
        attributes["max_seqlen_q"] = int(rows.max(initial=1)) + int(rng.integers(0, 3))
        attributes["max_seqlen_k"] = int(keys.max(initial=1))
    return attributes, made, inputs, ends_q, ends_k, dtype


@pytest.mark.parametrize("block", range(BLOCKS))
def test_packed(contexts, block):
    for seed in seeds(block):
        attributes, made, inputs, ends_q, ends_k, dtype = packed_problem(seed)
        tokens, heads = made[0].shape[:2]
        output = np.zeros((tokens, heads, made[2].shape[2]))
        log_sum_exp = np.full((heads, tokens), -np.inf)
        parts = []
        for b in range(len(ends_q) - 1):
            query, key = slice(ends_q[b], ends_q[b + 1]), slice(ends_k[b], ends_k[b + 1])
            part = {name: by_heads(array[rows])[None]
                    for name, array, rows in zip("QKV", made, (query, key, key))}
            part["nonpad_kv_seqlen"] = np.array([ends_k[b + 1] - ends_k[b]], np.int64)
            want = attention(settings(attributes), part)
            output[query] = want["Y"][0].swapaxes(0, 1)
            log_sum_exp[:, query] = want["log_sum_exp"][0]
            parts.append((query, part))
        text = f"seed {seed}, {attributes}, {ends_q}, {ends_k}"
        for engine, ctx, out in runs(contexts, "PackedVarlenAttention", attributes, inputs,
                                     (output.shape, log_sum_exp.shape), text):
            compare(out["output"], output, dtype, f"{text}, {engine}")
            compare(out["log_sum_exp"], log_sum_exp, np.float32, f"{text}, {engine}")
            if engine is None:
                continue
            for query, part in parts:
                same = ctx.op("", "Attention", 27, **settings(attributes))(
                    outputs=["Y"], engine=engine, **part).Y
                assert np.array_equal(np.asarray(same)[0].swapaxes(0, 1), out["output"][query]), \
                    f"{text}, {engine}: other bits than alone"


# ---- refusals -----------------------------------------------------------------------------------


def refused(contexts, type_name, attributes, inputs, message):
    output = np.full((*inputs["query"].shape[:-1], inputs["value"].shape[-1]), 7, np.float32)
    with pytest.raises(attn_c.InvalidArgument, match=message):
        contexts[0].op("pkg.nxrt", type_name, 1, **attributes)(out={"output": output}, **inputs)
    assert (output == 7).all()


@pytest.mark.parametrize("length", [-1, 10, 2 ** 40])
def test_varlen_lengths(contexts, length):
    inputs = {name: np.ones((2, 9, 2, 8), np.float32) for name in ("query", "key", "value")}
    inputs["nonpad_kv_seqlen"] = np.array([9, length])
    refused(contexts, "VarlenAttention", {"num_heads": 2}, inputs,
            rf"nonpad_kv_seqlen\[1\] is {length}: a valid length lies outside \[0, L\]; L is 9")


@pytest.mark.parametrize("ends, message", [
    ([0, 5, 4], r"cu_seqlens_q\[1\] and \[2\] are 5 and 4: cumulative lengths do not ascend"),
    ([-1, 3, 4], r"cu_seqlens_q\[0\] and \[1\] are -1 and 3"),
    ([0, 5, 10], "beyond the tokens, of which there are 9"),
    ([0, 8, 9], "sequence 0 has 8 queries, more than the 6 of max_seqlen_q"),
])
def test_packed_lengths(contexts, ends, message):
    inputs = {name: np.ones((9, 2, 8), np.float32) for name in ("query", "key", "value")}
    inputs["cu_seqlens_q"] = np.array(ends, np.int32)
    refused(contexts, "PackedVarlenAttention", {"num_heads": 2, "max_seqlen_q": 6}, inputs, message)


def test_attributes(contexts):
    for type_name in ("VarlenAttention", "PackedVarlenAttention"):
        for attributes, message in (({}, "num_heads"), ({"num_heads": 0}, "expected 1 to"),
                                    ({"num_heads": 3, "kv_num_heads": 2}, "a multiple of"),
                                    ({"num_heads": 2, "scale": -1.0}, "expected 0 or more"),
                                    ({"num_heads": 2, "softcap": -1.0}, "expected 0")):
            with pytest.raises(attn_c.InvalidArgument, match=message):
                contexts[0].op("pkg.nxrt", type_name, 1, **attributes)


def test_a_plan_for_short_sequences(contexts):
    """The prepare range bounds sequences, not tokens."""
    inputs = {name: np.ones((9, 2, 8), np.float32) for name in ("query", "key", "value")}
    inputs["cu_seqlens_q"] = np.array([0, 3, 6, 9], np.int32)
    op = contexts[0].op("pkg.nxrt", "PackedVarlenAttention", 1, num_heads=2)
    plan = op.prepare(inputs=inputs, outputs=["output"], max_query_length=3, max_total_length=3)
    output = np.full((9, 2, 8), np.nan, np.float32)
    plan.execute(inputs, {"output": output})
    assert (output == 1).all()
    inputs["cu_seqlens_q"] = np.array([0, 3, 5, 9], np.int32)
    with pytest.raises(attn_c.InvalidArgument, match="sequence 2 has 4 queries, more than the 3"):
        plan.execute(inputs, {"output": output})
