"""Threads: the GIL is released, calls run at once, one-at-a-time objects say Busy."""

import threading
import time

import numpy as np
import pytest

import attn_c
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


def test_execute_lets_other_threads_run():
    binding = long_work()
    inside, stop, ticks = threading.Event(), threading.Event(), []

    def tick():
        inside.wait()
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    inside.set()
    begin = time.perf_counter()
    binding.execute()
    end = time.perf_counter()
    stop.set()
    ticker.join()
    # Had the GIL been held, no tick could lie well inside of the call.
    margin = (end - begin) / 4
    assert any(begin + margin < at < end - margin for at in ticks)


def test_one_session_serves_one_thread_at_a_time():
    binding = long_work()
    results = []

    def execute():
        try:
            binding.execute()
            results.append("done")
        except attn_c.Busy as error:
            results.append(error.status)

    # Several starts at once: at least one runs, and whoever comes meanwhile is told.
    barrier = threading.Barrier(4)

    def start():
        barrier.wait()
        execute()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and "done" in results
    assert attn_c.Busy.status in results


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
