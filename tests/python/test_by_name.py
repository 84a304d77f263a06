"""Plan.execute takes its tensors in one step of C++: it means what the layer in Python means."""

import numpy as np
import pytest

import attn_c
from conftest import assert_close, expected, prompt


class Producer:
    """DLPack by a function; what it was asked."""

    def __init__(self, make, device=(1, 0)):
        self.make = make
        self.device = device
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        return self.make(**keywords)


def raising(error):
    def make(**keywords):
        raise error

    return make


@pytest.fixture
def plan(op):
    return op.prepare(prompt(), ["output"])


@pytest.fixture(params=["session", "pool"])
def execute(plan, request):
    """Executes the plan on inputs; the output."""
    session = plan.op.context.session() if request.param == "session" else None

    def call(inputs, output=None, **options):
        output = np.full((2, 5, 64), np.nan, np.float32) if output is None else output
        plan.execute(inputs, {"output": output}, session=session, **options)
        return output

    return call


def test_every_kind_of_value_gives_the_same(execute):
    inputs = prompt()
    query = inputs["query"]
    want = execute(inputs).tobytes()
    strange = np.repeat(query, 2, 1)[:, ::2]
    read_only = query.copy()
    read_only.setflags(write=False)
    for other in (attn_c.view(query), strange, read_only, Producer(query.__dlpack__)):
        assert execute({**inputs, "query": other}).tobytes() == want
    assert execute({**inputs, "seqlens_k": [4, 4], "total_sequence_length": 5}).tobytes() == want
    assert execute({**inputs, "past_key": None}).tobytes() == want
    output = np.zeros((2, 5, 64), np.float32)
    execute(inputs, attn_c.view(output))
    assert output.tobytes() == want


def test_a_producer_is_asked_once(execute):
    query = Producer(prompt()["query"].__dlpack__)
    with pytest.raises(attn_c.InvalidArgument, match="seqlens_k"):
        execute({**prompt(), "query": query, "seqlens_k": object()})
    assert query.asked == [{"max_version": (1, 1)}]


def test_a_producer_of_the_first_protocol_is_asked_without_a_version(execute):
    def old(**keywords):
        if keywords:
            raise TypeError("unexpected keyword argument")
        return prompt()["query"].__dlpack__()

    query = Producer(old)
    assert_close(execute({**prompt(), "query": query}), expected(prompt(), 5)["output"])
    assert query.asked == [{"max_version": (1, 1)}, {}]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, ZeroDivisionError])
def test_what_is_no_refusal_of_the_producer_propagates(execute, op, error):
    query = Producer(raising(error("stop")))
    for use in (execute, lambda inputs: op(**inputs), lambda inputs: op.bind(None, inputs)):
        query.asked.clear()
        with pytest.raises(error):
            use({**prompt(), "query": query})
        assert len(query.asked) == 1


@pytest.mark.parametrize("error", [TypeError, BufferError, ValueError, RuntimeError])
def test_refusals_of_the_producer_name_the_argument(execute, op, error):
    query = Producer(raising(error("it needs a gradient")))
    for use in (execute, lambda inputs: op(**inputs), lambda inputs: op.bind(None, inputs)):
        with pytest.raises(attn_c.InvalidArgument) as caught:
            use({**prompt(), "query": query})
        assert str(caught.value).startswith("GroupQueryAttention 'layer 0': query: expected")
        assert str(caught.value).endswith("got Producer: it needs a gradient")


class WithoutPlace:
    def __dlpack__(self, **keywords):
        return prompt()["query"].__dlpack__(**keywords)


@pytest.mark.parametrize("value, words", [
    (5.0, "query: expected a tensor with DLPack of type float32"),
    (("float32", (2, 5, 64)), "query: expected a tensor; got a type and a shape without data"),
    (attn_c.TensorSpec("float32", (2, 5, 64)), "got a type and a shape without data"),
    (np.zeros((2, 5, 64), np.complex64),
     "query: expected a tensor of type float32 or .*; got complex64"),
    (Producer(np.zeros((2, 5, 64), np.complex64).__dlpack__),
     "query: expected a tensor of type float32 .*complex64"),
    (Producer(lambda **keywords: 5), "query: .*no DLPack capsule"),
    (np.zeros((2, 5, 64), np.longdouble), "query: expected .* or bfloat16; got "),
    (np.zeros((2, 5, 64), object), "query: expected .* or bfloat16; got object"),
    (np.zeros((2, 5, 64), "datetime64[s]"), "query: expected .*; got datetime64")])
def test_all_ways_refuse_alike(execute, op, value, words):
    for use in (execute, lambda inputs: op(**inputs)):
        with pytest.raises(attn_c.InvalidArgument, match=words):
            use({**prompt(), "query": value})


def test_outputs_need_memory_and_mappings(plan, execute):
    inputs = prompt()
    for outputs in ({"output": None}, {}):
        with pytest.raises(attn_c.InvalidArgument, match="output"):
            plan.execute(inputs, outputs, session=plan.op.context.session())
    for wrong in (None, [("query", 1)], 5):
        with pytest.raises(attn_c.InvalidArgument, match="inputs: expected a mapping"):
            plan.execute(wrong, {})
        with pytest.raises(attn_c.InvalidArgument, match="outputs: expected a mapping"):
            plan.execute(inputs, wrong)
    for session in (5, "x", plan.op.context, plan):
        with pytest.raises(attn_c.InvalidArgument, match="'layer 0': session: expected a Session"):
            plan.execute(inputs, {"output": None}, session=session)
        with pytest.raises(attn_c.InvalidArgument, match="'layer 0': session: expected a Session"):
            plan.op(session=session, **inputs)
        with pytest.raises(attn_c.InvalidArgument, match="'layer 0': session: expected a Session"):
            plan.op.bind(session)
    with pytest.raises(attn_c.InvalidArgument, match="has no input 'nonsense'"):
        execute({**inputs, "nonsense": None})
    with pytest.raises(attn_c.InvalidArgument, match="has no input 7"):
        execute({**inputs, 7: inputs["query"]})


def test_a_dictionary_that_changes_during_the_call_is_refused(execute):
    inputs = prompt()
    query = inputs["query"]

    def change(**keywords):
        inputs.clear()
        inputs.update({f"k{number}": 1 for number in range(50)})
        return query.__dlpack__(**keywords)

    inputs["query"] = Producer(change)
    with pytest.raises(RuntimeError, match="changed during the call"):
        execute(inputs)


def test_the_stream_reaches_producers_on_a_device_alone(plan):
    """As far as the library's refusal of a stream on the CPU."""
    inputs = prompt()
    host = Producer(inputs["key"].__dlpack__)
    device = Producer(lambda stream, **keywords: inputs["query"].__dlpack__(**keywords), (2, 0))
    without = dict(inputs, value=WithoutPlace())
    for session in (None, plan.op.context.session()):
        for each in (host, device):
            each.asked.clear()
        with pytest.raises(attn_c.InvalidArgument, match="stream"):
            plan.execute({**inputs, "key": host, "query": device}, {}, stream=7, session=session)
        assert host.asked == [{"max_version": (1, 1)}]
        assert device.asked == [{"max_version": (1, 1), "stream": 7}]
        with pytest.raises(attn_c.InvalidArgument, match="value: .*no __dlpack_device__"):
            plan.execute(without, {}, stream=7, session=session)
