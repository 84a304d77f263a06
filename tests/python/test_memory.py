"""attn_c.Tensor: memory that speaks DLPack, both ways; streams, and graphs that the CPU lacks."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import attn_c
from conftest import assert_close, expected, prompt


def test_a_tensor_goes_in_and_comes_back_as_an_array(ctx):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    tensor = ctx.put(values)
    assert (tensor.dtype, tensor.shape, tensor.strides) == ("float32", (2, 3, 4), (12, 4, 1))
    assert (tensor.nbytes, tensor.device, len(tensor)) == (96, (1, 0), 2)
    assert tensor.address % 64 == 0
    np.testing.assert_array_equal(tensor.numpy(), values)
    np.testing.assert_array_equal(np.from_dlpack(tensor), values)
    np.from_dlpack(tensor)[0, 0, 0] = -1  # without a copy
    assert tensor.numpy()[0, 0, 0] == -1


def test_memory_lives_as_long_as_anybody_has_it(ctx):
    tensor = ctx.put(np.arange(1024, dtype=np.int64))
    memory = weakref.ref(tensor._owner)
    array = np.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert memory() is not None
    assert array.sum() == 1024 * 1023 // 2
    del array
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_a_capsule_that_nobody_takes_is_given_back(ctx, version):
    tensor = ctx.empty((4,))
    before = sys.getrefcount(tensor)
    capsule = tensor.__dlpack__(max_version=version)
    versioned = version is not None and version[0] >= 1
    assert ("dltensor_versioned" in repr(capsule)) == versioned
    assert sys.getrefcount(tensor) == before + 1
    del capsule
    assert sys.getrefcount(tensor) == before


def test_a_consumer_may_let_go_on_another_thread(ctx):
    tensor = ctx.put(np.ones(8, np.float32))
    arrays = [np.from_dlpack(tensor)]
    before = sys.getrefcount(tensor)
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(tensor) == before - 1


def test_a_consumer_may_outlive_the_interpreter():
    """What still lives when Python ends is freed with the process, without a crash."""
    code = ("import attn_c, numpy as np, builtins\n"
            "builtins.kept = np.from_dlpack(attn_c.Context('cpu').put(np.ones(4)))\n")
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_copies_and_other_devices_are_refused(ctx):
    tensor = ctx.empty((2,))
    with pytest.raises(BufferError, match="never copied"):
        tensor.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="where it lies"):
        tensor.__dlpack__(dl_device=(2, 0))
    tensor.__dlpack__(dl_device=(1, 0), copy=False)


def test_a_read_only_view_stays_so():
    array = np.arange(4.0)
    array.flags.writeable = False
    tensor = attn_c.view(array)
    assert tensor.read_only
    assert not np.from_dlpack(tensor).flags.writeable
    with pytest.raises(BufferError, match="max_version"):
        tensor.__dlpack__()
    with pytest.raises(attn_c.InvalidArgument, match="read-only"):
        tensor.copy_from(np.ones(4))


def test_bfloat16_without_another_package(op):
    """Bits of bfloat16 in arrays of uint16: the upper halves of float32."""
    inputs = prompt()

    def rounded(array):
        return (array.view(np.uint32) >> 16).astype(np.uint16)

    bits = {name: rounded(inputs[name]) for name in ("query", "key", "value")}
    out = np.zeros((2, 5, 64), np.uint16)
    op(**{**inputs, **{name: attn_c.view(array, "bfloat16") for name, array in bits.items()}},
       out={"output": attn_c.view(out, "bfloat16")}, outputs=["output"])
    wide = {name: (array.astype(np.uint32) << 16).view(np.float32) for name, array in bits.items()}
    got = (out.astype(np.uint32) << 16).view(np.float32)
    assert_close(got, expected({**inputs, **wide}, 5)["output"], 4e-3)


def test_results_of_tensors_are_tensors(op):
    inputs = prompt()
    given = {name: attn_c.view(inputs[name], "float32") for name in ("query", "key", "value")}
    out = op(**{**inputs, **given})
    assert isinstance(out.output, attn_c.Tensor)
    assert_close(out.output.numpy(), expected(inputs, 5)["output"])


def test_views_with_strides_and_offsets(op):
    inputs = prompt()
    wide = np.full((2, 5, 80), np.nan, np.float32)
    wide[:, :, 16:] = inputs["query"]
    query = attn_c.view(wide, shape=(2, 5, 64), strides=(400, 80, 1), byte_offset=64)
    assert query.address == wide.ctypes.data + 64
    assert_close(op(**{**inputs, "query": query}, outputs=["output"]).output.numpy(),
                 expected(inputs, 5)["output"])


def test_what_lies_outside_the_array_is_refused(op):
    """At once, and not only by calls: everybody may read it by DLPack."""
    array = np.zeros((2, 5, 64), np.float32)
    for beyond in ({"byte_offset": 4}, {"shape": (1 << 30,)}, {"dtype": "float64"},
                   {"strides": (320, 64, 2)}, {"shape": (2, 2), "strides": (-1, 1)},
                   {"shape": (2,), "strides": (640,)}):
        with pytest.raises(attn_c.InvalidArgument, match="within the 2560 bytes that there are"):
            attn_c.view(array, **beyond)
    with pytest.raises(attn_c.InvalidArgument, match="within the 0 bytes"):
        attn_c.view(np.zeros(0), shape=(1,))
    with pytest.raises(attn_c.InvalidArgument, match="no negative sizes"):
        attn_c.view(array, shape=(-1, 4))
    assert attn_c.view(array, shape=(0, 1 << 40)).nbytes == 0
    backwards = attn_c.view(array, shape=(640,), strides=(-1,), byte_offset=4 * 639)
    assert backwards.address == array.ctypes.data + 4 * 639


@pytest.mark.parametrize("name", ["dtype", "shape", "strides", "device", "read_only", "address",
                                  "nbytes", "other"])
def test_what_a_tensor_says_of_its_memory_stays_so(ctx, name):
    tensor = ctx.empty((2, 3))
    with pytest.raises(AttributeError):
        setattr(tensor, name, (1 << 22,))
    assert tensor.shape == (2, 3) and tensor.numpy().shape == (2, 3)


def test_what_owns_memory_or_handles_is_not_copied(ctx, op):
    objects = [ctx, op, ctx.session(), ctx.empty((2,)), ctx.empty((2,))._owner, ctx.stream(),
               attn_c.Graph(), op.bind(), op.prepare(prompt())]
    for thing in objects:
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a {type(thing).__name__} of attn_c cannot be"):
                make(thing)


@pytest.mark.parametrize("dtype", [">f4", ">i8", "bfloat16"])
def test_elements_of_the_other_byte_order_are_refused(ctx, op, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="numpy alone has no bfloat16").bfloat16
    foreign = np.dtype(dtype).newbyteorder(">")
    array = np.ones((2, 5, 64)).astype(foreign)
    tensor = ctx.empty(array.shape, foreign.newbyteorder("="))
    plan = op.prepare(prompt(), ["output"])
    y = np.zeros((2, 5, 64), np.float32)
    spec = {**prompt(), "query": (foreign, (2, 5, 64))}
    for use in (lambda: ctx.put(array), lambda: tensor.copy_from(array),
                lambda: attn_c.view(array), lambda: ctx.empty((2,), foreign),
                lambda: op(**{**prompt(), "query": array}), lambda: op.query(**spec),
                lambda: op.bind(None, {"query": array}),
                lambda: plan.execute({**prompt(), "query": array}, {"output": y},
                                     session=ctx.session())):
        with pytest.raises(attn_c.InvalidArgument, match="byte order"):
            use()


@pytest.mark.parametrize("stream", [0, -2, 7, "s"])
def test_a_tensor_of_the_host_has_no_streams(ctx, stream):
    tensor = ctx.empty((2,))
    with pytest.raises(BufferError, match="stream: expected"):
        tensor.__dlpack__(stream=stream)
    tensor.__dlpack__(stream=-1)
    tensor.__dlpack__(stream=None)


@pytest.mark.parametrize("call, words", [
    (lambda ctx: ctx.empty((2,), kind="nowhere"), "device, host, pinned"),
    (lambda ctx: ctx.empty((-1,)), "negative"),
    (lambda ctx: ctx.empty((2,), "complex64"), "complex64"),
    (lambda ctx: ctx.empty((2,)).copy_from(np.ones(2)), "float32.*float64"),
    (lambda ctx: ctx.empty((2,)).copy_from(np.ones(3, np.float32)), "expected float32"),
    (lambda ctx: attn_c.view(np.ones((4, 4))[:, ::2]), "without gaps"),
    (lambda ctx: attn_c.view(np.ones(4), shape=(2, 2), strides=(1,)), "strides"),
    (lambda ctx: attn_c.view(np.ones(4), shape=(2,), strides=(2,)).numpy(), "without gaps"),
])
def test_refusals_say_what_is_accepted(ctx, call, words):
    with pytest.raises(attn_c.InvalidArgument, match=words):
        call(ctx)


def test_a_view_is_not_copied(ctx):
    with pytest.raises(attn_c.Unsupported, match="Context.put"):
        attn_c.view(np.ones(4)).numpy()


def test_room_that_there_is_not(ctx):
    with pytest.raises(attn_c.OutOfMemory):
        ctx.empty((1 << 50,), "uint8")


def test_tensors_without_elements(ctx):
    tensor = ctx.empty((0, 4), "float16")
    assert (tensor.nbytes, tensor.numpy().shape) == (0, (0, 4))
    assert ctx.put(np.float32(3)).numpy() == 3
    with pytest.raises(TypeError, match="axes"):
        len(ctx.put(np.float32(3)))


# ---- streams and graphs -------------------------------------------------------------------------

class Protocol:
    def __cuda_stream__(self):
        return 0, 42


class AsProperty:
    __cuda_stream__ = (0, 43)


class Torch:
    cuda_stream = 44


class Cupy:
    ptr = 45


@pytest.mark.parametrize("stream, handle", [
    (None, None), (0, None), (7, 7), (np.int64(8), 8), (Protocol(), 42), (AsProperty(), 43),
    (Torch(), 44), (Cupy(), 45)])
def test_streams_of_any_library(stream, handle):
    assert attn_c._streams.handle_of(stream) == handle


@pytest.mark.parametrize("pair", [(), (1, 7), (0,), (0, 7, 7), 7, None, "ab"])
def test_streams_of_another_protocol_are_refused(pair):
    class Other:
        def __cuda_stream__(self):
            return pair

    with pytest.raises(attn_c.InvalidArgument, match="__cuda_stream__"):
        attn_c._streams.handle_of(Other())


def test_what_is_no_stream_is_refused(op):
    inputs = prompt()
    with op.bind(None, inputs, {"output": np.empty_like(inputs["query"])}) as binding:
        binding.prepare()
        for stream in ("0", 1.5, object()):
            with pytest.raises(attn_c.InvalidArgument, match="__cuda_stream__"):
                binding.execute(stream)
        with pytest.raises(attn_c.InvalidArgument, match="expected 0 to"):
            binding.execute(-2)


def test_the_stream_of_a_cpu_is_the_null_stream(ctx, op):
    inputs = prompt()
    output = np.full_like(inputs["query"], np.nan)
    with ctx.stream() as stream:
        assert stream.__cuda_stream__() == (0, 0)
        with op.bind(None, inputs, {"output": output}) as binding:
            binding.prepare()
            binding.execute(stream)
        stream.synchronize()
    assert_close(output, expected(inputs, 5)["output"])
    for use in (stream.synchronize, stream.__cuda_stream__, lambda: stream.handle,
                lambda: op(stream=stream, **inputs)):
        with pytest.raises(attn_c.InvalidArgument, match="closed"):
            use()
    stream.close()


def test_a_cpu_has_no_graphs(ctx):
    with pytest.raises(attn_c.Unsupported):
        with ctx.capture(None):
            raise AssertionError("the block of a capture that did not begin has run")
    with pytest.raises(attn_c.InvalidArgument, match="closed"):
        attn_c.Graph().launch()


class Recorder:
    """A tensor that says it lies on a device, and keeps what it is asked for."""

    def __init__(self):
        self.asked = []

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        return attn_c.view(np.zeros(1)).__dlpack__(max_version=(1, 0))


def test_a_producer_is_told_of_the_stream():
    for stream, words in ((None, {}), (5, {"stream": 5}), (attn_c._streams.NO_WAIT,
                                                           {"stream": -1})):
        value = Recorder()
        attn_c._tensors._capsule(value, stream)
        assert value.asked == [{"max_version": (1, 1), **words}]


def test_by_name_and_by_the_layer_are_one(op):
    """The step that takes the usual arguments, and the one that takes the rest."""
    inputs = prompt()
    plan = op.prepare(inputs, ["output"])
    session = op.context.session()
    results = []
    for given in (inputs, {**inputs, "seqlens_k": [4, 4]}, {**inputs, "past_key": None}):
        output = np.full_like(inputs["query"], np.nan)
        plan.execute(given, {"output": output}, session=session)
        results.append(output.tobytes())
    assert len(set(results)) == 1
    for wrong, words in (({"nonsense": 1}, "nonsense"), ({"query": object()}, "query")):
        with pytest.raises(attn_c.InvalidArgument, match=words):
            plan.execute({**inputs, **wrong}, {"output": output}, session=session)
    with pytest.raises(attn_c.InvalidArgument, match="seqlens_k"):
        plan.execute({**inputs, "seqlens_k": np.full(2, 9, np.int32)}, {"output": output},
                     session=session)
