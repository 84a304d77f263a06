"""ONNX Runtime's CPU RotaryEmbedding and TensorScatter side by side with this library's.

Random nodes of everything that both support; RotaryEmbedding is also held against float64, so that
a disagreement shows who is wrong. Where the two differ stands at the end.
"""

import numpy as np
import ort_node
import pytest

import attn_c

CASES = 120
# Largest difference, in units of the type at the largest element of the result. ONNX Runtime
# computes float16 through float32 as well.
UNITS = {"float32": 2 ** -22, "float16": 2 ** -10}
ROTARY = ("", 23, "RotaryEmbedding", ("X", "cos_cache", "sin_cache", "position_ids"), ("Y",))
SCATTER = ("", 24, "TensorScatter", ("past_cache", "update", "write_indices"), ("present_cache",))


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def peer(operator, attributes, inputs):
    """The output of ONNX Runtime for one node; it has the type of the first input."""
    output, = operator[4]
    kind = inputs[operator[3][0]].dtype.name
    return ort_node.run(operator, attributes, inputs, {output: kind})[output]


def draw_rotary(seed):
    """(attributes, inputs) of a random RotaryEmbedding node."""
    rng = np.random.default_rng(seed)
    dtype = rng.choice(["float32", "float16"])
    batch, heads, rows = rng.integers(1, 4), rng.integers(1, 6), rng.integers(1, 20)
    size = int(2 * rng.integers(1, 65))
    whole = rng.random() < 0.5
    width = size if whole else int(2 * rng.integers(1, size // 2 + 1))
    attributes = {"interleaved": int(rng.integers(0, 2))}
    if not whole:
        attributes["rotary_embedding_dim"] = width
    apart = rng.random() < 0.5
    # ONNX Runtime wants the count with partial rotation, whatever the rank.
    if not apart or not whole:
        attributes["num_heads"] = int(heads)
    shape = (batch, heads, rows, size) if apart else (batch, rows, heads * size)
    x = rng.standard_normal(shape).astype(dtype)
    positions = rng.random() < 0.6
    table = (int(rows + 30), width // 2) if positions else (batch, rows, width // 2)
    angle = rng.uniform(0, 6.28, table)
    inputs = {"X": x, "cos_cache": np.cos(angle).astype(dtype),
              "sin_cache": np.sin(angle).astype(dtype)}
    if positions:
        inputs["position_ids"] = rng.integers(0, table[0], (batch, rows))
    return attributes, inputs


def rotated(attributes, inputs):
    """The result in float64."""
    x = inputs["X"].astype(np.float64)
    cos, sin = (inputs[name].astype(np.float64) for name in ("cos_cache", "sin_cache"))
    if "position_ids" in inputs:
        cos, sin = cos[inputs["position_ids"]], sin[inputs["position_ids"]]
    apart = x.ndim == 4
    if apart:
        rows = x.transpose(0, 2, 1, 3)
    else:
        rows = x.reshape(*x.shape[:2], attributes["num_heads"], -1)
    cos, sin = cos[:, :, None], sin[:, :, None]
    half = cos.shape[-1]
    out = rows.copy()
    if attributes["interleaved"]:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    a, b = rows[..., first], rows[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out.transpose(0, 2, 1, 3) if apart else out.reshape(x.shape)


@pytest.mark.parametrize("seed", range(CASES))
def test_rotary_embedding(ctx, seed):
    attributes, inputs = draw_rotary(seed)
    ours = np.full_like(inputs["X"], np.nan)
    ctx.op("", "RotaryEmbedding", 23, **attributes)(out={"Y": ours}, **inputs)
    theirs = peer(ROTARY, attributes, inputs)
    want = rotated(attributes, inputs)
    limit = UNITS[ours.dtype.name] * np.abs(want).max()
    assert np.abs(ours - want).max() <= limit, f"seed {seed}: ours {attributes}"
    assert np.abs(theirs - want).max() <= limit, f"seed {seed}: ONNX Runtime's {attributes}"


def draw_scatter(seed):
    """(attributes, inputs) of a random TensorScatter node."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(3, 6))
    axis = int(rng.integers(1, rank))
    shape = rng.integers(1, 7, rank)
    shape[axis] = rng.integers(3, 20)
    rows = int(rng.integers(1, shape[axis] + 1))
    update = shape.copy()
    update[axis] = rows
    circular = rng.random() < 0.5
    attributes = {"axis": axis - rank if rng.random() < 0.5 else axis,
                  "mode": "circular" if circular else "linear"}
    dtype = rng.choice(["float32", "float16", "float64", "int8", "int32", "int64", "bool"])
    make = (lambda size: rng.integers(-100, 100, size).astype(dtype))
    inputs = {"past_cache": make(shape), "update": make(update)}
    if rng.random() < 0.8:
        most = shape[axis] if circular else shape[axis] - rows + 1
        inputs["write_indices"] = rng.integers(0, most, shape[0])
    return attributes, inputs


@pytest.mark.parametrize("seed", range(CASES))
def test_tensor_scatter(ctx, seed):
    attributes, inputs = draw_scatter(seed)
    op = ctx.op("", "TensorScatter", 24, **attributes)
    theirs = peer(SCATTER, attributes, inputs)
    assert np.array_equal(op(**inputs).present_cache, theirs), f"seed {seed}: {attributes}"
    cache = inputs["past_cache"].copy()
    op(out={"present_cache": cache}, **dict(inputs, past_cache=cache))
    assert np.array_equal(cache, theirs), f"seed {seed}, in place: {attributes}"


# ---- known differences, each with what decides --------------------------------------------------


def test_rotation_in_bfloat16(ctx):
    """The standard lists bfloat16; ONNX Runtime has no kernel. float64 decides."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 6.28, (2, 5, 8))
    inputs = {name: array.astype(ml_dtypes.bfloat16) for name, array in (
        ("X", rng.standard_normal((2, 3, 5, 16))), ("cos_cache", np.cos(angle)),
        ("sin_cache", np.sin(angle)))}
    ours = ctx.op("", "RotaryEmbedding", 23)(**inputs).Y
    want = rotated({"interleaved": 0}, inputs)
    assert np.abs(ours.astype(np.float64) - want).max() <= 2 ** -8 * np.abs(want).max()
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        peer(ROTARY, {}, inputs)


@pytest.mark.parametrize("index", [-1, -9])
def test_a_circular_index_below_zero(ctx, index):
    """Row numbers count modulo the rows of the cache (docs/operators/tensor_scatter.md); ONNX
    Runtime takes indices from 0 on alone, beyond the rows too."""
    inputs = {"past_cache": np.zeros((1, 1, 8, 2), np.float32),
              "update": np.ones((1, 1, 3, 2), np.float32), "write_indices": np.array([index])}
    attributes = {"mode": "circular", "axis": 2}
    op = ctx.op("", "TensorScatter", 24, **attributes)
    above = {**inputs, "write_indices": np.array([index + 16])}
    assert np.array_equal(op(**inputs).present_cache, peer(SCATTER, attributes, above))
    with pytest.raises(Exception, match="TensorScatter"):
        peer(SCATTER, attributes, inputs)
