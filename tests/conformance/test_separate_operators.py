"""GroupQueryAttention against chains of separate operators: rotary embedding and append by
themselves, and a decoder's cache path in operator set 24, give the bits that it gives."""

import ml_dtypes
import numpy as np
import pytest

import attn_c

HEADS, KV_HEADS, SIZE, ROWS, PAST, CAPACITY = 4, 2, 48, 5, 7, 20
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LEVELS = attn_c.Context("cpu").info.simd_levels


def draw(dtype, width):
    rng = np.random.default_rng(11)

    def normal(*shape):
        return rng.standard_normal(shape).astype(dtype)

    angle = rng.uniform(0, 6.28, (CAPACITY, width // 2))
    return {"query": normal(2, ROWS, HEADS * SIZE), "key": normal(2, ROWS, KV_HEADS * SIZE),
            "value": normal(2, ROWS, KV_HEADS * SIZE),
            "past": normal(2, 2, KV_HEADS, CAPACITY, SIZE),
            "cos": np.cos(angle).astype(dtype), "sin": np.sin(angle).astype(dtype)}


def bits(array):
    return array.view(np.uint32 if array.itemsize == 4 else np.uint16)


def separate_caches(ctx, data, width, interleaved):
    """(rotated queries, key cache, value cache) by RotaryEmbedding and TensorScatter."""
    positions = np.tile(np.arange(PAST, PAST + ROWS), (2, 1))
    rotated = {}
    for which, count in (("query", HEADS), ("key", KV_HEADS)):
        op = ctx.op("ai.onnx", "RotaryEmbedding", 23, num_heads=count, interleaved=interleaved,
                    rotary_embedding_dim=width)
        rotated[which] = op(X=data[which], cos_cache=data["cos"], sin_cache=data["sin"],
                            position_ids=positions).Y
    append = ctx.op("ai.onnx", "TensorScatter", 24)
    caches = [cache.copy() for cache in data["past"]]
    for cache, rows in zip(caches, (rotated["key"], data["value"])):
        update = rows.reshape(2, ROWS, KV_HEADS, SIZE).transpose(0, 2, 1, 3)
        append(past_cache=cache, update=update, write_indices=np.full(2, PAST),
               out={"present_cache": cache})
    return rotated["query"], *caches


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width, interleaved", [(SIZE, 0), (SIZE, 1), (18, 0), (18, 1)])
@pytest.mark.parametrize("name", TYPES)
def test_decoder_step(name, width, interleaved, level):
    data = draw(TYPES[name], width)
    ctx = attn_c.Context("cpu", thread_count=2, simd_level=level)
    lengths = {"seqlens_k": np.full(2, PAST + ROWS - 1, np.int32),
               "total_sequence_length": np.array(PAST + ROWS, np.int32)}
    heads = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}

    fused = [cache.copy() for cache in data["past"]]
    fused_output = ctx.op("com.microsoft", "GroupQueryAttention", do_rotary=1,
                          rotary_interleaved=interleaved, **heads)(
        query=data["query"], key=data["key"], value=data["value"], past_key=fused[0],
        past_value=fused[1], cos_cache=data["cos"], sin_cache=data["sin"],
        out={"present_key": fused[0], "present_value": fused[1]}, **lengths).output

    query, *separate = separate_caches(ctx, data, width, interleaved)
    # Nothing is appended any more: no new key rows.
    empty = np.empty((2, 0, KV_HEADS * SIZE), data["key"].dtype)
    output = ctx.op("com.microsoft", "GroupQueryAttention", **heads)(
        query=query, key=empty, value=empty, past_key=separate[0],
        past_value=separate[1], outputs=["output"], **lengths).output

    for one, other in zip(fused, separate):
        assert np.array_equal(bits(one), bits(other))
    assert np.array_equal(bits(fused_output), bits(output))

    # Operator set 24: the caches' valid rows are counted by nonpad_kv_seqlen.
    attention = ctx.op("ai.onnx", "Attention", 24, q_num_heads=HEADS, kv_num_heads=KV_HEADS,
                       is_causal=1)
    heads_apart = query.reshape(2, ROWS, HEADS, SIZE).transpose(0, 2, 1, 3)
    output = attention(Q=heads_apart, K=separate[0], V=separate[1],
                       nonpad_kv_seqlen=np.full(2, PAST + ROWS), outputs=["Y"]).Y
    output = np.ascontiguousarray(output.transpose(0, 2, 1, 3)).reshape(fused_output.shape)
    assert np.array_equal(bits(fused_output), bits(output))
