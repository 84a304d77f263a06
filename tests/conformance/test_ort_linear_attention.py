"""ONNX Runtime's CPU LinearAttention (com.microsoft 1) side by side with this library's.

Random float32 nodes of everything that both support, each also held against float64, so that a
disagreement shows who is wrong. Where the two differ stands at the end.
"""

import numpy as np
import ort_node
import pytest
from linear_reference import error, recurred

import attn_c

CASES = 120
BOUND = 3e-6  # |result - float64| / |float64|, of outputs and of states
OPERATOR = ("com.microsoft", 1, "LinearAttention",
            ("query", "key", "value", "past_state", "decay", "beta"), ("output", "present_state"))


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def peer(attributes, inputs):
    """Output and present state of ONNX Runtime for one node."""
    got = ort_node.run(OPERATOR, attributes, inputs, {name: "float32" for name in OPERATOR[4]})
    return got["output"], got["present_state"]


def draw(seed):
    """(attributes, inputs) of a random node."""
    rng = np.random.default_rng(seed)
    rule = rng.choice(["linear", "gated", "delta", "gated_delta"])
    batch, tokens = int(rng.integers(1, 4)), int(rng.choice([1, 2, 7, 33]))
    heads, group = int(rng.choice([1, 2, 4])), int(rng.choice([1, 2, 3]))
    query_heads, value_heads = (heads * group, heads) if rng.random() < 0.5 else \
        (heads, heads * group)
    key_heads = value_heads if query_heads > value_heads else \
        int(rng.choice([query_heads, value_heads]))
    dk, dv = int(rng.choice([4, 16, 24, 64, 128])), int(rng.choice([4, 16, 40, 64, 128]))
    key = rng.standard_normal((batch, tokens, key_heads, dk))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    inputs = {"query": rng.standard_normal((batch, tokens, query_heads * dk)),
              "key": key.reshape(batch, tokens, -1),
              "value": rng.standard_normal((batch, tokens, value_heads * dv))}
    if rng.random() < 0.6:
        inputs["past_state"] = rng.standard_normal((batch, value_heads, dk, dv))
    if "gated" in rule:
        width = value_heads * (dk if rng.random() < 0.5 else 1)
        inputs["decay"] = -np.abs(rng.standard_normal((batch, tokens, width)))
    if "delta" in rule:
        width = value_heads if rng.random() < 0.7 else 1
        inputs["beta"] = rng.uniform(0, 1, (batch, tokens, width))
    attributes = {"q_num_heads": query_heads, "kv_num_heads": value_heads, "update_rule": str(rule)}
    if rng.random() < 0.5:
        attributes["scale"] = float(np.float32(rng.choice([1.0, 0.3, -0.5])))
    return attributes, {name: array.astype(np.float32) for name, array in inputs.items()}


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("engine", ["chunked", "recurrent", "recurrent-serial"])
def test_linear_attention(ctx, engine, seed):
    attributes, inputs = draw(seed)
    if engine == "chunked" and "decay" in inputs:  # it takes one decay a head
        inputs["decay"] = inputs["decay"][..., :attributes["kv_num_heads"]].copy()
    op = ctx.op("com.microsoft", "LinearAttention", 1, **attributes)
    wanted = recurred(attributes, inputs)
    shapes = [array.shape for array in wanted]
    ours = {name: np.full(shape, np.nan, np.float32)
            for name, shape in zip(("output", "present_state"), shapes)}
    plan = op.prepare(inputs, ours, engine=engine)
    assert plan.describe()["stages"][-1]["engine"] == engine
    plan.execute(inputs, ours)
    theirs = peer(attributes, inputs)
    for name, peers, want in zip(ours, theirs, wanted):
        assert error(ours[name], want) <= BOUND, f"seed {seed}: our {name}, {attributes}"
        assert error(peers, want) <= BOUND, f"seed {seed}: ONNX Runtime's {name}, {attributes}"


