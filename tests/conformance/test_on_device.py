"""The wrapper that lets tests run in memory of a device gives what the context itself gives."""

import numpy as np
import pytest
from on_device import OnDevice, attention_engines

import attn_c


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def test_attention_engines(ctx):
    assert attention_engines(ctx) == (None, "simd-decode", "amx-prefill", "simd-prefill",
                                      "generic", "amx-prefill-emulated")


def test_views_and_results(ctx):
    """Caches that are views of one buffer are written in place, and the rest of it stays."""
    rng = np.random.default_rng(1)
    results = []
    for context in (ctx, OnDevice(ctx)):
        rng = np.random.default_rng(1)
        buffer = rng.standard_normal((2, 1, 2, 12, 8)).astype(np.float32)
        new = {name: rng.standard_normal((1, 2, 1, 8)).astype(np.float32) for name in "QKV"}
        got = context.op("", "Attention", 24)(
            outputs=["Y", "present_key", "present_value"],
            out={"present_key": buffer[0], "present_value": buffer[1]},
            past_key=buffer[0, :, :, :7], past_value=buffer[1, :, :, :7], **new)
        assert got.present_key is not None and not np.isnan(got.Y).any()
        assert np.array_equal(buffer[0, :, :, 7:8], new["K"])
        results.append((np.asarray(got.Y), buffer))
    for ours, theirs in zip(*results):
        assert np.array_equal(ours, theirs)


def test_arrays_of_no_elements(ctx):
    empty = np.zeros((1, 1, 0, 4), np.float32)
    got = OnDevice(ctx).op("", "Attention", 24)(
        outputs=["Y"], Q=np.ones((1, 1, 2, 4), np.float32), K=empty, V=empty)
    assert (got.Y == 0).all() and got.Y.shape == (1, 1, 2, 4)
