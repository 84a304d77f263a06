"""Tensors in and out: DLPack of old and new producers, lifetimes, families, read-only memory."""

import gc
import sys
import types
import weakref

import numpy as np
import pytest

import attn_c
from attn_c import native
from conftest import assert_close, decode, expected, prompt


class Foreign:
    """A tensor of another library: DLPack over a numpy array, with what was asked of it."""

    def __init__(self, array, versioned=True, device=None):
        self.array = array
        self.versioned = versioned
        self.device = device
        self.asked = []

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        self.asked.append(dict(keywords))
        if "max_version" in keywords and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        keywords.pop("stream", None)
        return self.array.__dlpack__(**keywords)


@pytest.fixture
def foreign_module(monkeypatch):
    """A library whose tensors are Foreign: the package looks up from_dlpack by their module."""
    module = types.ModuleType("foreign")
    module.from_dlpack = lambda array: Foreign(np.from_dlpack(array))
    monkeypatch.setitem(sys.modules, "foreign", module)
    monkeypatch.setattr(Foreign, "__module__", "foreign")
    return module


def capsule_name(capsule):
    """The name within a capsule's text, <capsule object "name" at ...>."""
    return repr(capsule).split('"')[1]


@pytest.mark.parametrize("versioned", [True, False])
def test_foreign_tensors_go_in_without_a_copy(op, versioned, foreign_module):
    inputs = decode()
    query = Foreign(inputs["query"], versioned)
    key = inputs["past_key"]
    out = op(out={"present_key": Foreign(key, versioned)}, **dict(inputs, query=query))
    assert query.asked[0] == {"max_version": (1, 1)}
    assert len(query.asked) == (1 if versioned else 2)
    assert np.array_equal(key[:, :, :7], expected(inputs, 16)["present_key"][:, :, :7])
    assert isinstance(out.output, Foreign)
    assert_close(out.output.array, expected(inputs, 16)["output"])


@pytest.mark.parametrize("module", [None, types.ModuleType("foreign")])
def test_results_are_numpys_where_the_family_takes_no_dlpack(op, module, monkeypatch):
    """A family whose module is not there, or has no from_dlpack, costs no result."""
    monkeypatch.setattr(Foreign, "__module__", "foreign")
    monkeypatch.delitem(sys.modules, "foreign", raising=False)
    if module is not None:
        monkeypatch.setitem(sys.modules, "foreign", module)
    inputs = prompt()
    out = op(**dict(inputs, query=Foreign(inputs["query"])))
    assert all(isinstance(array, np.ndarray) for array in out)
    assert_close(out.output, expected(inputs, 5)["output"])


def test_a_subclass_is_of_its_bases_family(op, foreign_module):
    class Mine(Foreign):
        pass

    assert Mine.__module__ != "foreign"
    inputs = prompt()
    out = op(**dict(inputs, query=Mine(inputs["query"])))
    assert type(out.output) is Foreign
    assert_close(out.output.array, expected(inputs, 5)["output"])


def test_results_that_numpy_cannot_pass_on_go_to_the_family_all_the_same(op, foreign_module):
    foreign_module.from_dlpack = lambda given: ("bfloat16", given)
    family = attn_c._tensors.Family(Foreign(prompt()["query"]), op.context)
    memory = family.empty(attn_c.TensorSpec("bfloat16", (2, 3)), "output")
    assert isinstance(memory, attn_c.Tensor) and memory.dtype == "bfloat16"
    assert family.finish(memory) == ("bfloat16", memory)


def test_the_stream_reaches_producers_on_a_device_alone(op):
    host, device = Foreign(prompt()["query"]), Foreign(prompt()["key"], device=(2, 0))
    arguments = op.input_arguments({"query": host, "key": device}, stream=7)
    assert arguments.native.size() == 2
    assert host.asked == [{"max_version": (1, 1)}]
    assert device.asked == [{"max_version": (1, 1), "stream": 7}]


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_keep_their_names(versioned):
    array = np.zeros(4, np.float32)
    capsule = array.__dlpack__(max_version=(1, 1)) if versioned else array.__dlpack__()
    name = capsule_name(capsule)
    native.ArgumentList().add_capsule(0, capsule)
    assert capsule_name(capsule) == name == ("dltensor_versioned" if versioned else "dltensor")


def test_a_used_capsule_is_refused():
    array = np.zeros(4, np.float32)

    class Used(Foreign):
        def __dlpack__(self, **keywords):
            capsule = self.array.__dlpack__()
            np.from_dlpack(types.SimpleNamespace(
                __dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0)))
            return capsule

    with pytest.raises(BufferError, match="no DLPack capsule, or was used before"):
        native.ArgumentList().add_capsule(0, Used(array).__dlpack__())


def test_a_call_lets_go_of_its_inputs(op):
    query = prompt()["query"]
    watch = weakref.ref(query)
    op(**dict(prompt(), query=query))
    before = sys.getrefcount(query)
    op(**dict(prompt(), query=query))
    gc.collect()
    assert sys.getrefcount(query) == before
    del query
    gc.collect()
    assert watch() is None


