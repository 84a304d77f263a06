"""ONNX Runtime's CPU GroupQueryAttention side by side with this library's.

Random nodes of everything that both support, in float32 and float16; both are also held against the
float64 reference, so that a disagreement shows who is wrong. What differs is in gqa_differences.py.
"""

import collections

import numpy as np
import pytest

import attn_c
import gqa_cases
import gqa_reference
import ort_gqa
from gqa_differences import DIFFERENCES, REFUSED_BY_BOTH

CASES = 360
# Relative error of a whole tensor. ONNX Runtime computes float16 products in float16.
OURS = {"float32": 2e-6, "float16": 6e-4}
PEER = {"float32": 2e-6, "float16": 3e-3}


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def run_ours(ctx, case):
    """Outputs by name, in memory that held NaN."""
    inputs, memory = case.memory()
    op = ctx.op("com.microsoft", "GroupQueryAttention", **case.attributes)
    op(outputs=list(memory), out=memory, **inputs)
    return memory


def run_peer(case):
    if case.form != "in_place":
        return ort_gqa.run(case.type, case.attributes, case.inputs, case.outputs)
    inputs, memory = case.memory()
    ort_gqa.run_bound(case.type, case.attributes, inputs, memory)
    return memory


def written_rows(case):
    """(B, capacity): rows of a present cache that hold keys and values afterwards."""
    lengths = case.inputs["seqlens_k"].reshape(-1, 1) + 1
    if case.kind == "prompt":  # padded rows are written as well
        lengths = np.full_like(lengths, case.inputs["query"].shape[1])
    return np.arange(case.capacity) < lengths


def relative_error(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    return np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)


def compared_rows(case, name, array):
    """The part of an output that the contract fixes, with the rows in front."""
    if name == "output":
        return array[case.valid_rows()]
    if name == "output_qk":
        return array.transpose(0, 2, 1, 3)[case.valid_rows()]
    return array.transpose(0, 2, 1, 3)[written_rows(case)]


def check_rest(case, name, ours):
    """What lies beside the compared part: finite, zero, or what was there before."""
    if name in ("output", "output_qk"):
        assert np.isfinite(ours).all(), f"{name}: not finite in padded rows"
        return
    beyond = ours.transpose(0, 2, 1, 3)[~written_rows(case)]
    if case.form == "in_place":
        before = case.inputs[name.replace("present", "past")].transpose(0, 2, 1, 3)
        assert np.array_equal(beyond, before[~written_rows(case)], equal_nan=True), \
            f"{name}: rows beyond the length changed"
    else:
        assert not beyond.any(), f"{name}: rows beyond the length are not zero"


@pytest.mark.parametrize("seed", range(CASES))
def test_random_nodes(ctx, seed):
    case = gqa_cases.draw(seed)
    ours, peer = run_ours(ctx, case), run_peer(case)
    reference = gqa_reference.group_query_attention(case.inputs, case.attributes, case.capacity)
    for name in case.outputs:
        assert ours[name].shape == peer[name].shape == reference[name].shape, name
        assert ours[name].dtype == peer[name].dtype
        want = compared_rows(case, name, reference[name])
        for side, result, limit in (("ours", ours, OURS), ("ONNX Runtime", peer, PEER)):
            error = relative_error(compared_rows(case, name, result[name]), want)
            assert error <= limit[case.type], \
                f"seed {seed}, {case.kind} {case.form} {sorted(case.features)}: " \
                f"{name} of {side} is off by {error:.1e}"
        between = relative_error(compared_rows(case, name, ours[name]),
                                 compared_rows(case, name, peer[name]))
        assert between <= OURS[case.type] + PEER[case.type]
        check_rest(case, name, ours[name])


def test_the_draw_covers_everything():
    """How often each feature is among the cases above, so that none is tested by name alone."""
    counts = collections.Counter()
    for seed in range(CASES):
        counts.update(gqa_cases.draw(seed).features)
    rotary = sum(1 for name in counts if name.startswith("rotary width"))
    assert rotary >= 6, counts
    least = {name: 20 for name in (
        *gqa_cases.KINDS, *gqa_cases.FORMS, "float32", "float16", "attention_bias", "head_sink",
        "position_ids", "cos_cache", "interleaved", "local_window_size", "softcap", "scale",
        "negative scale", "smooth_softmax", "packed", "bidirectional", "ragged", "batch",
        "qk_output 1", "qk_output 2")}
    missing = {name: counts[name] for name, number in least.items() if counts[name] < number}
    assert not missing, missing


def refused_by_peer(type_name, attributes, inputs):
    with pytest.raises(Exception) as refusal:
        ort_gqa.run(type_name, attributes, inputs)
    assert type(refusal.value).__module__.startswith("onnxruntime.")


@pytest.mark.parametrize("entry", DIFFERENCES, ids=lambda entry: entry.name)
def test_known_differences(ctx, entry):
    """Each stays one: the peer does what the table says, and ours what the contract says."""
    attributes, inputs = entry.make()

    def error(output):
        lengths = dict(inputs, seqlens_k=inputs["seqlens_k"].reshape(-1))
        capacity = entry.capacity or int(inputs["total_sequence_length"])
        want = gqa_reference.group_query_attention(lengths, attributes, capacity)["output"]
        return relative_error(output, want)

    if entry.peer == "refuses":
        refused_by_peer(entry.type, attributes, inputs)
    else:
        output = ort_gqa.run(entry.type, attributes, inputs)["output"]
        if entry.peer == "agrees":
            assert error(output) <= PEER[entry.type]
        elif entry.peer == "differs":
            assert not error(output) <= PEER[entry.type]
    if entry.ours == "agrees":
        op = ctx.op("com.microsoft", "GroupQueryAttention", **attributes)
        assert error(op(**inputs).output) <= OURS[entry.type]
    else:
        with pytest.raises(attn_c.InvalidArgument, match=entry.message):
            ctx.op("com.microsoft", "GroupQueryAttention", **attributes)(**inputs)


@pytest.mark.parametrize("name, make", REFUSED_BY_BOTH, ids=[name for name, _ in REFUSED_BY_BOTH])
def test_refused_by_both(ctx, name, make):
    attributes, inputs = make()
    refused_by_peer("float32", attributes, inputs)
    with pytest.raises(attn_c.InvalidArgument):
        ctx.op("com.microsoft", "GroupQueryAttention", **attributes)(**inputs)


def test_past_and_present_in_the_same_memory_are_equal_to_separate_ones(ctx):
    """Bitwise, over the cases that decode in place."""
    checked = 0
    for seed in range(CASES):
        case = gqa_cases.draw(seed)
        if case.form != "in_place" or case.kind == "prompt":
            continue
        in_place = run_ours(ctx, case)
        case.form = "separate"
        apart = run_ours(ctx, case)
        assert np.array_equal(in_place["output"], apart["output"]), f"seed {seed}"
        for name in ("present_key", "present_value"):
            assert np.array_equal(compared_rows(case, name, in_place[name]),
                                  compared_rows(case, name, apart[name])), f"seed {seed}"
        checked += 1
    assert checked >= 40
