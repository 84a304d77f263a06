"""ONNX Runtime as a peer of the GroupQueryAttention benchmark."""

import functools
import pathlib
import sys

import gqa_memory

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))
import ort_gqa  # noqa: E402

NAME = "onnxruntime"
TYPES = ("float32", "float16")  # it has no bfloat16 kernel for the CPU


def version():
    return ort_gqa.version()["onnxruntime"]


def make_call(case, sets, thread_count):
    """A function that runs the next argument set. The arrays of `sets` must outlive it."""
    model = ort_gqa.make_model(case.type, gqa_memory.attributes(case), set(sets[0][0]))
    session = ort_gqa.make_session(model, thread_count)
    return gqa_memory.taking_turns([
        functools.partial(session.run_with_iobinding, ort_gqa.bind(session, inputs, outputs))
        for inputs, outputs in sets], start=0.5)
