"""What users of other implementations of packed and of linear attention ran into.

Each test is one public report: the input that showed the fault, and float64's answer.
"""

import numpy as np
import pytest
from attention_reference import attention
from linear_reference import error, recurred

import attn_c


def engines(ctx):
    """Those of LinearAttention that the device has, the one for many tokens first."""
    there = ctx.info.engines
    return [name for name in ("chunked", "recurrent", "recurrent-serial") if name in there]


@pytest.fixture(scope="session", params=[1, 2], ids=["one_thread", "two_threads"])
def ctx(request):
    return attn_c.Context("cpu", thread_count=request.param)


# ---- packed sequences ---------------------------------------------------------------------------


def packed(ctx, ends_q, ends_k, **attributes):
    """Output and log-sum-exp of sequences that end there, against each alone in float64."""
    rng = np.random.default_rng(1)
    query, key, value = (rng.standard_normal((ends[-1] + 2, 2, 16)).astype(np.float32)
                         for ends in (ends_q, ends_k, ends_k))
    got = {"output": np.full(query.shape, np.nan, np.float32),
           "log_sum_exp": np.full((2, len(query)), np.nan, np.float32)}
    ctx.op("pkg.nxrt", "PackedVarlenAttention", 1, num_heads=2, **attributes)(
        out=got, outputs=list(got), query=query, key=key, value=value,
        cu_seqlens_q=np.array(ends_q, np.int32), cu_seqlens_k=np.array(ends_k, np.int32))
    want = {"output": np.zeros(query.shape), "log_sum_exp": np.full((2, len(query)), -np.inf)}
    for b in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[b:b + 2]), slice(*ends_k[b:b + 2])
        part = {name: array[part].swapaxes(0, 1)[None] for name, array, part in
                (("Q", query, rows), ("K", key, keys), ("V", value, keys))}
        part["nonpad_kv_seqlen"] = np.array([part["K"].shape[2]])
        alone = attention(attributes, part)
        want["output"][rows] = alone["Y"][0].swapaxes(0, 1)
        want["log_sum_exp"][:, rows] = alone["log_sum_exp"][0]
    for name, array in got.items():
        np.testing.assert_allclose(array, want[name], rtol=2e-5, atol=2e-5, err_msg=name)
    return got


@pytest.mark.parametrize("ends_q, ends_k", [
    ([0, 0, 3, 3, 3, 8], [0, 4, 4, 4, 9, 20]), ([0, 0, 0], [0, 0, 0]), ([0, 5], [0, 0]),
    ([0, 0], [0, 6]), ([0], [0])])
@pytest.mark.parametrize("causal", [0, 1])
def test_sequences_without_tokens(ctx, ends_q, ends_k, causal):  # flash-attention#1713
    got = packed(ctx, ends_q, ends_k, is_causal=causal)
    assert (got["output"][ends_q[-1]:] == 0).all()  # tokens of no sequence


def test_packed_sequences_with_more_queries_than_keys(ctx):  # flashinfer#4452
    got = packed(ctx, [0, 8, 10], [0, 3, 9], is_causal=1)
    assert np.isneginf(got["log_sum_exp"][:, :5]).all() and (got["output"][:5] == 0).all()


@pytest.mark.parametrize("left, right", [(0, 0), (2, 1), (-1, 1), (3, -1)])
def test_windows_of_packed_sequences(ctx, left, right):  # flash-attention#2199
    packed(ctx, [0, 9, 12], [0, 3, 12], left_window_size=left, right_window_size=right)


# ---- linear attention ---------------------------------------------------------------------------


def linear(tokens, heads=(2, 2, 2), dk=16, dv=16, decay=0.1, dtype=np.float32):
    """(attributes, inputs) of the gated delta rule; heads of query, key and value."""
    rng = np.random.default_rng(tokens)
    key = rng.standard_normal((1, tokens, heads[1], dk))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    inputs = {"query": rng.standard_normal((1, tokens, heads[0] * dk)),
              "key": key.reshape(1, tokens, -1),
              "value": rng.standard_normal((1, tokens, heads[2] * dv)),
              "past_state": rng.standard_normal((1, heads[2], dk, dv)),
              "decay": -decay * rng.random((1, tokens, heads[2])),
              "beta": rng.uniform(0, 1, (1, tokens, heads[2]))}
    return ({"q_num_heads": heads[0], "kv_num_heads": heads[2]},
            {name: array.astype(dtype) for name, array in inputs.items()})


def run(ctx, attributes, inputs, bound=3e-6):
    """Under every engine, against float64."""
    want = recurred(attributes, inputs)
    op = ctx.op("com.microsoft", "LinearAttention", **attributes)
    for engine in engines(ctx):
        got = op(outputs=["output", "present_state"], engine=engine, **inputs)
        for array, exact in zip(got, want):
            assert error(array, exact) <= bound, engine
    return got


def test_the_width_of_the_output_follows_the_larger_head_count(ctx):  # onnxruntime#29892
    attributes, inputs = linear(3, heads=(8, 4, 4), dk=16, dv=32)
    op = ctx.op("com.microsoft", "LinearAttention", **attributes)
    specs = {name: (array.dtype.name, array.shape) for name, array in inputs.items()}
    assert op.infer("output", **specs).shape == (1, 3, 256)
    assert run(ctx, attributes, inputs).output.shape == (1, 3, 256)


@pytest.mark.parametrize("size", [128, 256])
def test_large_states(ctx, size):  # onnxruntime#31982
    run(ctx, *linear(5, heads=(1, 1, 2), dk=size, dv=size))


@pytest.mark.parametrize("dtype, bound", [(np.float32, 3e-6), (np.float16, 1e-3)])
def test_ten_thousand_tokens(ctx, dtype, bound):  # vllm#53864, #42076
    """A slow decay keeps what the first tokens wrote."""
    run(ctx, *linear(10000, decay=1e-3, dtype=dtype), bound)


@pytest.mark.parametrize("tokens", [1, 2, 64, 100])
def test_a_prompt_at_once_and_token_by_token(ctx, tokens):  # vllm#43301
    attributes, inputs = linear(tokens)
    whole = run(ctx, attributes, inputs)
    op = ctx.op("com.microsoft", "LinearAttention", **attributes)
    state, outputs = inputs["past_state"].copy(), []
    for t in range(tokens):
        step = {name: array[:, t:t + 1] for name, array in inputs.items() if name != "past_state"}
        outputs.append(op(out={"present_state": state}, outputs=["output", "present_state"],
                          past_state=state, engine=engines(ctx)[0], **step).output)
    assert error(np.concatenate(outputs, 1), whole.output) <= 3e-6
    assert error(state, whole.present_state) <= 3e-6


def test_every_number_of_tokens(ctx):  # FlashQLA
    """0 to 130: a call of fewer tokens is the beginning of a longer one."""
    attributes, inputs = linear(130)
    op = ctx.op("com.microsoft", "LinearAttention", **attributes)
    longest, _ = recurred(attributes, inputs)
    for tokens in range(131):
        part = {name: array if name == "past_state" else array[:, :tokens]
                for name, array in inputs.items()}
        got = op(outputs=["output", "present_state"], engine=engines(ctx)[0], **part)
        if tokens == 0:
            assert np.array_equal(got.present_state, inputs["past_state"])
            continue
        assert error(got.output, longest[:, :tokens]) <= 3e-6, tokens
