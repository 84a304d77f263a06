"""JAX's arrays on the CPU: they go in without a copy, and results come back as JAX's."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import attn_c  # noqa: E402
from conftest import HEADS, KV_HEADS, SIZE, assert_close, expected, prompt  # noqa: E402


@pytest.fixture
def op():
    return attn_c.Context("cpu", thread_count=2).op(
        "com.microsoft", "GroupQueryAttention", label="layer 0", num_heads=HEADS,
        kv_num_heads=KV_HEADS)


def addresses(op, inputs):
    """Where the plugin sees the inputs."""
    arguments = op.input_arguments(inputs, attn_c._streams.NO_WAIT)
    return [arguments.native.tensor(at).data + arguments.native.tensor(at).byte_offset
            for at in range(len(inputs))]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float16", 2e-3),
                                              ("bfloat16", 2e-2)])
def test_arrays_go_in_where_they_lie_and_results_are_arrays(op, dtype, tolerance):
    host = prompt()
    inputs = {name: jnp.asarray(array, dtype if array.dtype.kind == "f" else None)
              for name, array in host.items()}
    assert addresses(op, inputs) == [array.unsafe_buffer_pointer() for array in inputs.values()]
    out = op(**inputs)
    assert isinstance(out.output, jax.Array) and out.output.dtype == jnp.dtype(dtype)
    assert out.present_key.shape == (2, KV_HEADS, 5, SIZE)
    rounded = {name: np.asarray(array, np.float32 if host[name].dtype.kind == "f" else None)
               for name, array in inputs.items()}
    want = expected(rounded, 5)
    assert_close(out.output, want["output"], tolerance)
    assert_close(out.present_value, want["present_value"], tolerance)
