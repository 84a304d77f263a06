"""ONNX Runtime's CPU Attention side by side with this library's, both against float64: 23
and 24 by its kernel, 25 as the graph of the definition.

Random nodes of everything that both support. Where the two differ stands in
attention_differences.py, each entry with what decides.
"""

import numpy as np
import ort_node
import pytest
from attention_differences import DIFFERENCES
from attention_reference import attention

import attn_c

CASES = 150
INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
# Relative to the largest element of the result. ONNX Runtime rounds float16 on the way.
BOUNDS = {"float32": 4e-6, "float16": 2e-3}
PEER_BOUNDS = {"float32": 4e-6, "float16": 6e-3}


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def peer(version, attributes, inputs, wanted):
    """ONNX Runtime's outputs by name."""
    kind = inputs["Q"].dtype.name
    return ort_node.run(("", version, "Attention", INPUTS, OUTPUTS), attributes, inputs,
                        {name: kind for name in OUTPUTS if name in wanted})


def draw(seed):
    """(version, attributes, inputs, outputs) of a random node that both serve."""
    rng = np.random.default_rng(seed)
    dtype = "float32" if rng.random() < 0.7 else "float16"
    kv_heads = int(rng.integers(1, 4))
    heads = kv_heads * int(rng.integers(1, 4))
    batch, size, v_size = (int(rng.integers(*pair)) for pair in ((1, 4), (1, 70), (1, 70)))
    rows = int(rng.choice([1, 1, 2, 5, 17, 40]))
    kind = rng.choice(["plain", "past", "nonpad"])
    version = 24 if kind == "nonpad" or rng.random() < 0.5 else 23
    fresh = rows if kind == "past" or rng.random() < 0.5 else int(rng.integers(1, 60))
    past = int(rng.integers(0, 60)) if kind == "past" else 0
    if kind == "nonpad":
        fresh = max(fresh, rows)
    flat = rng.random() < 0.5

    def tokens(count, rows, channels):
        array = rng.standard_normal((batch, count, rows, channels)).astype(dtype)
        if not flat:
            return array
        return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(batch, rows, -1)

    inputs = {"Q": tokens(heads, rows, size), "K": tokens(kv_heads, fresh, size),
              "V": tokens(kv_heads, fresh, v_size)}
    attributes = {"q_num_heads": heads, "kv_num_heads": kv_heads} if flat else {}
    outputs = ["Y"]
    if kind == "past":
        inputs["past_key"] = rng.standard_normal((batch, kv_heads, past, size)).astype(dtype)
        inputs["past_value"] = rng.standard_normal((batch, kv_heads, past, v_size)).astype(dtype)
        outputs += ["present_key", "present_value"]
    if kind == "nonpad":
        inputs["nonpad_kv_seqlen"] = rng.integers(0, fresh + 1, batch)
    if rng.random() < 0.5:
        full = (batch, heads, rows, past + fresh)
        rank = int(rng.integers(2, 5))
        shape = [1 if axis < 2 and rng.random() < 0.4 else full[axis] for axis in range(4)][-rank:]
        if rng.random() < 0.5:
            inputs["attn_mask"] = rng.random(shape) < 0.7
        else:
            hidden = rng.random(shape) < 0.3
            mask = np.where(hidden, -np.inf, rng.standard_normal(shape)).astype(dtype)
            inputs["attn_mask"] = mask
    attributes["is_causal"] = int(rng.random() < 0.4)
    if kind != "nonpad" and rng.random() < 0.2:
        version = 25
        attributes["left_window_size"] = int(rng.choice([-1, 0, 3, 20]))
        attributes["right_window_size"] = int(rng.choice([-1, 0, 2]))
    if rng.random() < 0.25:
        attributes["softcap"] = float(np.float32(rng.choice([0.5, 3.0, 20.0])))
    if rng.random() < 0.3:
        attributes["scale"] = float(np.float32(rng.uniform(0.02, 0.6)))
    if rng.random() < 0.3:
        # Mode 2 is among the differences.
        attributes["qk_matmul_output_mode"] = int(rng.choice([0, 1, 3]))
        # Hidden keys of other modes have values that nonpad keys lack here.
        if kind != "nonpad":
            outputs.append("qk_matmul_output")
    return version, attributes, inputs, outputs


def check(name, got, want, bound, who):
    assert got.shape == want.shape, f"{who}: {name} has shape {got.shape}, expected {want.shape}"
    got = got.astype(np.float64)
    assert np.array_equal(np.isfinite(got), np.isfinite(want)), f"{who}: {name} is not finite"
    limit = bound * max(np.abs(want[np.isfinite(want)]).max(initial=0), 1e-3)
    error = np.abs(got - want)[np.isfinite(want)].max(initial=0)
    assert error <= limit, f"{who}: {name} is off by {error}, allowed {limit}"


@pytest.mark.parametrize("seed", range(CASES))
def test_random_nodes(ctx, seed):
    version, attributes, inputs, outputs = draw(seed)
    want = attention(attributes, inputs)
    dtype = inputs["Q"].dtype.name
    theirs = peer(version, attributes, inputs, outputs)
    for engine in (None, "generic"):
        ours = ctx.op("", "Attention", version, **attributes)(
            outputs=outputs, engine=engine, **inputs)
        for name in outputs:
            got = np.asarray(getattr(ours, name))
            if name in want:
                check(name, got, want[name], BOUNDS[dtype], f"seed {seed}, ours")
            else:
                assert np.array_equal(got, theirs[name]), f"seed {seed}: {name}"
    for name in outputs:
        if name in want:
            check(name, theirs[name], want[name], PEER_BOUNDS[dtype],
                  f"seed {seed}, ONNX Runtime")


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: d.name)
def test_differences(ctx, difference):
    attributes, inputs, outputs = difference.make()
    want = attention(attributes, inputs)
    ours = ctx.op("", "Attention", difference.version, **attributes)(outputs=outputs, **inputs)
    for name in outputs:
        if name in want:
            check(name, np.asarray(getattr(ours, name)), want[name], BOUNDS["float32"], "ours")
    try:
        theirs = peer(difference.version, attributes, inputs, outputs)
    except Exception as error:  # every refusal of ONNX Runtime has a type of its own
        assert difference.peer == "refuses", f"ONNX Runtime refuses: {error}"
        return
    assert difference.peer == "differs", f"ONNX Runtime runs this by now: {difference.reason}"
    agrees = all(np.allclose(theirs[name], want[name], rtol=1e-3, atol=1e-6) for name in outputs
                 if name in want)
    assert not agrees, f"ONNX Runtime agrees by now: {difference.reason}"
