"""What the tests of the Python layer share: a context, small nodes and their reference."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))

import attn_c  # noqa: E402
import gqa_reference  # noqa: E402

HEADS, KV_HEADS, SIZE = 4, 2, 16


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


@pytest.fixture
def op(ctx):
    return ctx.op("com.microsoft", "GroupQueryAttention", label="layer 0",
                  num_heads=HEADS, kv_num_heads=KV_HEADS)


def prompt(batch=2, tokens=5, dtype=np.float32, seed=0):
    """Inputs of a first prompt without padding."""
    rng = np.random.default_rng(seed)

    def normal(heads):
        return rng.standard_normal((batch, tokens, heads * SIZE)).astype(dtype)

    return {"query": normal(HEADS), "key": normal(KV_HEADS), "value": normal(KV_HEADS),
            "seqlens_k": np.full(batch, tokens - 1, np.int32),
            "total_sequence_length": np.array(tokens, np.int32)}


def decode(batch=2, past=6, capacity=16, dtype=np.float32, seed=0):
    """Inputs of one more token for each row, with caches that are longer than needed."""
    rng = np.random.default_rng(seed)
    inputs = prompt(batch, 1, dtype, seed + 1)
    for name in ("past_key", "past_value"):
        inputs[name] = rng.standard_normal((batch, KV_HEADS, capacity, SIZE)).astype(dtype)
    inputs["seqlens_k"] = np.full(batch, past, np.int32)
    inputs["total_sequence_length"] = np.array(past + 1, np.int32)
    return inputs


def expected(inputs, capacity, **attributes):
    """The float64 reference's outputs."""
    return gqa_reference.group_query_attention(
        inputs, {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}, capacity)


def assert_close(got, want, tolerance=2e-6):
    """Relative error of the whole, NaN nowhere."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)
