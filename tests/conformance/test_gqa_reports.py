"""What users of other implementations of GroupQueryAttention and its caches ran into.

Each test is one public report: the input that showed the fault, and float64's answer.
"""

import mmap

import numpy as np
import pytest
from gqa_reference import group_query_attention
from on_device import attention_engines

import attn_c

BOUND = 2e-5


@pytest.fixture(scope="session", params=[1, 2], ids=["one_thread", "two_threads"])
def ctx(request):
    return attn_c.Context("cpu", thread_count=request.param)


def normal(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tables(positions, width, base=1e4):
    angles = np.outer(np.arange(positions), base ** (-np.arange(width // 2) / (width / 2)))
    return {"cos_cache": np.cos(angles).astype(np.float32),
            "sin_cache": np.sin(angles).astype(np.float32)}


def node(heads=4, kv_heads=2, size=32, rows=1, lengths=(9,), rows_of_past=16, **attributes):
    """(attributes, inputs) of a step with a past: `lengths` are the keys with the new ones."""
    batch = len(lengths)
    inputs = {"query": normal(batch, rows, heads * size),
              "key": normal(batch, rows, kv_heads * size, seed=2),
              "value": normal(batch, rows, kv_heads * size, seed=3),
              "past_key": normal(batch, kv_heads, rows_of_past, size, seed=4),
              "past_value": normal(batch, kv_heads, rows_of_past, size, seed=5),
              "seqlens_k": np.array(lengths, np.int32) - 1,
              "total_sequence_length": np.array(max(lengths), np.int32)}
    return {"num_heads": heads, "kv_num_heads": kv_heads, **attributes}, inputs


def run(ctx, attributes, inputs, capacity):
    """Runs the node under every engine that takes it, its present caches in memory of their own;
    each must agree with float64, and zeros stand beyond a length. Returns what was wanted."""
    want = group_query_attention(inputs, attributes, capacity)
    del want["output_qk"]
    ran = 0
    for engine in attention_engines(ctx):
        out = {name: np.full_like(array, np.nan) for name, array in want.items()}
        try:
            ctx.op("com.microsoft", "GroupQueryAttention", **attributes)(
                out=out, outputs=list(out), engine=engine, **inputs)
        except attn_c.Unsupported:
            assert engine not in (None, "generic")
            continue
        ran += 1
        for name, array in out.items():
            np.testing.assert_allclose(array, want[name], rtol=BOUND, atol=BOUND,
                                       err_msg=f"{name} under {engine}")
    assert ran >= 2
    return want


# ---- heads, sizes, layout -----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3])
def test_packed_rows_with_rotation_and_separate_caches(ctx, rows):  # onnxruntime#27079
    attributes, inputs = node(rows=rows, lengths=(9 + rows, 5 + rows), do_rotary=1)
    inputs.update(tables(16, 32))
    run(ctx, attributes, inputs, 16)
    packed = {**inputs, "query": np.concatenate(
        [inputs[name] for name in ("query", "key", "value")], axis=2)}
    del packed["key"], packed["value"]
    run(ctx, attributes, packed, 16)


@pytest.mark.parametrize("size, widths", [(40, (40, 24)), (72, (72, 36, 2)), (80, (80, 32))])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_widths_of_the_rotary_table(ctx, size, widths, interleaved):  # genai#482
    for width in widths:
        for rows in (1, 6):
            attributes, inputs = node(size=size, rows=rows, lengths=(11,), do_rotary=1,
                                      rotary_interleaved=interleaved)
            run(ctx, attributes, {**inputs, **tables(16, width)}, 16)


@pytest.mark.parametrize("keys", [1, 64, 3000, 20000])
@pytest.mark.parametrize("smooth", [False, True])
def test_a_sink_counts_once(ctx, keys, smooth):  # vllm#28660, rocm-libraries#12227
    """Scores are zero and values one, so that the output is keys / (keys + e ** sink), however the
    keys are split."""
    attributes, inputs = node(lengths=(keys,), rows_of_past=keys, size=8,
                              **({"smooth_softmax": 1} if smooth else {}))
    inputs["query"][...] = 0
    inputs["value"][...] = inputs["past_value"][...] = 1
    sinks = np.zeros(4) if smooth else np.array([-3, 0, 4, 9])
    if not smooth:
        inputs["head_sink"] = sinks.astype(np.float32)
    want = run(ctx, attributes, inputs, keys)["output"].reshape(4, 8)
    np.testing.assert_allclose(want, np.repeat(keys / (keys + np.exp(sinks)), 8).reshape(4, 8),
                               rtol=1e-6)


# ---- lengths and caches -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4])
def test_no_new_keys(ctx, rows):  # onnxruntime#28188
    """A cache that another layer filled: queries, and key and value of no rows."""
    attributes, inputs = node(rows=rows, lengths=(9, 12))
    empty = np.zeros((2, 0, 2 * 32), np.float32)
    inputs.update(key=empty, value=empty)
    run(ctx, attributes, inputs, 16)


@pytest.mark.parametrize("length", [-6, -1, 17, 2 ** 31 - 1])
def test_lengths_outside_the_buffers(ctx, length):  # onnxruntime#28031
    attributes, inputs = node(lengths=(9, 9))
    inputs["seqlens_k"][1] = length - 1 if length < 2 ** 31 - 1 else length
    refused(ctx, attributes, inputs, rf"seqlens_k\[1\] is {inputs['seqlens_k'][1]}")


def test_a_past_shorter_than_its_length(ctx):  # onnxruntime#29447
    attributes, inputs = node(rows_of_past=2)
    inputs["seqlens_k"][0], inputs["total_sequence_length"][...] = 50, 100
    refused(ctx, attributes, inputs, r"seqlens_k\[0\] is 50")


def refused(ctx, attributes, inputs, message):
    """Refused with that message, and neither outputs nor caches are touched."""
    op = ctx.op("com.microsoft", "GroupQueryAttention", **attributes)
    before = {name: inputs[name].copy() for name in ("past_key", "past_value")}
    output = np.full_like(inputs["query"], 7)
    in_place = {"present_key": inputs["past_key"], "present_value": inputs["past_value"]}
    with pytest.raises(attn_c.InvalidArgument, match=message):
        op(out={"output": output, **in_place}, outputs=["output", *in_place], **inputs)
    assert (output == 7).all()
    assert all(np.array_equal(inputs[name], array) for name, array in before.items())


@pytest.mark.parametrize("rows", [1, 3])
def test_different_lengths_in_a_batch(ctx, rows):  # onnxruntime#29752
    attributes, inputs = node(rows=rows, lengths=(16, 3, 9, 4), do_rotary=1)
    run(ctx, attributes, {**inputs, **tables(16, 32)}, 16)


def test_a_present_longer_than_the_past(ctx):  # onnxruntime#32716
    attributes, inputs = node(lengths=(10,), rows_of_past=9)
    run(ctx, attributes, inputs, 10)
    run(ctx, attributes, inputs, 13)


def test_decode_in_a_shared_buffer(ctx):  # hip-ep#753
    """A capacity of 64: the present is as long as the past, and only the new rows change."""
    attributes, inputs = node(rows_of_past=64)
    want = group_query_attention(inputs, attributes, 64)
    rest = {name: inputs[name].copy() for name in ("past_key", "past_value")}
    caches = {"present_key": inputs["past_key"], "present_value": inputs["past_value"]}
    got = ctx.op("com.microsoft", "GroupQueryAttention", **attributes)(
        out=caches, outputs=["output", *caches], **inputs)
    np.testing.assert_allclose(got.output, want["output"], rtol=BOUND, atol=BOUND)
    for past, present in (("past_key", "present_key"), ("past_value", "present_value")):
        rest[past][:, :, 8] = want[present][:, :, 8]
        assert np.array_equal(caches[present], rest[past])


def test_caches_of_more_than_2_to_the_31_elements(ctx):  # flash-attention#2662, vllm#50427
    """The third head begins beyond 2 ** 31 elements. Only rows that are used become memory."""
    shape = (1, 3, (1 << 24) + 9, 64)
    attributes, inputs = node(heads=6, kv_heads=3, size=64, lengths=(9,))
    inputs = {name: array.astype(np.float16) if array.dtype == np.float32 else array
              for name, array in inputs.items()}
    want = group_query_attention(inputs, attributes, 16)
    try:
        pages = [mmap.mmap(-1, 2 * int(np.prod(shape)), flags=mmap.MAP_PRIVATE
                           | mmap.MAP_ANONYMOUS) for _ in range(2)]
    except OSError as error:
        pytest.skip(f"this machine gives no 13 GB of address space: {error}")
    caches = {name: np.frombuffer(page, np.float16).reshape(shape)
              for name, page in zip(("key", "value"), pages)}
    assert 2 * caches["key"].strides[1] // caches["key"].itemsize >= 1 << 31
    for name, cache in caches.items():
        cache[:, :, :8] = inputs[f"past_{name}"][:, :, :8]
        inputs[f"past_{name}"] = cache
    got = ctx.op("com.microsoft", "GroupQueryAttention", **attributes)(
        out={f"present_{name}": cache for name, cache in caches.items()},
        outputs=["output", "present_key", "present_value"], **inputs)
    np.testing.assert_allclose(got.output.astype(np.float64), want["output"], atol=2e-3)
    for name, cache in caches.items():
        assert np.array_equal(cache[:, :, :9], want[f"present_{name}"][:, :, :9])


# ---- plans that are used again ------------------------------------------------------------------


def test_one_plan_for_every_length(ctx):  # TensorRT-LLM#18769, rtp-llm#1084
    """Prepared with one length and executed with every other, it gives the bits of a plan of its
    own."""
    attributes, inputs = node(lengths=(3, 2), rows_of_past=300)
    op = ctx.op("com.microsoft", "GroupQueryAttention", **attributes)
    output = np.empty_like(inputs["query"])
    caches = {"present_key": inputs["past_key"], "present_value": inputs["past_value"]}
    with op.bind(None, inputs, {"output": output, **caches}) as binding:
        binding.prepare()
        for length in (*range(1, 40), 127, 128, 129, 255, 256, 257, 299, 300):
            inputs["seqlens_k"][:] = length - 1, max(length // 2 - 1, 0)
            inputs["total_sequence_length"][...] = length
            binding.execute()
            fresh = op(outputs=["output"], **inputs).output
            assert np.array_equal(output, fresh), length


def test_scratch_that_nobody_wrote(ctx):  # flashinfer#5176, sglang#31387
    """A large step, then a small one in the same poisoned scratch: nothing of it is read."""
    attributes, large = node(lengths=(2900,) * 3, rows_of_past=3000)
    _, small = node(lengths=(7,) * 3, rows_of_past=3000)
    op = ctx.op("com.microsoft", "GroupQueryAttention", **attributes)
    output = np.empty_like(large["query"])
    with op.bind(None, large, {"output": output}) as binding:
        binding.prepare()
        info = binding.capture_support()
        room = np.full(info.workspace_bytes + info.workspace_alignment, 0xff, np.uint8)
        shift = -room.ctypes.data % max(info.workspace_alignment, 1)
        for inputs in (large, small):
            room[:] = 0xff
            for name, array in inputs.items():
                binding.set_input(name, array)
            binding.execute(workspace=room[shift:shift + info.workspace_bytes])
            want = group_query_attention(inputs, attributes, 3000)["output"]
            np.testing.assert_allclose(output, want, rtol=BOUND, atol=BOUND)
