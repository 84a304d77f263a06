"""Recorded layers of real models by every engine of the CPU, in every type."""

import numpy as np
import pytest
from recorded_layers import BOUNDS, NODES, error

import attn_c


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def numpy_type(name):
    if name != "bfloat16":
        return np.dtype(name)
    return np.dtype(pytest.importorskip(
        "ml_dtypes", reason="bfloat16 arrays need ml_dtypes").bfloat16)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name.replace(" ", "_"))
def test_layer(ctx, node, dtype):
    kind = numpy_type(dtype)
    inputs = {name: array.astype(kind) if array.dtype == np.float32 else array
              for name, array in node.inputs.items()}
    domain, version, type_name = node.operator
    op = ctx.op(domain, type_name, version, **node.attributes)
    ran = set()
    for engine in (None, "generic", "simd-prefill", "simd-decode"):
        try:
            got = op(outputs=list(node.want), engine=engine, **inputs)
        except attn_c.Unsupported:
            assert engine == "simd-decode"  # for few rows
            continue
        ran.add(engine)
        for name in node.want:
            off = error(node, name, np.asarray(getattr(got, name)))
            assert off <= BOUNDS[dtype], (engine, name, off)
    assert ran >= {None, "generic", "simd-prefill"}
