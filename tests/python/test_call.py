"""Op.__call__: outputs, families, types and work in place."""

import numpy as np
import pytest

import attn_c
from conftest import HEADS, KV_HEADS, SIZE, assert_close, decode, expected, prompt


def test_outputs_are_a_named_tuple_of_all_that_the_op_gives(op):
    inputs = prompt()
    out = op(**inputs)
    assert out._fields == ("output", "present_key", "present_value")
    want = expected(inputs, 5)
    for name in out._fields:
        assert isinstance(getattr(out, name), np.ndarray)
        assert_close(getattr(out, name), want[name])


def test_chosen_outputs_come_in_the_order_asked_for(op):
    inputs = prompt()
    out = op(outputs=("log_sum_exp", "output"), **inputs)
    assert out._fields == ("log_sum_exp", "output")
    assert out.log_sum_exp.shape == (2, HEADS, 5) and out.log_sum_exp.dtype == np.float32
    assert_close(out.output, expected(inputs, 5)["output"])


def test_scores_come_where_the_attribute_asks(ctx):
    inputs = prompt()
    op = ctx.op("com.microsoft", "GroupQueryAttention", num_heads=HEADS, kv_num_heads=KV_HEADS,
                qk_output=2)
    out = op(**inputs)
    assert_close(out.output_qk, expected(inputs, 5, qk_output=2)["output_qk"])
    assert_close(out.output_qk.sum(axis=-1), np.ones((2, HEADS, 5)))


def test_attributes_of_every_kind(ctx):
    inputs = prompt()
    op = ctx.op("com.microsoft", "GroupQueryAttention", num_heads=np.int64(HEADS),
                kv_num_heads=KV_HEADS, scale=np.float32(0.25), softcap=2, causal=1,
                k_quant_type="NONE")
    want = expected(inputs, 5, scale=0.25, softcap=2.0)
    assert_close(op(**inputs).output, want["output"])


@pytest.mark.parametrize("type_name, tolerance", [("float16", 6e-4), ("bfloat16", 5e-3)])
def test_sixteen_bit_types(op, type_name, tolerance):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="numpy alone has no bfloat16")
    dtype = np.dtype(ml_dtypes.bfloat16 if type_name == "bfloat16" else type_name)
    inputs = prompt(dtype=dtype)
    out = op(**inputs)
    assert out.output.dtype == dtype
    assert_close(out.output, expected(inputs, 5)["output"], tolerance)
    assert np.array_equal(out.present_value, expected(inputs, 5)["present_value"])


def test_plain_numbers_stand_for_lengths(op):
    inputs = prompt()
    want = op(**inputs)
    inputs.update(seqlens_k=[4, 4], total_sequence_length=5)
    got = op(**inputs)
    assert np.array_equal(got.output, want.output)


def test_absent_inputs_may_be_none(op):
    inputs = prompt()
    got = op(past_key=None, past_value=None, head_sink=None, **inputs)
    assert np.array_equal(got.output, op(**inputs).output)


def test_decode_appends_to_the_callers_cache(op):
    inputs = decode()
    want = expected(inputs, 16)
    key, value = inputs["past_key"], inputs["past_value"]
    beyond = key[:, :, 7:].copy()
    out = op(out={"present_key": key, "present_value": value}, **inputs)
    assert out.present_key is key and out.present_value is value
    assert_close(out.output, want["output"])
    assert np.array_equal(key[:, :, :7], want["present_key"][:, :, :7])
    assert np.array_equal(key[:, :, 7:], beyond)


def test_a_cache_that_is_not_given_out_is_left_alone(op):
    inputs = decode()
    before = inputs["past_key"].copy()
    out = op(**inputs)
    assert np.array_equal(inputs["past_key"], before)
    assert np.array_equal(out.present_key, expected(inputs, 16)["present_key"])


def test_token_by_token_equals_one_prompt(op):
    """A decode loop with the cache in place gives what one prompt of all tokens gives."""
    tokens, capacity = 12, 16
    whole = prompt(batch=1, tokens=tokens)
    want = op(**whole)
    cache = {name: np.zeros((1, KV_HEADS, capacity, SIZE), np.float32)
             for name in ("key", "value")}
    for step in range(tokens):
        one = slice(step, step + 1)
        out = op(query=whole["query"][:, one], key=whole["key"][:, one],
                 value=whole["value"][:, one], past_key=cache["key"], past_value=cache["value"],
                 seqlens_k=[step], total_sequence_length=step + 1,
                 out={"present_key": cache["key"], "present_value": cache["value"]})
        assert_close(out.output, want.output[:, one])
    assert np.array_equal(cache["key"][:, :, :tokens], want.present_key)


def test_strided_views_go_in_as_they_are(op):
    """Sliced, reversed and broadcast inputs give what their copies give."""
    inputs = prompt()
    want = op(**inputs).output
    wide = np.full((2, 5, 3 * HEADS * SIZE), np.nan, np.float32)
    wide[:, :, HEADS * SIZE:2 * HEADS * SIZE] = inputs["query"]
    views = dict(inputs, query=wide[:, :, HEADS * SIZE:2 * HEADS * SIZE],
                 key=np.ascontiguousarray(inputs["key"][:, ::-1])[:, ::-1],
                 seqlens_k=np.broadcast_to(np.int32(4), (2,)))
    assert views["key"].strides[1] < 0 and views["seqlens_k"].strides == (0,)
    assert_close(op(**views).output, want)


def test_results_are_the_same_bits_every_time(op):
    inputs = prompt(tokens=40)
    first = op(**inputs).output
    assert all(np.array_equal(op(**inputs).output, first) for _ in range(5))


def test_unknown_names_are_refused_with_what_there_is(op):
    with pytest.raises(attn_c.InvalidArgument, match="no input 'querry'.*query, key"):
        op(querry=1)
    with pytest.raises(attn_c.InvalidArgument, match="no output 'outputs'.*present_key"):
        op(outputs=["outputs"], **prompt())
