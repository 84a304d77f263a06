"""The sessions of calls that bring none: kept for their stream, never shared by two, and faults of
theirs reported. On a driver that computes nothing (tests/loading), in ATTN_C_TEST_FAKES."""

import gc
import os
import pathlib

import numpy as np
import pytest

import attn_c
from attn_c import native
from conftest import HEADS, KV_HEADS, prompt

FAKES = os.environ.get("ATTN_C_TEST_FAKES", "")


@pytest.fixture
def cuda(monkeypatch):
    if not FAKES:
        pytest.skip("this build has no CUDA back end, or the tests run outside of CTest")
    folder = pathlib.Path(FAKES)
    monkeypatch.setenv("ATTN_C_CACHE_OFF", "1")
    return attn_c.Context("cuda", driver_path=str(folder / "libcuda.so.1"),
                          nvrtc_path=str(folder / "libnvrtc.so.13"))


@pytest.fixture
def op(cuda):
    return cuda.op("com.microsoft", "GroupQueryAttention", label="layer 0",
                   num_heads=HEADS, kv_num_heads=KV_HEADS)


def on_device(context):
    inputs = {name: array for name, array in prompt(batch=1).items()}
    return {name: array if name == "total_sequence_length" else context.put(array)
            for name, array in inputs.items()}


@pytest.fixture
def used(monkeypatch):
    """The sessions of the executes, in order."""
    real, found = native.attn_plan_execute, []

    def execute(plan, session, *rest):
        found.append(int(session.this))
        return real(plan, session, *rest)

    monkeypatch.setattr(native, "attn_plan_execute", execute)
    return found


def test_a_session_is_lent_again_for_its_stream_alone(cuda, op, used):
    inputs = on_device(cuda)
    with cuda.stream() as first, cuda.stream() as second:
        for stream in (first, first, second, None, first, second, None):
            op(stream=stream, outputs=["output"], **inputs)
        a, b, c = used[0], used[2], used[3]
        assert len({a, b, c}) == 3
        assert used == [a, a, b, c, a, b, c]
        assert cuda.stats.sessions_live == 3
    # The streams have ended: their sessions serve any.
    with cuda.stream() as third:
        op(stream=third, outputs=["output"], **inputs)
        assert used[-1] in (a, b)
    assert cuda.stats.sessions_live == 3
    cuda.trim()
    assert cuda.stats.sessions_live == 0


def test_plans_take_turns_with_the_same_sessions(cuda, op):
    inputs = on_device(cuda)
    plan = op.prepare(inputs, ["output"])
    output = cuda.empty((1, 5, HEADS * 16))
    with cuda.stream() as first, cuda.stream() as second:
        for stream in (first, second, first, second):
            plan.execute(inputs, {"output": output}, stream=stream)
        assert cuda.stats.sessions_live == 2


def test_a_fault_of_an_earlier_call_is_raised_once(cuda, op, monkeypatch, used):
    inputs = on_device(cuda)
    with cuda.stream() as stream, cuda.stream() as other:
        op(stream=stream, outputs=["output"], **inputs)
        faulted, real = used[-1], native.attn_session_poll_faults

        reports = []

        def poll(session, info):  # a driver that computes nothing raises none
            real(session, info)
            if int(session.this) == faulted:
                info.bits = native.ATTN_FAULT_TOTAL_BEYOND
                reports.append(info)

        monkeypatch.setattr(native, "attn_session_poll_faults", poll)
        op(stream=other, outputs=["output"], **inputs)  # its own session: nothing to report
        count = len(used)
        with pytest.raises(attn_c.Fault, match="an earlier call in this stream.* faulted"):
            op(stream=stream, outputs=["output"], **inputs)
        assert len(used) == count and len(reports) == 1  # nothing ran
        monkeypatch.setattr(native, "attn_session_poll_faults", real)
        op(stream=stream, outputs=["output"], **inputs)
        assert len(used) == count + 1
    gc.collect()
    assert cuda.stats.sessions_live == 2


def test_what_a_capture_was_lent_is_not_lent_again(cuda, op, used):
    inputs = on_device(cuda)
    plan = op.prepare(inputs, ["output"])
    output = cuda.empty((1, 5, HEADS * 16))
    stream = cuda.stream()
    plan.execute(inputs, {"output": output}, stream=stream)
    assert cuda.stats.sessions_live == 1
    with cuda.capture(stream) as graph:
        plan.execute(inputs, {"output": output}, stream=stream, bake_host_values=True)
    graph.launch(stream)
    assert cuda.sessions._idle.get(stream.handle) is None
    plan.execute(inputs, {"output": output}, stream=stream)
    assert len(cuda.sessions._idle[stream.handle]) == 1


def test_captures_let_other_threads_run(cuda):
    from test_threads import lets_others_in

    with cuda.stream() as stream:
        def call():
            native.attn_host_graph_begin_capture(cuda.handle, stream.handle)
            native.attn_host_graph_end_capture(cuda.handle, stream.handle)

        assert lets_others_in(call)


@pytest.mark.parametrize("stream, waits", [(None, True), (1, True), (2, True), (1 << 40, True),
                                           (-1, False)])
def test_a_consumer_may_use_what_it_gets_at_once(cuda, monkeypatch, stream, waits):
    tensor = cuda.empty((4,))
    real, freed = native.attn_host_memory_free, []
    monkeypatch.setattr(attn_c._memory.Allocation.__del__, "__defaults__",
                        (lambda *arguments: (freed.append(1), real(*arguments)),))
    assert tensor.__dlpack_device__() == (2, 0)
    tensor.__dlpack__(stream=stream, max_version=(1, 0))
    assert len(freed) == int(waits)
    with pytest.raises(BufferError, match="stream: expected"):
        tensor.__dlpack__(stream=0)


def test_a_workspace_lies_on_the_device(cuda, op):
    with pytest.raises(attn_c.InvalidArgument, match="workspace: expected memory of DLPack's dev"):
        op.bind(None, on_device(cuda)).execute(workspace=np.zeros(1 << 20, np.uint8))


def test_copies_of_numbers_are_in_order(cuda):
    """The fake driver copies, so that tensors of a device can be read."""
    values = np.arange(6, dtype=np.float32)
    assert np.array_equal(cuda.put(values).numpy(), values)
