"""PyTorch: tensors in and out, its streams, and capture within torch.cuda.graph."""

import numpy as np
import pytest

import attn_c
from conftest import BATCH, CAPACITY, HEADS, SIZE, Step, assert_close, to_torch, torch

# The keys before the new one of each batch row: at the begin, within, at the end.
LENGTHS = ([0, 5], [40, 7], [CAPACITY - 1, CAPACITY - 2])


def run_eagerly(op, step, lengths, stream=None):
    """Output and caches of one step on memory of its own."""
    inputs, outputs = step.on(to_torch)
    inputs["seqlens_k"].copy_(torch.tensor(lengths, dtype=torch.int32))
    torch.cuda.synchronize()  # the inputs are there, whichever stream reads them
    with op.bind(None, inputs, outputs) as binding:
        binding.prepare()
        binding.execute(stream)
        torch.cuda.synchronize()
    return [outputs[name].clone() for name in ("output", "present_key", "present_value")]


def test_a_call_gives_tensors_of_pytorch_on_the_device(op):
    step = Step()
    inputs, _ = step.on(to_torch)
    out = op(**inputs, outputs=["output", "present_key", "present_value"],
             out={"present_key": inputs["past_key"], "present_value": inputs["past_value"]})
    assert isinstance(out.output, torch.Tensor) and out.output.is_cuda
    assert out.present_key.data_ptr() == inputs["past_key"].data_ptr()
    assert_close(out.output.cpu().numpy(), step.expected())


def test_bfloat16_and_strides(op):
    step = Step(1, np.float32)
    inputs, _ = step.on(lambda array: to_torch(array) if array.dtype == np.int32
                        else to_torch(array).bfloat16())
    wide = torch.full((BATCH, 1, 2 * HEADS * SIZE), torch.nan, device="cuda", dtype=torch.bfloat16)
    wide[:, :, ::2] = inputs["query"]
    inputs["query"] = wide[:, :, ::2]
    out = op(**inputs, outputs=["output"],
             out={"present_key": inputs["past_key"], "present_value": inputs["past_value"]})
    assert out.output.dtype == torch.bfloat16
    assert_close(out.output.float().cpu().numpy(), step.expected(), 2e-2)


@pytest.mark.parametrize("way", ["call", "binding", "plan"])
def test_the_current_stream_of_pytorch_is_the_default(op, way):
    """Work before, the call, and work after stand in one order, without a wait in between."""
    step = Step(2)
    want = step.expected()
    stream = torch.cuda.Stream()
    inputs, outputs = step.on(to_torch)
    query = inputs["query"].clone()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        inputs["query"].zero_()
        inputs["query"].add_(query)
        if way == "call":
            result = op(**inputs, out=outputs).output
        elif way == "binding":
            binding = op.bind(None, inputs, outputs)
            binding.execute(prepare=True)
            result = outputs["output"]
        else:
            op.prepare(inputs, outputs).execute(inputs, outputs, session=op.context.session())
            result = outputs["output"]
        copy = result.clone()
    stream.synchronize()
    assert_close(copy.cpu().numpy(), want)


def test_streams_as_objects_and_as_numbers(op):
    step = Step(3)
    want = run_eagerly(op, step, LENGTHS[1])
    stream = torch.cuda.Stream()
    for given in (stream, stream.cuda_stream, torch.cuda.ExternalStream(stream.cuda_stream)):
        got = run_eagerly(op, step, LENGTHS[1], given)
        assert all(torch.equal(a, b) for a, b in zip(got, want))


@pytest.mark.parametrize("way", ["binding", "plan"])
def test_capture_within_a_graph_of_pytorch(ctx, op, way):
    """Replays with other lengths and other tokens give the bits of eager steps."""
    step = Step(4)
    inputs, outputs = step.on(to_torch)
    fresh = {name: tensor.clone() for name, tensor in inputs.items()
             if isinstance(tensor, torch.Tensor)}
    session = ctx.session()
    binding = op.bind(session, inputs, outputs)
    binding.prepare()
    plan = op.prepare(inputs, outputs)
    binding.execute()  # so that the session has its scratch
    plan.execute(inputs, outputs, session=session)
    torch.cuda.synchronize()
    assert binding.capture_support().capturable

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if way == "binding":
            binding.execute()
        else:
            plan.execute(inputs, outputs, session=session)
    for number, lengths in enumerate((*LENGTHS, LENGTHS[0])):
        for name, tensor in fresh.items():
            inputs[name].copy_(tensor)
        inputs["seqlens_k"].copy_(torch.tensor(lengths, dtype=torch.int32))
        for _ in range(2):  # one right after the other
            graph.replay()
        torch.cuda.synchronize()
        want = run_eagerly(op, step, lengths)
        got = [outputs[name] for name in ("output", "present_key", "present_value")]
        assert all(torch.equal(a, b) for a, b in zip(got, want)), number
    assert not session.poll_faults()


def test_a_replay_with_a_wrong_length_is_a_fault(ctx, op):
    step = Step(5)
    inputs, outputs = step.on(to_torch)
    session = ctx.session("replayed")
    with op.bind(session, inputs, outputs) as binding:
        binding.prepare()
        binding.execute()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            binding.execute()
        inputs["seqlens_k"].fill_(CAPACITY + 5)
        graph.replay()
        torch.cuda.synchronize()
        faults = session.poll_faults()
        assert faults.bits and faults.text == attn_c.fault_text(faults.bits)
        assert faults.label == "gpu" and faults.value > CAPACITY
        assert faults.batch in range(BATCH)  # all rows are wrong, and any may come first
        binding.execute()  # poisoned: it succeeds, and writes zeros
        torch.cuda.synchronize()
        assert not outputs["output"].any()
        session.clear_faults()
        torch.cuda.synchronize()
        inputs["seqlens_k"].copy_(torch.tensor(LENGTHS[1], dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        assert not session.poll_faults()
        assert outputs["output"].any()


def test_a_fault_of_a_call_is_raised_by_a_later_one(op):
    """Of a call without a session, once: the call after it starts clean."""
    inputs, outputs = Step(8).on(to_torch)
    good = inputs["seqlens_k"].clone()
    inputs["seqlens_k"].fill_(CAPACITY + 5)
    op(out=outputs, **inputs)
    torch.cuda.synchronize()
    assert not outputs["output"].any()
    inputs["seqlens_k"].copy_(good)
    with pytest.raises(attn_c.Fault, match="gpu: an earlier call in this stream.*faulted"):
        op(out=outputs, **inputs)
    op(out=outputs, **inputs)
    torch.cuda.synchronize()
    assert outputs["output"].any()


def test_without_a_plan_a_capture_is_refused_in_words(op):
    inputs, outputs = Step(6).on(to_torch)
    graph = torch.cuda.CUDAGraph()
    caught = []
    marker = torch.zeros(1, device="cuda")
    with op.bind(None, inputs, outputs) as binding, torch.cuda.graph(graph):
        marker.add_(1)
        try:
            binding.execute()
        except attn_c.Error as error:
            caught.append(error)
    assert isinstance(caught[0], (attn_c.CaptureConflict, attn_c.NotPrepared)), caught
    graph.replay()  # the capture was not spoiled
    torch.cuda.synchronize()
    assert marker.item() == 1


def test_memory_of_the_host_is_refused(op):
    inputs, outputs = Step(7).on(to_torch)
    inputs["query"] = Step(7).inputs["query"]
    with pytest.raises(attn_c.InvalidArgument, match="query"):
        op(**inputs, out=outputs)
