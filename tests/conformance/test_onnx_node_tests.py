"""The official node tests of the package onnx, through onnx.backend.test, under every engine."""

import json
import subprocess
import sys

import pytest
from onnx.backend.test import BackendTest

import attn_c
from attn_c import _verify, onnx_backend

# Node tests of onnx 1.23.2, those of the operators' expanded functions left out.
CASES = {"Attention": 93, "LinearAttention": 14, "RotaryEmbedding": 8, "TensorScatter": 3}
# Engines that must pass all of an operator's cases.
COMPLETE = {"Attention": ("generic",), "LinearAttention": ("recurrent", "recurrent-serial"),
            "RotaryEmbedding": ("simd-rotary", "generic-rotary"),
            "TensorScatter": ("block-scatter", "generic-scatter")}


@pytest.fixture(scope="session")
def outcomes():
    return _verify.run()


@pytest.mark.parametrize("operator", CASES)
def test_every_case_is_counted(outcomes, operator):
    assert len({one.case for one in outcomes if one.operator == operator}) == CASES[operator]


@pytest.mark.parametrize("operator", CASES)
def test_every_case_passes(outcomes, operator):
    mine = [one for one in outcomes if one.operator == operator]
    failed = [one for one in mine if one.state == "failed"]
    assert not failed, failed[:5]
    chosen = [one for one in mine if one.engine == "chosen" and one.state == "passed"]
    assert len(chosen) == CASES[operator]


@pytest.mark.parametrize("operator", COMPLETE)
def test_engines_that_take_everything(outcomes, operator):
    for engine in COMPLETE[operator]:
        passed = [one for one in outcomes if one.operator == operator and one.engine == engine
                  and one.state == "passed"]
        assert len(passed) == CASES[operator], engine


def test_the_forced_engine_is_the_one_that_runs(outcomes):
    for one in outcomes:
        if one.engine != "chosen" and one.state == "passed":
            assert f"by {one.engine}" in one.text, one


def test_a_wrong_result_fails():
    """The runner compares what the backend gives, so that a pass means something."""

    class Wrong(onnx_backend.OnnxBackend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            run = super().prepare(model, device)

            class Off:
                def run(self, inputs):
                    return tuple(array + 1 for array in run.run(inputs))

            return Off()

    tests = BackendTest(Wrong, __name__).include("^test_rotary_embedding_cpu$")
    case = tests.test_cases["OnnxBackendNodeModelTest"]("test_rotary_embedding_cpu")
    with pytest.raises(AssertionError):
        case.debug()


def test_the_command():
    """python -m attn_c verify --json, of one operator."""
    run = subprocess.run(
        [sys.executable, "-m", "attn_c", "verify", "--json", "--operator", "TensorScatter",
         "--complete"], capture_output=True, text=True, check=True)
    report = json.loads(run.stdout)
    assert report["passed"] == report["total"] == CASES["TensorScatter"]
    assert report["failed"] == report["missing"] == report["refused"] == 0


def test_what_is_no_single_node_is_refused():
    import onnx

    graph = onnx.helper.make_graph([], "nothing", [], [])
    model = onnx.helper.make_model(graph)
    assert not onnx_backend.OnnxBackend.is_compatible(model)
    with pytest.raises(attn_c.Unsupported, match="0 nodes; expected one"):
        onnx_backend.OnnxBackend.prepare(model)
