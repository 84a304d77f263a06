"""The official node tests of the package onnx on the device, under every engine."""

import pytest

from attn_c import _verify

pytest.importorskip("onnx", reason="the node tests come in the package onnx")

CASES = {"Attention": 93, "LinearAttention": 14, "RotaryEmbedding": 8, "TensorScatter": 3}


@pytest.mark.parametrize("operator", CASES)
def test_node_tests(ctx, operator):
    """Every case passes, under each engine that takes it. An engine that serves callers who name it
    alone is refused as the library's choice, and counts by its name."""
    outcomes = _verify.run("cuda", operators=(operator,))
    wrong = [one for one in outcomes if one.state in ("failed", "missing")
             and not (one.engine == "chosen" and one.text.startswith("Unsupported:"))]
    assert not wrong, wrong[:5]
    passed = [one for one in outcomes if one.state == "passed"]
    assert len({one.case for one in passed}) == CASES[operator]
    for one in passed:
        assert one.engine == "chosen" or f"by {one.engine}" in one.text, one
