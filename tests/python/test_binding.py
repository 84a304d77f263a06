"""Bindings: the caller's memory executed again and again."""

import gc
import weakref

import numpy as np
import pytest

import attn_c
from attn_c import native
from conftest import assert_close, decode, expected, prompt


def outputs_in_place(inputs):
    return {"output": np.full_like(inputs["query"], np.nan),
            "present_key": inputs["past_key"], "present_value": inputs["past_value"]}


def test_execute_needs_a_plan_unless_it_may_make_one(op):
    inputs = prompt()
    output = np.full_like(inputs["query"], np.nan)
    with op.bind(None, inputs, {"output": output}) as binding:
        with pytest.raises(attn_c.NotPrepared) as caught:
            binding.execute()
        assert caught.value.status == attn_c.NotPrepared.status == 5
        assert np.isnan(output).all()
        assert binding.capture_support().needs_prepare
        with pytest.raises(attn_c.NotPrepared):
            binding.describe()
        binding.execute(prepare=True)
        assert_close(output, expected(inputs, 5)["output"])
        assert not binding.capture_support().needs_prepare


def test_values_may_change_between_executes(op):
    inputs = decode()
    outputs = outputs_in_place(inputs)
    with op.bind(None, inputs, outputs) as binding:
        binding.prepare()
        for total in (7, 8, 9):
            inputs["seqlens_k"][:] = total - 1
            inputs["total_sequence_length"][...] = total
            inputs["query"][...] = np.random.default_rng(total).standard_normal((2, 1, 64))
            want = expected(inputs, 16)["output"]
            binding.execute()
            assert_close(outputs["output"], want)


def test_equal_shape_classes_share_one_plan(ctx, op):
    inputs = decode()
    with op.bind(None, inputs, outputs_in_place(inputs)) as binding:
        binding.prepare()
        before = ctx.stats
        binding.execute()
        others = decode(seed=5)
        with op.bind(None, others, outputs_in_place(others)) as second:
            second.prepare()
            second.execute()
        after = ctx.stats
    assert after.plans_created == before.plans_created
    assert after.plan_cache_hits == before.plan_cache_hits + 1
    assert after.executions == before.executions + 2


def test_scratch_is_kept_and_reused(op):
    context = attn_c.Context("cpu", thread_count=2)
    op = context.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2)
    inputs = prompt(tokens=64)
    with op.bind(None, inputs, {"output": np.empty_like(inputs["query"])}) as binding:
        binding.prepare()
        binding.execute()
        before = context.stats
        for _ in range(5):
            binding.execute()
        assert context.stats.scratch_allocations == before.scratch_allocations


def test_workspace_of_the_caller(op):
    inputs = prompt(tokens=64)
    output = np.full_like(inputs["query"], np.nan)
    with op.bind(None, inputs, {"output": output}) as binding:
        binding.prepare()
        info = binding.capture_support()
        room = np.full(info.workspace_bytes + info.workspace_alignment, 0xff, np.uint8)
        shift = -room.ctypes.data % max(info.workspace_alignment, 1)
        binding.execute(workspace=room[shift:shift + info.workspace_bytes])
        assert_close(output, expected(inputs, 64)["output"])
        if info.workspace_bytes:
            with pytest.raises(attn_c.InvalidArgument, match="workspace"):
                binding.execute(workspace=room[shift:shift + info.workspace_bytes - 1])
    with pytest.raises(attn_c.InvalidArgument, match="without gaps"):
        attn_c._tensors.memory_of(np.zeros((4, 4))[:, ::2])
    with pytest.raises(attn_c.InvalidArgument, match="read-only"):
        attn_c._tensors.memory_of(np.broadcast_to(np.zeros(4), (1, 4)))


def test_describe_names_engines_and_reasons(op):
    inputs = prompt()
    with op.bind(None, inputs, {"output": np.empty_like(inputs["query"])}) as binding:
        binding.prepare()
        text = binding.describe()
    assert text["schema"] >= 1
    assert text["operator"]["label"] == "layer 0"
    attention = [stage for stage in text["stages"] if stage["stage"] == "attention"]
    assert len(attention) == 1 and attention[0]["flops"] > 0
    considered = attention[0]["considered"]
    ran = [entry for entry in considered if entry["engine"] == attention[0]["engine"]]
    assert len(considered) >= 2 and len(ran) == 1 and ran[0]["supported"]
    assert all(entry["reason"] for entry in considered)


def test_every_engine_can_be_forced(ctx, op):
    inputs = prompt()
    want = expected(inputs, 5)
    forced = set()
    for engine in ctx.info.engines:
        outputs = {name: np.full_like(array, np.nan) for name, array in want.items()
                   if name != "output_qk"}
        with op.bind(None, inputs, outputs) as binding:
            try:
                binding.prepare(engine=engine)
            except attn_c.Unsupported as refusal:
                assert engine in str(refusal)
                continue
            binding.execute()
            stages = binding.describe()["stages"]
            considered = {entry["engine"] for stage in stages for entry in stage["considered"]}
            if engine in considered:  # not so where it is for a stage of other operators
                assert engine in [stage["engine"] for stage in stages]
                forced.add(engine)
        for name, array in outputs.items():
            assert_close(array, want[name])
    assert forced >= {"simd-kv-update", "generic-kv-update", "simd-decode", "generic"}
    with op.bind(None, inputs, outputs) as binding:
        with pytest.raises(attn_c.Error, match="no-such-engine"):
            binding.prepare(engine="no-such-engine")


