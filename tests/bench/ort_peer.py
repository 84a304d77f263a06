"""ONNX Runtime as a peer of the benchmarks on the CPU."""

import functools
import pathlib
import sys

import memory

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))
import ort_node  # noqa: E402

NAME = "onnxruntime"
TYPES = ("float32", "float16")  # it has no bfloat16 kernels for the CPU


def version():
    return ort_node.version()["onnxruntime"]


def make_call(operator, attributes, sets, thread_count):
    """A function that runs the next argument set. The arrays of `sets` must outlive it."""
    inputs, outputs = sets[0]
    model = ort_node.make_model(
        operator, attributes, ort_node.signature_of(inputs),
        {name: (array.dtype.name, None) for name, array in outputs.items()})
    session = ort_node.make_session(model, thread_count)
    return memory.taking_turns([
        functools.partial(session.run_with_iobinding, ort_node.bind(session, *arguments))
        for arguments in sets], start=0.5)
