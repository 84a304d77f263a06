"""What users of other implementations of softmax attention ran into, as inputs for this one.

Each test is one public report: the input that showed the fault, and float64's answer.
"""

import numpy as np
import pytest
from attention_reference import attention
from on_device import attention_engines

import attn_c


@pytest.fixture(scope="session", params=[1, 2], ids=["one_thread", "two_threads"])
def ctx(request):
    return attn_c.Context("cpu", thread_count=request.param)


def normal(*shape, seed=1, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tokens(batch, heads, rows, keys, size, kv_heads=None, v_size=None):
    kv_heads = kv_heads or heads
    return {"Q": normal(batch, heads, rows, size), "K": normal(batch, kv_heads, keys, size, seed=2),
            "V": normal(batch, kv_heads, keys, v_size or size, seed=3)}


def run(ctx, attributes, inputs, outputs=("Y", "log_sum_exp"), version=24, rtol=2e-5):
    """Runs the node under every engine that takes it; each must agree with float64."""
    want = attention(attributes, inputs)
    ran = 0
    for engine in attention_engines(ctx):
        poisoned = {"Y": np.full(want["Y"].shape, np.nan, inputs["Q"].dtype)}
        try:
            got = ctx.op("", "Attention", version, **attributes)(
                outputs=outputs, out=poisoned, engine=engine, **inputs)
        except attn_c.Unsupported:
            assert engine not in (None, "generic")
            continue
        ran += 1
        for name in outputs:
            if name in want:
                np.testing.assert_allclose(
                    np.asarray(getattr(got, name)).astype(np.float64), want[name], rtol=rtol,
                    atol=rtol, err_msg=f"{name} under {engine}")
    assert ran >= 2
    return want


# ---- masks, empty rows, alignment ---------------------------------------------------------------


def test_softcap_does_not_undo_a_mask(ctx):  # onnx#7865
    inputs = tokens(1, 1, 4, 6, 8)
    inputs["V"][..., 4:, :] = 1000
    inputs["attn_mask"] = np.zeros((4, 6), np.float32)
    inputs["attn_mask"][:, 4:] = -np.inf
    want = run(ctx, {"softcap": 0.5}, inputs)
    assert np.abs(want["Y"]).max() < 10


def test_causal_ends_with_an_external_cache(ctx):  # onnx#8054
    inputs = tokens(1, 2, 2, 4, 8)
    inputs["nonpad_kv_seqlen"] = np.array([4])
    run(ctx, {"is_causal": 1}, inputs)
    probabilities = ctx.op("", "Attention", 24, is_causal=1, qk_matmul_output_mode=3)(
        outputs=["Y", "qk_matmul_output"], **inputs).qk_matmul_output
    assert (np.asarray(probabilities)[0, 0, 0] > 0).tolist() == [True, True, True, False]


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_rows_without_a_key_are_zero_in_every_output(ctx, mode):  # onnx#8068
    inputs = tokens(1, 2, 2, 2, 8)
    inputs["attn_mask"] = np.array([[True, False], [False, False]])
    want = run(ctx, {"is_causal": 1, "qk_matmul_output_mode": mode}, inputs,
               ("Y", "qk_matmul_output", "log_sum_exp"))
    assert (want["Y"][:, :, 1] == 0).all()


def test_causal_shows_the_past(ctx):  # onnx#7297
    inputs = tokens(2, 3, 4, 4, 8)
    inputs.update(past_key=normal(2, 3, 12, 8, seed=4), past_value=normal(2, 3, 12, 8, seed=5))
    run(ctx, {"is_causal": 1}, inputs, ("Y", "present_key", "present_value"))


def test_causal_begins_at_the_top_without_a_past(ctx):  # onnxruntime#29020
    inputs = tokens(1, 2, 1, 7, 16)
    want = run(ctx, {"is_causal": 1}, inputs)
    np.testing.assert_allclose(want["Y"][0, :, 0], inputs["V"][0, :, 0], rtol=1e-6)


def test_a_bool_mask_is_no_padding_length(ctx):  # onnxruntime#27885
    inputs = tokens(1, 2, 1, 1, 16)
    inputs.update(past_key=normal(1, 2, 6, 16, seed=4), past_value=normal(1, 2, 6, 16, seed=5))
    inputs["attn_mask"] = np.array([[True, False, True, True, False, True, False]])
    run(ctx, {}, inputs)


def test_a_length_of_zero(ctx):  # onnxruntime#27831
    inputs = tokens(3, 2, 2, 6, 16)
    inputs["nonpad_kv_seqlen"] = np.array([0, 6, 1])
    for causal in (0, 1):
        want = run(ctx, {"is_causal": causal}, inputs)
        assert (want["Y"][0] == 0).all()


def test_padding_does_not_leak_through_softcap(ctx):  # onnxruntime#28379
    inputs = tokens(2, 2, 3, 8, 16)
    inputs["nonpad_kv_seqlen"] = np.array([5, 3])
    inputs["V"][0, :, 5:] = inputs["V"][1, :, 3:] = 1000
    inputs["K"][0, :, 5:] = inputs["K"][1, :, 3:] = np.nan
    clean = dict(inputs, K=np.nan_to_num(inputs["K"]))
    want = attention({"softcap": 2.0}, clean)["Y"]
    for engine in attention_engines(ctx):
        try:
            got = ctx.op("", "Attention", 24, softcap=2.0)(
                engine=engine, outputs=["Y"], **inputs).Y
        except attn_c.Unsupported:
            assert engine not in (None, "generic")
            continue
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)


