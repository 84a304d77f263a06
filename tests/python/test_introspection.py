"""Devices, operators, versions, and what a context says of itself."""

import numpy as np
import pytest

import attn_c
from attn_c import native
from conftest import assert_close, expected, prompt


def test_versions():
    assert attn_c.__version__ == attn_c.version() == native.ATTN_VERSION_STRING
    assert attn_c.abi_version() == native.ATTN_ABI_VERSION


def test_the_cpu_is_the_first_device():
    devices = attn_c.devices()
    assert devices[0].device_type == native.ATTN_DEVICE_CPU and devices[0].available
    assert all(device.name or device.reason for device in devices)
    assert all(device.reason for device in devices if not device.available)


def test_operators_list_their_slots_and_attributes():
    operators = {(info.domain, info.type): info for info in attn_c.operators()}
    info = operators["com.microsoft", "GroupQueryAttention"]
    assert info.version_first == info.version_last == 1 and info.summary
    assert [slot.name for slot in info.inputs[:3]] == ["query", "key", "value"]
    assert [slot.slot for slot in info.inputs] == list(range(len(info.inputs)))
    query, lengths = info.inputs[0], info.inputs[5]
    assert not query.optional and query.types == ("float32", "float16", "bfloat16")
    assert lengths.name == "seqlens_k" and lengths.types == ("int32",)
    present = next(slot for slot in info.outputs if slot.name == "present_key")
    assert present.may_alias == 3 and present.optional
    assert info.outputs[-1].slot == native.ATTN_SLOT_LOG_SUM_EXP
    attributes = {attribute.name: attribute for attribute in info.attributes}
    assert attributes["num_heads"].required and attributes["num_heads"].type == "int"
    assert attributes["softcap"].type == "float" and attributes["softcap"].default == "0"


def test_context_info(ctx):
    info = ctx.info
    assert info.thread_count == 2 and info.device_type == native.ATTN_DEVICE_CPU
    assert info.simd_level == info.simd_levels[0]
    assert info.engines and all(info.engines)


def test_every_simd_level_can_be_forced():
    inputs = prompt(tokens=33)
    want = expected(inputs, 33)["output"]
    levels = attn_c.Context("cpu").info.simd_levels
    assert levels
    for level in levels:
        context = attn_c.Context("cpu", simd_level=level)
        assert context.info.simd_level == level
        op = context.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2)
        assert_close(op(**inputs).output, want)


def test_the_environment_counts_unless_it_is_ignored(monkeypatch):
    info = attn_c.Context("cpu").info
    best, lowest = info.simd_levels[0], info.simd_levels[-1]
    monkeypatch.setenv("ATTN_C_THREAD_COUNT", "1")
    monkeypatch.setenv("ATTN_C_SIMD_LEVEL", lowest)
    info = attn_c.Context("cpu").info
    assert (info.thread_count, info.simd_level) == (1, lowest)
    info = attn_c.Context("cpu", thread_count=2, simd_level=best).info
    assert (info.thread_count, info.simd_level) == (2, best)
    assert attn_c.Context("cpu", ignore_environment=True).info.simd_level == best


def test_stats_count_what_lives():
    context = attn_c.Context("cpu")
    assert context.stats.ops_live == context.stats.sessions_live == 0
    op = context.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2)
    session = context.session()
    assert context.stats.ops_live == context.stats.sessions_live == 1
    op(session=session, **prompt())
    stats = context.stats
    assert stats.plans_created == 1 and stats.executions == 1 and stats.sessions_live == 1
    op(session=session, **prompt())
    assert context.stats.plan_cache_hits == 1
    del op, session
    context.trim()
    stats = context.stats
    assert stats.ops_live == stats.sessions_live == stats.plans_live == 0


def test_sessions_without_faults(ctx):
    session = ctx.session("a label")
    faults = session.poll_faults()
    assert not faults and faults == attn_c.FaultInfo(0, "")
    session.clear_faults()


def test_fault_texts():
    assert attn_c.fault_text(0) == ""
    assert attn_c.fault_text(1 | 32) == native.attn_fault_text(1 | 32, 4096)[0]
    text, needed = native.attn_fault_text(1 | 32, 4096)
    assert text.count("; ") == 1 and needed == len(text.encode()) + 1
    short, again = native.attn_fault_text(1 | 32, 8)
    assert short == text[:7] and again == needed
    assert native.attn_fault_text(0, 4096) == ["", 1]


def test_host_memory(ctx):
    """The flat functions of attn_c_host.h: addresses are ints."""
    handle = ctx.handle
    memory = native.attn_host_memory_alloc(handle, native.ATTN_MEMORY_DEVICE, 64)
    assert isinstance(memory, int) and memory % 256 == 0
    source, target = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    native.attn_host_memory_copy(handle, memory, source.ctypes.data, 64, None)
    native.attn_host_memory_copy(handle, target.ctypes.data, memory, 64, None)
    assert np.array_equal(source, target)
    native.attn_host_memory_free(handle, native.ATTN_MEMORY_DEVICE, memory)
    with pytest.raises(attn_c.Unsupported):
        native.attn_host_graph_begin_capture(handle, None)
