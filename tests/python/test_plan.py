"""The claim gate, inference, and plans that are made before there is memory."""

import numpy as np
import pytest

import attn_c
from attn_c import TensorSpec
from conftest import HEADS, KV_HEADS, SIZE, assert_close, decode, expected, prompt

PROMPT = {"query": ("float16", (1, 5, HEADS * SIZE)), "key": ("float16", (1, 5, KV_HEADS * SIZE)),
          "value": ("float16", (1, 5, KV_HEADS * SIZE)), "seqlens_k": ("int32", (1,)),
          "total_sequence_length": ("int32", ())}


def test_query_says_yes(op):
    support = op.query(**PROMPT)
    assert support and support.ok and support.reason == "" and support.status == 0
    assert isinstance(support.capturable, bool)


def test_query_takes_open_sizes_and_aliases(op):
    cache = TensorSpec("bfloat16", (None, KV_HEADS, -1, SIZE))
    support = op.query(
        query=TensorSpec("bfloat16", (None, 1, HEADS * SIZE)),
        key=("bfloat16", (-1, 1, KV_HEADS * SIZE)), value=("bfloat16", (-1, 1, KV_HEADS * SIZE)),
        past_key=cache, past_value=cache, seqlens_k=("int32", (None,)),
        total_sequence_length=("int32", (1,)),
        aliases={"present_key": "past_key", "present_value": "past_value"})
    assert support, support.reason


@pytest.mark.parametrize("change, word", [
    ({"query": ("int32", (1, 5, HEADS * SIZE))}, "query"),
    ({"query": ("float16", (1, 5, HEADS * SIZE + 1))}, "query"),
    ({"value": None}, "value"),
    ({"seqlens_k": ("int32", (3,))}, "seqlens_k"),
])
def test_query_says_no_and_prepare_agrees(op, change, word):
    question = {**PROMPT, **change}
    support = op.query(**question)
    assert not support and word in support.reason and support.status == 1
    with pytest.raises(attn_c.InvalidArgument) as caught:
        op.prepare(question, {"output": ("float16", (1, 5, HEADS * SIZE))})
    assert support.reason in str(caught.value)


def test_query_of_a_forced_engine(ctx, op):
    answers = {engine: op.query(engine=engine, **PROMPT) for engine in ctx.info.engines}
    assert any(answers.values())
    assert all(answer or answer.reason for answer in answers.values())


def test_infer_shapes(op):
    assert op.infer("output", **PROMPT)[:2] == ("float16", (1, 5, HEADS * SIZE))
    assert op.infer("log_sum_exp", **PROMPT)[:2] == ("float32", (1, HEADS, 5))
    # The present cache of a first prompt is as long as a value that is not there.
    assert op.infer("present_key", **PROMPT).shape[:2] == (1, KV_HEADS)
    known = op.infer("present_key", **prompt(batch=1)).shape
    assert known == (1, KV_HEADS, 5, SIZE)
    with pytest.raises(attn_c.InvalidArgument, match="output_qk"):
        op.infer("output_qk", **PROMPT)


def test_a_plan_made_of_shapes_serves_memory_of_other_lengths(op):
    inputs = decode()
    specs = {name: TensorSpec(array.dtype, array.shape) for name, array in inputs.items()}
    plan = op.prepare(
        specs, {"output": ("float32", (2, 1, 64)),
                "present_key": specs["past_key"], "present_value": specs["past_value"]},
        aliases={"present_key": "past_key", "present_value": "past_value"},
        max_total_length=16)
    assert plan.info.max_total_length >= 16 and plan.info.max_batch == 2
    session = op.context.session("decode")
    for total in (7, 12, 16):
        inputs["seqlens_k"][:] = total - 1
        inputs["total_sequence_length"][...] = total
        want = expected(inputs, 16)["output"]
        output = np.full((2, 1, 64), np.nan, np.float32)
        plan.execute(inputs, {"output": output, "present_key": inputs["past_key"],
                              "present_value": inputs["past_value"]}, session=session)
        assert_close(output, want)


@pytest.mark.parametrize("outputs", [
    None, ["output", "present_key", "present_value"], {"output": None, "present_key": None},
    ["present_value", "output", "output"]])
def test_sizes_that_follow_from_a_value_may_stay_open(op, outputs):
    """The gate takes these specs, whose present caches are as long as the total says; so does
    prepare, and the plan runs when the value is there."""
    inputs = decode()
    specs = {name: TensorSpec(array.dtype, array.shape) for name, array in inputs.items()}
    names = list(dict.fromkeys(outputs or ["output", "present_key", "present_value"]))
    assert op.infer("present_key", **specs).shape == (2, KV_HEADS, -1, SIZE)
    assert op.query(outputs=names, **specs)
    plan = op.prepare(specs, outputs)
    want = expected(inputs, 16)
    given = {name: np.full_like(want[name], np.nan) for name in names}
    plan.execute(inputs, given)
    for name in names:
        assert_close(given[name], want[name])


def test_a_plan_refuses_what_it_was_not_made_for(op):
    plan = op.prepare(prompt(), ["output"])
    other = prompt(dtype=np.float16)
    with pytest.raises(attn_c.NotPrepared):
        plan.execute(other, {"output": np.empty_like(other["query"])})


def test_plans_describe_themselves(op):
    plan = op.prepare(prompt())
    assert [stage["stage"] for stage in plan.describe()["stages"]][-1:] == ["attention"]
    assert plan.info.workspace_bytes >= 0 and plan.info.max_query_length == 5


def test_options_of_prepare(op):
    inputs = prompt()
    plan = op.prepare(inputs, ["output"], batch_invariant=True, allow_tf32=True,
                      check_on_host=True, max_batch=4, max_query_length=8, max_total_length=32)
    assert plan.info[2:5] == (4, 8, 32)
    asked = plan.describe()["asked"]
    assert asked["batch_invariant"] and asked["allow_tf32"] and asked["check_on_host"]
    output = np.empty_like(inputs["query"])
    plan.execute(inputs, {"output": output})
    assert_close(output, expected(inputs, 5)["output"])