def test_finite_mask_and_causal(ctx):  # onnxruntime#14363
    inputs = tokens(1, 2, 7, 7, 16)
    mask = np.array([0, 1, 1, 0, 0, 1, 0])
    inputs["attn_mask"] = np.where(mask, 0, -10000).astype(np.float32)[None, :]
    run(ctx, {"is_causal": 1}, inputs, rtol=3e-3)  # -10000 leaves float32 a thousandth


def test_more_queries_than_keys(ctx):  # flashinfer#4452
    inputs = tokens(1, 2, 8, 3, 16)
    inputs["nonpad_kv_seqlen"] = np.array([3])
    want = run(ctx, {"is_causal": 1}, inputs)
    assert np.isneginf(want["log_sum_exp"][:, :, :5]).all()


def test_empty_parts_merge(ctx):  # flashinfer#4051
    inputs = tokens(1, 1, 1, 2000, 64)
    mask = np.zeros((1, 2000), bool)
    for shown in ([], [1999], [0, 1000]):
        inputs["attn_mask"] = mask.copy()
        inputs["attn_mask"][0, shown] = True
        run(ctx, {}, inputs)


def test_no_keys_at_all(ctx):  # flashinfer#4484
    run(ctx, {}, tokens(2, 2, 3, 0, 16))


@pytest.mark.parametrize("rows, keys", [(3, 9), (9, 3), (5, 5)])
@pytest.mark.parametrize("left, right", [(0, 0), (1, 0), (2, 1), (-1, 1), (1, -1), (0, 2)])
def test_windows(ctx, rows, keys, left, right):  # flash-attention#2199
    inputs = tokens(2, 2, rows, keys, 16)
    attributes = {"left_window_size": left, "right_window_size": right}
    run(ctx, attributes, inputs, version=25)
    inputs["nonpad_kv_seqlen"] = np.array([keys, keys - 1])
    run(ctx, attributes, inputs, version=25)


# ---- heads, sizes, layout -----------------------------------------------------------------------


def test_heads_of_a_group_stand_together(ctx):  # onnx#7274
    run(ctx, {}, tokens(2, 9, 4, 6, 8, kv_heads=3))


def test_three_dimensions_are_transposed(ctx):  # onnx#7142
    inputs = {"Q": normal(2, 4, 24), "K": normal(2, 6, 24, seed=2), "V": normal(2, 6, 24, seed=3)}
    run(ctx, {"q_num_heads": 3, "kv_num_heads": 3}, inputs)


def test_all_outputs_without_a_past(ctx):  # onnxruntime#26262
    inputs = tokens(2, 4, 3, 6, 16, kv_heads=2)
    outputs = ("Y", "present_key", "present_value", "qk_matmul_output")
    run(ctx, {}, inputs, outputs)
    got = ctx.op("", "Attention", 24)(outputs=list(outputs), **inputs)
    assert np.array_equal(np.asarray(got.present_key), inputs["K"])
    assert np.array_equal(np.asarray(got.present_value), inputs["V"])


@pytest.mark.parametrize("keys", [8, 16, 40, 64, 128])
def test_biases_of_aligned_widths(ctx, keys):  # onnxruntime#28376
    inputs = tokens(1, 2, 5, keys, 64)
    inputs["attn_mask"] = normal(1, 2, 5, keys, seed=9)
    run(ctx, {}, inputs)


@pytest.mark.parametrize("size", [40, 56, 72, 80, 96, 112, 192, 224, 256, 512])
def test_head_sizes(ctx, size):  # flash-attention#28, #277; onnxruntime#28196
    run(ctx, {"is_causal": 1}, tokens(1, 2, 9, 9, size))


def test_a_group_of_six_in_bfloat16(ctx):  # ik_llama#1521
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    inputs = {name: array.astype(ml_dtypes.bfloat16)
              for name, array in tokens(1, 6, 3, 9, 64, kv_heads=1).items()}
    run(ctx, {}, inputs, rtol=2e-2)


@pytest.mark.parametrize("group", [1, 2, 3, 5, 8])
def test_windows_and_groups(ctx, group):  # vllm#17476
    run(ctx, {"is_causal": 1, "left_window_size": 3}, tokens(1, 2 * group, 11, 11, 64, kv_heads=2),
        version=25)