def test_many_tokens_are_taken_in_chunks(ctx):
    """The engine follows the tokens of a call: the description says which and why, and a plan for
    many tokens runs one token as a plan for one token does."""
    rng = np.random.default_rng(1)
    op = ctx.op("com.microsoft", "LinearAttention", 1, q_num_heads=2, kv_num_heads=2)
    engines, states = {}, []
    for tokens in (512, 1):
        inputs = {name: rng.standard_normal((1, tokens, 256)).astype(np.float32)
                  for name in ("query", "key", "value")}
        inputs["key"] /= 16
        inputs["past_state"] = rng.standard_normal((1, 2, 128, 128)).astype(np.float32)
        inputs["decay"] = -rng.random((1, tokens, 2)).astype(np.float32)
        inputs["beta"] = rng.random((1, tokens, 2)).astype(np.float32)
        outputs = {"output": np.empty((1, tokens, 256), np.float32),
                   "present_state": np.empty((1, 2, 128, 128), np.float32)}
        plan = op.prepare(inputs, outputs)
        stage = plan.describe()["stages"][-1]
        engines[tokens] = stage["engine"], {verdict["engine"]: verdict["reason"]
                                            for verdict in stage["considered"]}
        if tokens == 512:
            long_plan = plan
            continue
        for each in (plan, long_plan):
            each.execute(inputs, outputs)
            states.append({name: array.copy() for name, array in outputs.items()})
    assert engines[512][0] == "chunked" and engines[1][0] == "recurrent"
    assert "expected to be the fastest" in engines[512][1]["chunked"]
    assert "slower than recurrent at 1 tokens" in engines[1][1]["chunked"]
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes()


@pytest.mark.parametrize("seed", range(0, CASES, 3))
def test_the_standards_operator(ctx, seed):
    """ai.onnx 27, which ONNX Runtime runs as the graph of the operator's definition: there the key
    has as many heads as the value, and every state may be read by several query heads."""
    attributes, inputs = draw(seed)
    heads = attributes["kv_num_heads"]
    batch, tokens = inputs["key"].shape[:2]
    query_heads = attributes["q_num_heads"] = heads * (1 + seed % 3)
    dk = 8 * (1 + seed % 5)
    rng = np.random.default_rng(seed)
    key = rng.standard_normal((batch, tokens, heads, dk))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    inputs["key"] = key.reshape(batch, tokens, -1).astype(np.float32)
    inputs["query"] = rng.standard_normal((batch, tokens, query_heads * dk)).astype(np.float32)
    dv = inputs["value"].shape[2] // heads
    inputs["past_state"] = rng.standard_normal((batch, heads, dk, dv)).astype(np.float32)
    if "decay" in inputs:
        inputs["decay"] = -rng.random((batch, tokens, heads * dk)).astype(np.float32)
    operator = ("", 27, *OPERATOR[2:])
    theirs = ort_node.run(operator, attributes, inputs, {name: "float32" for name in OPERATOR[4]})
    ours = ctx.op("", "LinearAttention", 27, **attributes)(
        outputs=["output", "present_state"], **inputs)
    for name, want in zip(OPERATOR[4], recurred(attributes, inputs)):
        assert error(getattr(ours, name), want) <= BOUND, f"our {name}, {attributes}"
        assert error(theirs[name], want) <= BOUND, f"ONNX Runtime's {name}, {attributes}"


# ---- known differences, each with what the contract says ---------------------------------------

def plain(tokens=3, **changes):
    rng = np.random.default_rng(1)
    inputs = {"query": rng.standard_normal((1, tokens, 2 * 8)),
              "key": rng.standard_normal((1, tokens, 2 * 8)),
              "value": rng.standard_normal((1, tokens, 2 * 8))}
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    return dict(attributes, **changes), {k: v.astype(np.float32) for k, v in inputs.items()}


def test_a_slow_and_steady_decay(ctx):
    """ONNX Runtime multiplies by the rounded exp(decay) at every token, so that its error grows
    with their number; the contract's bound holds at 4,096 tokens here."""
    attributes, inputs = plain(4096, update_rule="gated")
    inputs["decay"] = np.full((1, 4096, 2), -3e-4, np.float32)
    want, state = recurred(attributes, inputs)
    result = ctx.op("com.microsoft", "LinearAttention", 1, **attributes)(**inputs)
    assert error(result.output, want) <= BOUND
    assert error(result.present_state, state) <= BOUND


def test_float16_with_a_float32_state(ctx):
    """A 16-bit call keeps a float32 state; ONNX Runtime's state has the call's type."""
    attributes, inputs = plain()
    half = {name: array.astype(np.float16) for name, array in inputs.items()}
    half["past_state"] = np.ones((1, 2, 8, 8), np.float32)
    result = ctx.op("com.microsoft", "LinearAttention", 1, **attributes)(**half)
    assert result.present_state.dtype == np.float32
    want, state = recurred(attributes, half)
    assert error(result.present_state, state) <= BOUND
    assert error(result.output, want) <= 1e-3
