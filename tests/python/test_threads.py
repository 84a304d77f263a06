"""Threads: the GIL is released, calls run at once, one-at-a-time objects say Busy."""

import sys
import threading
import time

import numpy as np
import pytest

import attn_c
from attn_c import native
from conftest import assert_close, expected, prompt


def long_work():
    """A binding whose execute takes a while, and its output."""
    context = attn_c.Context("cpu", thread_count=1)
    op = context.op("com.microsoft", "GroupQueryAttention", num_heads=8, kv_num_heads=8)
    rng = np.random.default_rng(3)
    tokens = 1536
    inputs = {name: rng.standard_normal((1, tokens, 8 * 64)).astype(np.float32)
              for name in ("query", "key", "value")}
    inputs.update(seqlens_k=np.array([tokens - 1], np.int32),
                  total_sequence_length=np.array(tokens, np.int32))
    binding = op.bind(context.session(), inputs, {"output": np.empty_like(inputs["query"])})
    binding.prepare()
    return binding


def ticks_within_a_call(binding):
    """Whether another thread of Python ran well inside of one execute."""
    stop, ticks = threading.Event(), []

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    binding.execute()
    end = time.perf_counter()
    stop.set()
    ticker.join()
    margin = (end - begin) / 4
    return any(begin + margin < at < end - margin for at in ticks)


def test_execute_lets_other_threads_run():
    """With the GIL held it never could; without, a busy machine may need a few tries."""
    binding = long_work()
    assert any(ticks_within_a_call(binding) for _ in range(5))


def lets_others_in(call, seconds=20.0):
    """Whether another thread of Python ever runs during a call, where time alone lets none in."""
    stop, ticks = threading.Event(), [0]

    def tick():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0)

    ticker = threading.Thread(target=tick)
    interval = sys.getswitchinterval()
    ticker.start()
    sys.setswitchinterval(1000.0)
    try:
        time.sleep(0.01)  # whoever waits for the lock now does so with the new interval
        end, before = time.monotonic() + seconds, ticks[0]
        while ticks[0] == before and time.monotonic() < end:
            call()
        return ticks[0] != before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        ticker.join()


CONTEXT = attn_c.Context("cpu")
OP = CONTEXT.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2)
SESSION = CONTEXT.session()
DESC, INFO = native.attn_session_desc(), native.attn_device_info()


@pytest.mark.parametrize("call", [
    lambda: native.attn_device_count(), lambda: native.attn_device_get_info(0, INFO),
    lambda: native.attn_session_create(CONTEXT.handle, DESC),
    lambda: native.attn_session_clear_faults(SESSION.handle, None),
    lambda: native.attn_host_stream_create(CONTEXT.handle),
    # Made with the lock held, and dropped at once.
    lambda: native.attn_binding_create(OP.handle, SESSION.handle)],
    ids=["device_count", "device_get_info", "session_create", "clear_faults", "stream_create",
         "release"])
def test_what_may_wait_lets_other_threads_run(call):
    """With the GIL held none of the calls ever could."""
    assert lets_others_in(call)


def test_what_is_short_keeps_the_lock():
    """So that the test above can fail."""
    info = native.attn_context_stats()
    assert not lets_others_in(lambda: native.attn_context_get_stats(CONTEXT.handle, info), 0.2)


def test_one_session_serves_one_thread_at_a_time():
    binding = long_work()
    busy = threading.Event()
    failures = []

    def execute():
        for _ in range(200):
            if busy.is_set():
                return
            try:
                binding.execute()
            except attn_c.Busy:
                busy.set()
            except Exception as error:  # noqa: BLE001  (whatever it is, the test shows it)
                failures.append(error)

    threads = [threading.Thread(target=execute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and busy.is_set()
    binding.execute()


def test_calls_from_many_threads(ctx, op):
    cases = [prompt(tokens=3 + seed, seed=seed) for seed in range(6)]
    wants = [expected(inputs, 3 + seed)["output"] for seed, inputs in enumerate(cases)]
    failures = []

    def work(seed):
        try:
            for _ in range(20):
                assert_close(op(outputs=["output"], **cases[seed]).output, wants[seed])
        except Exception as error:  # noqa: BLE001  (whatever it is, the test shows it)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ctx.stats.sessions_live >= 1


def test_objects_are_released_in_any_order_by_any_thread():
    context = attn_c.Context("cpu")
    op = context.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2)
    inputs = prompt()
    output = np.empty_like(inputs["query"])
    binding = op.bind(context.session(), inputs, {"output": output})
    plan = op.prepare(inputs, ["output"])
    kept = [context, op, plan]
    del context, op, plan
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    binding.execute(prepare=True)
    assert_close(output, expected(inputs, 5)["output"])


def test_a_failing_session_of_the_pool_is_used_again(op):
    inputs = prompt()
    before = op.context.stats.sessions_live
    for _ in range(5):
        with pytest.raises(attn_c.InvalidArgument):
            op(**dict(inputs, seqlens_k=np.array([9, 9], np.int32)))
        op(**inputs)
    assert op.context.stats.sessions_live <= max(before, 1)