def test_unbinding_is_felt(op):
    inputs = prompt()
    with op.bind(None, inputs, {"output": np.empty_like(inputs["query"])}) as binding:
        binding.prepare()
        binding.set_input("seqlens_k", None)
        with pytest.raises(attn_c.InvalidArgument, match="seqlens_k"):
            binding.execute(prepare=True)


def test_a_closed_binding_says_so(ctx, op):
    gc.collect()  # bindings that refusals of earlier tests keep in their tracebacks
    before = ctx.stats.bindings_live
    binding = op.bind()
    assert ctx.stats.bindings_live == before + 1
    with binding:
        pass
    assert ctx.stats.bindings_live == before
    for use in (binding.execute, binding.prepare, binding.describe, binding.capture_support):
        with pytest.raises(attn_c.InvalidArgument, match="closed"):
            use()


class Own:
    """An object that exports memory which nobody else holds, and tells when it goes."""

    def __init__(self, size):
        self.size = size
        self.memory = None

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        room = np.zeros(self.size + 256, np.uint8)
        begin = -room.ctypes.data % 256
        self.memory = weakref.ref(room)
        return room[begin:begin + self.size].__dlpack__(**keywords)


@pytest.mark.parametrize("way", ["binding", "plan", "pool"])
def test_a_workspace_lives_until_execute_returns(op, way, monkeypatch):
    """Seen from inside of the execute, where the library has no more than an address."""
    inputs = prompt(tokens=64)
    output = np.empty_like(inputs["query"])
    plan = op.prepare(inputs, {"output": output})
    own = Own(max(plan.info.workspace_bytes, 1))
    seen = []

    def watch(module, name):
        real = getattr(module, name)

        def call(*arguments):
            gc.collect()
            seen.append(own.memory() is not None)
            return real(*arguments)

        monkeypatch.setattr(module, name, call)

    watch(native, "attn_binding_execute")
    watch(attn_c._plan, "_execute_by_name")
    if way == "binding":
        with op.bind(None, inputs, {"output": output}) as binding:
            binding.execute(workspace=own, prepare=True)
    else:
        session = op.context.session() if way == "plan" else None
        plan.execute(inputs, {"output": output}, workspace=own, session=session)
    assert seen == [True]
    assert own.memory() is None
    assert_close(output, expected(inputs, 64)["output"])


@pytest.mark.parametrize("value", [[0] * 4096, 5, range(4096), "room", b"room"])
def test_numbers_are_no_workspace(op, value):
    with pytest.raises(attn_c.InvalidArgument, match="'layer 0': workspace: expected an array"):
        op.bind().execute(workspace=value)


def test_arrays_live_until_an_execute_of_another_thread_returns(op, monkeypatch):
    """Closed in the middle: the arrays go when the execute has returned, and not before."""
    inputs = prompt()
    watch = weakref.ref(inputs["query"])
    binding = op.bind(None, inputs, {"output": np.empty_like(inputs["query"])})
    binding.prepare()
    del inputs
    real, alive = native.attn_binding_execute, []

    def execute(*arguments):
        binding.close()
        gc.collect()
        alive.append(watch() is not None)
        return real(*arguments)

    monkeypatch.setattr(native, "attn_binding_execute", execute)
    binding.execute()
    gc.collect()
    assert alive == [True] and watch() is None


def test_a_replaced_array_is_let_go(op):
    inputs = prompt()
    output = np.empty_like(inputs["query"])
    watch = [weakref.ref(inputs["query"]), weakref.ref(output)]
    with op.bind(None, inputs, {"output": output}) as binding:
        other = prompt(seed=4)
        binding.set_input("query", other["query"])
        binding.set_output("output", np.empty_like(output))
        inputs["query"] = other["query"]
        del output
        gc.collect()
        assert [one() for one in watch] == [None, None]
        binding.execute(prepare=True)


def test_eager_is_passed_on(op, monkeypatch):
    inputs = prompt()
    output = np.empty_like(inputs["query"])
    flags, real = [], native.attn_binding_execute
    monkeypatch.setattr(native, "attn_binding_execute", lambda handle, desc: (
        flags.append(desc.flags), real(handle, desc)))
    with op.bind(None, inputs, {"output": output}) as binding:
        binding.prepare()
        binding.execute(eager=True)
    assert flags == [native.ATTN_EXECUTE_EAGER]
    op.prepare(inputs, {"output": output}).execute(inputs, {"output": output}, eager=True)
    assert_close(output, expected(inputs, 5)["output"])


def test_a_session_of_another_context_is_refused(op):
    other = attn_c.Context("cpu").session()
    with pytest.raises(attn_c.InvalidArgument, match="context"):
        op.bind(other)
