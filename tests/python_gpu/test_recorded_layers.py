"""Recorded layers of real models on the device, in every type."""

import pathlib
import sys

import numpy as np
import pytest

import attn_c
from conftest import to_torch, torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))

from recorded_layers import BOUNDS, NODES, error  # noqa: E402

TYPES = {name: getattr(torch, name) for name in BOUNDS}


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name.replace(" ", "_"))
def test_layer(ctx, node, dtype):
    inputs = {name: to_torch(array).to(TYPES[dtype]) if array.dtype == np.float32
              else to_torch(array) for name, array in node.inputs.items()}
    if "total_sequence_length" in inputs:
        inputs["total_sequence_length"] = node.inputs["total_sequence_length"]
    domain, version, type_name = node.operator
    op = ctx.op(domain, type_name, version, **node.attributes)
    ran = 0
    for engine in (None, *ctx.info.engines):
        try:
            got = op(outputs=list(node.want), engine=engine, **inputs)
        except attn_c.Unsupported:
            assert engine is not None
            continue
        ran += 1
        torch.cuda.synchronize()
        for name in node.want:
            off = error(node, name, getattr(got, name).float().cpu().numpy())
            assert off <= BOUNDS[dtype], (engine, name, off)
    assert ran >= 2  # the engine of choice, and it or another by name
