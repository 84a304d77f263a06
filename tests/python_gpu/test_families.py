"""CuPy, JAX and no other library: arrays go in without a copy, results come back in kind."""

import numpy as np
import pytest

import attn_c
from conftest import CAPACITY, Step, assert_close


def addresses(op, inputs):
    """Where the plugin sees the inputs."""
    arguments = op.input_arguments(inputs, attn_c._streams.NO_WAIT)
    return {name: (arguments.native.tensor(number).data or 0)
            + arguments.native.tensor(number).byte_offset for number, name in enumerate(inputs)}


def test_cupy(op):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    step = Step(11)
    inputs, outputs = step.on(cupy.asarray)
    seen = addresses(op, inputs)
    assert all(seen[name] == array.data.ptr for name, array in inputs.items()
               if isinstance(array, cupy.ndarray))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        given = {name: outputs[name] for name in ("present_key", "present_value")}
        out = op(**inputs, outputs=["output"], out=given)
        assert isinstance(out.output, cupy.ndarray)
        assert out.present_key is outputs["present_key"]
    stream.synchronize()
    assert_close(cupy.asnumpy(out.output), step.expected())
    inputs, outputs = step.on(cupy.asarray)
    cupy.cuda.Device().synchronize()
    with op.bind(None, inputs, outputs) as binding:
        binding.execute(stream, prepare=True)
        stream.synchronize()
    assert_close(cupy.asnumpy(outputs["output"]), step.expected())


def test_jax(op):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    step = Step(12)
    inputs = {name: jax.device_put(array) for name, array in step.inputs.items()}
    inputs["total_sequence_length"] = step.total
    seen = addresses(op, inputs)
    assert all(seen[name] == array.unsafe_buffer_pointer() for name, array in inputs.items()
               if isinstance(array, jax.Array))
    out = op(**inputs)
    assert isinstance(out.output, jax.Array)
    assert next(iter(out.output.devices())).platform == "gpu"
    assert_close(np.asarray(out.output), step.expected())


def test_tensors_of_the_package_alone(ctx, op):
    """A captured step by the plugin's own streams and graphs, with other lengths: eager bits."""
    step = Step(13)

    def bits(lengths, graph=None, stream=None):
        for name in fresh:
            inputs[name].copy_from(fresh[name], stream)
        inputs["seqlens_k"].copy_from(np.array(lengths, np.int32), stream)
        if graph is None:
            binding.execute(stream)
        else:
            graph.launch(stream)
        stream.synchronize()
        return outputs["output"].numpy(stream).tobytes()

    inputs, outputs = step.on(ctx.put)
    fresh = dict(step.inputs)
    assert inputs["query"].device == (2, ctx.device_id)
    with ctx.stream() as stream, op.bind(None, inputs, outputs) as binding:
        binding.prepare()
        first = bits([20, 33], stream=stream)
        assert_close(np.frombuffer(first, np.float16).reshape(2, 1, 512), step.expected())
        with ctx.capture(stream) as graph:
            binding.execute(stream)
        for lengths in ([20, 33], [0, CAPACITY - 1], [7, 7], [20, 33]):
            assert bits(lengths, graph, stream) == bits(lengths, stream=stream)
        graph.close()


def test_results_of_own_tensors_are_own_tensors(ctx, op):
    step = Step(14)
    inputs, outputs = step.on(ctx.put)
    out = op(**inputs, outputs=["output"], out={
        name: outputs[name] for name in ("present_key", "present_value")})
    assert isinstance(out.output, attn_c.Tensor)
    assert_close(out.output.numpy(), step.expected())


def test_a_capture_that_fails_is_given_up(ctx, op):
    inputs, outputs = Step(15).on(ctx.put)
    with ctx.stream() as stream, op.bind(None, inputs, outputs) as binding:
        with pytest.raises(ZeroDivisionError):
            with ctx.capture(stream):
                raise ZeroDivisionError
        binding.execute(stream, prepare=True)  # the stream is as before
        stream.synchronize()


def test_pinned_memory_and_empty_tensors(ctx):
    pinned = ctx.put(np.arange(5, dtype=np.float32), kind="pinned")
    assert pinned.device[0] == 3
    assert pinned.numpy().tolist() == [0, 1, 2, 3, 4]
    assert ctx.empty((0, 3), "bfloat16").nbytes == 0