def test_a_binding_keeps_its_tensors_until_it_is_closed(op):
    inputs, output = prompt(), np.zeros((2, 5, 64), np.float32)
    watch = [weakref.ref(array) for array in (*inputs.values(), output)]
    kept = expected(inputs, 5)["output"]
    binding = op.bind(None, inputs, {"output": output})
    del inputs
    gc.collect()
    assert all(reference() is not None for reference in watch)
    binding.execute(prepare=True)
    assert_close(output, kept)
    binding.close()
    del output
    gc.collect()
    assert all(reference() is None for reference in watch)


def test_bindings_replace_what_they_keep(op):
    inputs = prompt()
    first = inputs["query"]
    watch = weakref.ref(first)
    output = np.zeros((2, 5, 64), np.float32)
    with op.bind() as binding:
        for name, value in inputs.items():
            binding.set_input(name, value)
        binding.set_output("output", output)
        binding.execute(prepare=True)
        second = prompt(seed=9)["query"]
        binding.set_input("query", second)
        inputs["query"] = second
        del first
        gc.collect()
        assert watch() is None
        binding.execute(prepare=True)
    assert_close(output, expected(inputs, 5)["output"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_read_only_memory_is_an_input_and_no_output(op, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="numpy alone has no bfloat16").bfloat16
    inputs = decode(dtype=dtype)
    for name in ("past_key", "query"):
        inputs[name].setflags(write=False)
    out = op(**inputs)
    assert np.array_equal(out.present_key, expected(inputs, 16)["present_key"])
    with pytest.raises(attn_c.InvalidArgument, match="present_key.*read-only"):
        op(out={"present_key": inputs["past_key"]}, **inputs)


class OfOldNumpy(np.ndarray):
    """As arrays of numpy 1.26 are: no versions, and no DLPack for read-only memory."""

    def __dlpack__(self, *, stream=None):
        if not self.flags.writeable:
            raise BufferError("Cannot export readonly array since signalling readonly is "
                              "unsupported by DLPack")
        return super().__dlpack__(stream=stream)


def test_read_only_arrays_of_old_numpy_are_inputs_and_no_outputs(op):
    inputs = prompt()
    query = inputs["query"].view(OfOldNumpy)
    query.setflags(write=False)
    inputs["query"] = query
    output = np.zeros((2, 5, 64), np.float32)
    plan = op.prepare(inputs, ["output"])
    plan.execute(inputs, {"output": output}, session=op.context.session())
    assert_close(output, expected(prompt(), 5)["output"])
    assert_close(op(**inputs).output, output)
    for use in (lambda: plan.execute(inputs, {"output": query}),
                lambda: op(out={"output": query}, **inputs)):
        with pytest.raises(attn_c.InvalidArgument, match="output.*read-only"):
            use()


def test_arrays_that_cannot_be_described_are_refused_by_name(op):
    with pytest.raises(attn_c.InvalidArgument, match="'layer 0': query: "):
        op(**dict(prompt(), query=prompt()["query"].astype(">f4")))
    with pytest.raises(attn_c.InvalidArgument, match="query: expected a tensor.*list"):
        op(**dict(prompt(), query=[1.0, 2.0]))
    for lengths in ([2**31, 4], [4, -2**31 - 1], [2**63, -1], [2**200, 4], [4, 2**20000]):
        with pytest.raises(attn_c.InvalidArgument, match="seqlens_k.*does not fit int32"):
            op(**dict(prompt(), seqlens_k=lengths))
    with pytest.raises(attn_c.InvalidArgument, match="total_sequence_length.*an integer of 20001"):
        op(**dict(prompt(), total_sequence_length=2**20000))
    with pytest.raises(attn_c.InvalidArgument, match="seqlens_k.*inhomogeneous"):
        op(**dict(prompt(), seqlens_k=[[4], [4, 4]]))
    for lengths in ([4.0, 4.0], [True, False], [None, 4]):
        with pytest.raises(attn_c.InvalidArgument, match="seqlens_k: expected a tensor.*list"):
            op(**dict(prompt(), seqlens_k=lengths))
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="numpy alone has no bfloat16")
    packed = np.zeros(4, np.dtype([("skip", "u1"), ("value", ml_dtypes.bfloat16)]))["value"]
    with pytest.raises(attn_c.InvalidArgument, match="strides"):
        op(**dict(prompt(), head_sink=packed))


def test_rank_is_limited(op):
    with pytest.raises(attn_c.InvalidArgument, match="query: .*at most 8 axes"):
        op(**dict(prompt(), query=np.zeros((1,) * 9, np.float32)))


def test_outputs_of_torch_are_torchs_own_memory(op, monkeypatch):
    """With a stand-in: torch is asked for memory of the right type on the input's device."""
    module = types.ModuleType("torch")
    module.float32 = np.float32

    class Tensor(Foreign):
        pass

    made = []

    def empty(shape, dtype, device):
        made.append((shape, dtype, device))
        return Tensor(np.full(shape, np.nan, dtype))

    module.empty = empty
    Tensor.__module__ = "torch"
    monkeypatch.setitem(sys.modules, "torch", module)
    inputs = {name: Tensor(array) for name, array in prompt().items()}
    out = op(outputs=["output"], **inputs)
    assert isinstance(out.output, Tensor)
    assert made == [((2, 5, 64), np.float32, None)]
    assert_close(out.output.array, expected(prompt(), 5)["output"])