def test_strides_that_are_no_multiple_of_16_bytes(ctx):  # triton#10931
    inputs = {name: np.concatenate([array, array[..., :3]], -1)[..., :array.shape[-1]]
              for name, array in tokens(1, 2, 5, 9, 64).items()}
    assert inputs["K"].strides[-2] % 16 != 0
    run(ctx, {}, inputs)


# ---- lengths and caches -------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-5, -1, 7, 2 ** 31 - 1, 2 ** 40])
def test_lengths_outside_the_keys(ctx, length):  # onnxruntime#28031
    inputs = tokens(2, 2, 2, 6, 16)
    inputs["nonpad_kv_seqlen"] = np.array([6, length])
    output = np.full((2, 2, 2, 16), 7, np.float32)
    with pytest.raises(attn_c.InvalidArgument, match=rf"nonpad_kv_seqlen\[1\] is {length}: a valid "
                                                     r"length lies outside \[0, L\]; L is 6"):
        ctx.op("", "Attention", 24)(out={"Y": output}, **inputs)
    assert (output == 7).all()


def test_a_different_length_for_each_batch_row(ctx):  # onnxruntime#29752
    inputs = tokens(4, 2, 1, 40, 64)
    inputs["nonpad_kv_seqlen"] = np.array([40, 1, 17, 33])
    run(ctx, {"is_causal": 1}, inputs)


def test_a_cache_that_grows_where_it_lies(ctx):  # onnxruntime#32716
    inputs = tokens(1, 4, 1, 1, 32, kv_heads=2)
    past = {"past_key": normal(1, 2, 9, 32, seed=4), "past_value": normal(1, 2, 9, 32, seed=5)}
    want = attention({}, {**inputs, **past})["Y"]
    buffers = {name: np.zeros((1, 2, 10, 32), np.float32) for name in past}
    views = {}
    for name, array in past.items():
        view = buffers[name].reshape(-1)[:array.size].reshape(array.shape)
        view[...] = array
        views[name] = view
    got = ctx.op("", "Attention", 24)(
        out={"present_key": buffers["past_key"], "present_value": buffers["past_value"]},
        outputs=["Y", "present_key", "present_value"], **inputs, **views)
    np.testing.assert_allclose(np.asarray(got.Y), want, rtol=2e-5, atol=2e-5)
    for name, fresh in (("past_key", "K"), ("past_value", "V")):
        assert np.array_equal(buffers[name], np.concatenate([past[name], inputs[fresh]], 2))


def test_a_present_of_a_capacity(ctx):  # hip-ep#753
    inputs = tokens(1, 4, 1, 1, 32, kv_heads=2)
    key, value = normal(1, 2, 64, 32, seed=4), normal(1, 2, 64, 32, seed=5)
    past = {"past_key": key[:, :, :9], "past_value": value[:, :, :9]}
    want = attention({}, {**inputs, **past})["Y"]
    rest = key[:, :, 10:].copy()
    got = ctx.op("", "Attention", 24)(
        out={"present_key": key, "present_value": value},
        outputs=["Y", "present_key", "present_value"], **inputs, **past)
    np.testing.assert_allclose(np.asarray(got.Y), want, rtol=2e-5, atol=2e-5)
    assert np.array_equal(key[:, :, 9:10], inputs["K"])
    assert np.array_equal(key[:, :, 10:], rest)


def test_a_length_that_ends_beside_a_block(ctx):  # flash-attention#1076
    for keys in (255, 256, 257, 513):
        run(ctx, {}, tokens(1, 2, 1, keys, 32))


def test_a_sequence_alone_and_in_a_batch(ctx):  # flash-attention#1897
    batch = tokens(3, 4, 2, 2100, 64, kv_heads=2)
    batch["nonpad_kv_seqlen"] = np.array([2100, 300, 2049])
    op = ctx.op("", "Attention", 24, is_causal=1)
    together = np.asarray(op(outputs=["Y"], **batch).Y)
    for b in range(3):
        alone = op(outputs=["Y"], **{name: array[b:b + 1] for name, array in batch.items()}).Y
        assert np.array_equal(np.asarray(alone)[0], together[b])


# ---- blocks that a mask shows or hides wholly ---------------------------------------------------


@pytest.mark.parametrize("rows", [1, 200])
@pytest.mark.parametrize("kind", ["bool", "float32", "float16"])
def test_hidden_blocks_are_not_computed(ctx, rows, kind):
    """Whole blocks of hidden keys leave no trace, whatever their values hold."""
    inputs = tokens(1, 2, rows, 768, 64)
    shown = np.ones((rows, 768), bool)
    shown[:, 128:512] = False
    inputs["attn_mask"] = shown if kind == "bool" else np.where(shown, 0, -np.inf).astype(kind)
    want = attention({}, inputs)["Y"]
    inputs["K"][:, :, 128:512] = inputs["V"][:, :, 128:512] = np.nan
    for engine in attention_engines(ctx):
        try:
            got = ctx.op("", "Attention", 24)(engine=engine, outputs=["Y"], **inputs).Y
        except attn_c.Unsupported:
            assert engine not in (None, "generic")
            continue
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)
