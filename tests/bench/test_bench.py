"""The benchmark runner: cases from text, results in the promised form. No speed is tested here."""

import dataclasses
import itertools
import json
import os
import pathlib

import numpy as np
import pytest

import attention_suite
import case_file
import gpu_gqa_suite
import gpu_host_suite
import gpu_measure
import gpu_memory
import gpu_run
import gqa_memory
import library
import linear_suite
import measure
import memory
import probe
import roofline_suite
import run

CASES = pathlib.Path(run.__file__).parent / "cases"
BUILD = os.environ.get("ATTN_BENCH_BUILD", "")


@pytest.mark.parametrize("name, read, least", [
    ("gqa", case_file.read_gqa_cases, 30), ("gpu_gqa", case_file.read_gqa_cases, 8),
    ("attention", attention_suite.read_cases, 8), ("linear", linear_suite.read_cases, 5)])
def test_case_files_expand_and_have_unique_names(name, read, least):
    for file in (f"{name}.txt", f"{name}_quick.txt"):
        cases = read(CASES / file)
        assert len({(case.name, case.type) for case in cases}) == len(cases) >= least


@pytest.mark.parametrize("suite", roofline_suite.SUITES)
def test_case_files_of_the_suite_cpu_have_unique_names(suite):
    for file in (f"cpu_{suite.name}.txt", f"cpu_{suite.name}_quick.txt"):
        cases = suite.read_cases(CASES / file)
        assert len({(case.name, case.type) for case in cases}) == len(cases) >= 6


@pytest.mark.parametrize("suite", [attention_suite.SUITE, linear_suite.SUITE])
def test_quick_cases_are_among_all(suite):
    assert set(suite.cases(quick=True)) < set(suite.cases())


def test_a_line_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "cases.txt"
    path.write_text("# comment\nphase=prefill heads=4/2\n")
    with pytest.raises(ValueError, match=r"cases\.txt:2.*tokens"):
        case_file.read_gqa_cases(path)


def test_masks(tmp_path):
    path = tmp_path / "cases.txt"
    line = "phase=prefill heads=4/2 head_size=8 batch=3 tokens=5 type=float32"
    path.write_text(f"{line}\n{line} mask=none,causal\n")
    assert [case.mask for case in case_file.read_gqa_cases(path)] == ["causal", "none", "causal"]
    path.write_text(f"{line} mask=window\n")
    with pytest.raises(ValueError, match="mask is window"):
        case_file.read_gqa_cases(path)


@pytest.mark.parametrize("read, fields, message", [
    (attention_suite.read_cases, "heads=4/2 mask=window", "mask is window"),
    (attention_suite.read_cases, "heads=4/2 mask_type=int", "mask_type is int"),
    (attention_suite.read_cases, "heads=4/2/2", "2 counts"),
    (linear_suite.read_cases, "heads=4/4/4 rule=quadratic", "rule is quadratic"),
    (linear_suite.read_cases, "heads=4/4/4 state=hot", "state is hot")])
def test_what_a_case_cannot_be(tmp_path, read, fields, message):
    path = tmp_path / "cases.txt"
    path.write_text(f"head_size=8 batch=1 tokens=2 type=float32 {fields}\n")
    with pytest.raises(ValueError, match=message):
        read(path)


def test_work_of_a_case():
    prefill = case_file.GqaCase("prefill", 4, 2, 8, 3, 5, "float32")
    assert prefill.flops == 3 * 4 * (1 + 2 + 3 + 4 + 5) * 8 * 2 * 2
    unmasked = case_file.GqaCase("prefill", 4, 2, 8, 3, 5, "float32", "none")
    assert unmasked.flops == 3 * 4 * 5 * 5 * 8 * 2 * 2 and unmasked.name != prefill.name
    decode = case_file.GqaCase("decode", 4, 2, 8, 3, 5, "float16")
    assert decode.cache_bytes == 3 * 2 * 5 * 8 * 2 * 2
    assert decode.work == (decode.cache_bytes, "GB/s")
    attention = attention_suite.AttentionCase(4, 2, 8, 3, 5, "float32", "padding")
    assert attention.work == (unmasked.flops, "GFLOP/s")
    causal = dataclasses.replace(attention, mask="causal")
    assert causal.work == (prefill.flops, "GFLOP/s")
    token = linear_suite.LinearCase(2, 2, 4, 8, 3, 1, "float16")
    assert token.work == (3 * 4 * 8 * 8 * 2 * 2, "GB/s")
    # Of a state's elements a token: decay, read, write, output.
    tokens = linear_suite.LinearCase(2, 2, 4, 8, 3, 5, "float32")
    assert tokens.work == (3 * 4 * 8 * 8 * 5 * (1 + 2 + 2 + 2), "GFLOP/s")


def test_masks_of_attention_cases():
    kinds = {}
    for mask in attention_suite.MASKS:
        for kind in ("bool", "float"):
            case = attention_suite.AttentionCase(2, 2, 8, 3, 6, "float16", mask, kind)
            (inputs, outputs), = attention_suite.argument_sets(case)
            assert outputs["Y"].shape == inputs["Q"].shape == (3, 2, 6, 8)
            kinds[mask, kind] = inputs.get("attn_mask")
    assert kinds["none", "bool"] is None and kinds["causal", "float"] is None
    assert kinds["all", "bool"].all() and not kinds["all", "float"].any()
    visible = kinds["padding", "bool"]
    assert visible[..., :3].all() and not visible.all()
    assert ((kinds["padding", "float"] == 0) == visible).all()


def test_states_of_linear_cases():
    warm = linear_suite.LinearCase(2, 2, 4, 64, 1, 1, "float32")
    (inputs, outputs), = linear_suite.argument_sets(warm)
    assert inputs["past_state"] is outputs["present_state"]
    cold = linear_suite.argument_sets(dataclasses.replace(warm, state="cold"))
    assert len(cold) * inputs["past_state"].nbytes > 2 * memory.last_level_bytes()
    assert len({id(one["past_state"]) for one, _ in cold}) == len(cold)


def test_decode_caches_exceed_the_last_level_and_take_turns():
    case = case_file.GqaCase("decode", 4, 2, 64, 1, 2048, "float16")
    sets = gqa_memory.argument_sets(case)
    assert len(sets) * case.cache_bytes > 2 * memory.last_level_bytes()
    assert all(outputs["present_key"] is inputs["past_key"] for inputs, outputs in sets)
    assert len({id(inputs["past_key"]) for inputs, _ in sets}) == len(sets)
    seen = []
    for start in (0.0, 0.5):
        turn = memory.taking_turns([lambda i=i: seen.append(i) for i in range(4)], start)
        for _ in range(5):
            turn()
    assert seen == [0, 1, 2, 3, 0, 2, 3, 0, 1, 2]


def test_rounds_are_interleaved():
    order = []
    times = measure.interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2, seconds=1e-9)
    assert set(times) == {"a", "b"} and all(value > 0 for value in times.values())
    assert [name for name, _ in itertools.groupby(order)] == list("ab" + "abab")  # warm-up first


def test_results_have_the_promised_form(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="the peer is not installed")
    results, table = tmp_path / "results.json", tmp_path / "table.md"
    code = run.main(["gqa", "--quick", "--peers", "--filter", "decode 8/1 D64 B1 T512",
                     "--rounds", "1", "--seconds", "0.001", "--json", str(results),
                     "--markdown", str(table)])
    assert code == 0
    text = json.loads(results.read_text())
    assert set(text) == {"machine", "rows"} and text["machine"]["versions"]["onnxruntime"]
    assert [row["case"].split()[-1] for row in text["rows"]] == ["float32", "float16", "bfloat16"]
    for row in text["rows"]:
        assert {"case", "metric", "unit", "ours", "peers", "limit"} <= set(row)
        assert row["ours"] > 0 and row["engine"] != "?"
    half = text["rows"][1]
    assert half["limit"] == pytest.approx(half["peers"]["onnxruntime"] / 2)
    assert text["rows"][2]["peers"] == {} and text["rows"][2]["limit"] is None
    assert table.read_text().count("| decode 8/1 D64 B1 T512 |") == 3
    assert "limits met" in capsys.readouterr().out


@pytest.mark.parametrize("suite, text", [
    (attention_suite.SUITE, "S128 padding"), (linear_suite.SUITE, "T512 warm")])
def test_the_peer_computes_the_same(suite, text):
    """On each its own copy of the arguments: the rows compare the same work."""
    pytest.importorskip("onnxruntime", reason="the peer is not installed")
    import attn_c
    import ort_peer
    context = library.make_context(attn_c, "cpu", 2)
    cases = [case for case in suite.cases(quick=True)
             if text in case.name and case.type == "float32"]
    assert cases
    for case in cases:
        results = []
        for make in (lambda *arguments: library.make_call(context, *arguments)[0],
                     lambda *arguments: ort_peer.make_call(*arguments, 2)):
            sets = suite.argument_sets(case)
            make(suite.operator, suite.attributes(case), sets)()
            results.append(sets[0][1])
        for name, array in results[0].items():
            assert abs(array).max() > 0
            assert abs(array - results[1][name]).max() <= 1e-5 * abs(array).max(), name


@pytest.mark.skipif(not BUILD, reason="the build folder with host_overhead is not named")
def test_the_host_suite_runs(tmp_path):
    results = tmp_path / "results.json"
    assert run.main(["host", "--quick", "--build", BUILD, "--json", str(results)]) == 0
    rows = {row["case"]: row for row in json.loads(results.read_text())["rows"]}
    assert set(rows) >= {"plan_execute", "binding_execute", "library_load"}
    # Other languages have their rows where their programs run.
    others = set(rows) - {"plan_execute", "binding_execute", "library_load"}
    assert any(name.startswith("Python, ") for name in others)
    assert all(name.startswith(("Python, ", "plan_execute, ")) for name in others), others
    assert all(row["ours"] > 0 and row["limit"] > 0 for row in rows.values())


def gpu_case(phase="prefill", tokens=512, kind="bfloat16"):
    return case_file.GqaCase(phase, 32, 8, 128, 1, tokens, kind)


def test_limits_of_gpu_cases():
    limit_of = gpu_gqa_suite.limit_of
    peers = {"FlashAttention-2": 9e-6, "cuDNN": 4e-6}
    assert limit_of(gpu_case(), peers) == pytest.approx(10e-6)
    assert limit_of(gpu_case("decode"), peers) == pytest.approx(6e-6)
    assert limit_of(gpu_case(kind="float32"), {"PyTorch efficient": 3.0, "PyTorch math": 2.0}) == 2
    assert limit_of(gpu_case("decode"), {}) is None  # the peer failed
    assert gpu_gqa_suite.has_bar(gpu_case("decode", 131072))
    assert not gpu_gqa_suite.has_bar(gpu_case("prefill", 131072))


def test_rows_of_gpu_cases():
    more = {"with append": "ours, append"}
    times = {"ours": 2e-3, "ours, append": 3e-3, "FlashAttention-2": 1.9e-3, "cuDNN": 1e-3}
    row = gpu_gqa_suite.row_of(gpu_case(), times, more, {"engine": "e", "error": 1e-3}, {})
    assert row["peers"] == pytest.approx({"FlashAttention-2": 1900, "cuDNN": 1000})
    assert row["more"] == pytest.approx({"with append": 3000})
    assert gpu_run.is_met(row) and row["rate"] == pytest.approx(gpu_case().flops / 2e-3 / 1e12)
    cells = gpu_gqa_suite.cells_of(gpu_case(), row)
    assert len(cells) == len(gpu_gqa_suite.COLUMNS) and "0.95" in cells
    failed = gpu_gqa_suite.row_of(gpu_case(), {"cuDNN": 1e-3}, more, {}, {"ours": "no memory"})
    assert failed["ours"] is None and not gpu_run.is_met(failed)
    assert len(gpu_gqa_suite.cells_of(gpu_case(), failed)) == len(gpu_gqa_suite.COLUMNS)
    scratch = gpu_gqa_suite.scratch_row(gpu_case(), 65 << 20)
    assert scratch["limit"] == 64 and not gpu_run.is_met(scratch)


def test_where_a_kernel_came_from():
    verdicts = [{"engine": "a", "reason": "only float32"},
                {"engine": "b", "reason": "16 warps; kernel from disk cache"}]
    plan = {"stages": [{"stage": "kv_update", "engine": "k"},
                       {"stage": "attention", "engine": "b", "considered": verdicts}]}
    assert library.engine_name(plan) == "b"
    assert library.kernel_origin(plan) == "disk cache"
    plan["stages"][1]["engine"] = "a"
    assert library.kernel_origin(plan) == ""


def test_the_summary_of_a_gpu_run_counts_and_says_why():
    more = {}
    times = {"ours": 1e-3, "FlashAttention-2": 1e-3}
    rows = [gpu_gqa_suite.row_of(gpu_case(), times, more, {}, {}),
            gpu_gqa_suite.row_of(gpu_case("decode"), {"ours": 3e-6, "cuDNN": 1e-6}, more, {}, {}),
            gpu_gqa_suite.row_of(gpu_case("decode", 7), {"cuDNN": 1e-6}, more, {},
                                 {"ours": "no kernel"}),
            gpu_gqa_suite.row_of(gpu_case(tokens=131072), {"ours": 1.0}, more, {}, {})]
    text = gpu_run.summary(rows, 12.3)
    assert text[0].startswith("failed: decode 32/8 D128 B1 T7 bfloat16: ours: no kernel")
    assert text[1].startswith("missed: decode") and "2.00 of it" in text[1]
    assert text[2].startswith("not measured: decode 32/8 D128 B1 T7")
    assert text[3] == "4 cells; 1 of 3 meet the bar; 12 s"


def test_gpu_results_are_written(tmp_path):
    options = gpu_run.parse_arguments(["host", "--quick", "--out", str(tmp_path / "new")])
    assert options.rounds == 3 and options.library.name == "libattn_c.so.0"
    row = gpu_host_suite.row_of("opening the library", "ms", 1.0, 5.0)
    table = gpu_run.Table(gpu_host_suite.COLUMNS)
    table(gpu_host_suite.cells_of(row, "quickly"))
    machine = {"versions": {"attn_c": "1"}, "device": "d", "architecture": "sm", "driver": "",
               "driver_cuda": "13.0", "nvrtc": "", "processor": "p", "processors": 1, "system": "s",
               "load": 0.5}
    gpu_run.write(options, machine, [row], table, ["1 cells"])
    results = json.loads((tmp_path / "new" / "gpu-host.json").read_text())
    assert results["rows"][0]["case"] == "opening the library"
    text = (tmp_path / "new" / "gpu-host.md").read_text()
    assert "| opening the library | 1.000 ms | 5 ms | 0.20 | quickly |" in text
    assert "driver unknown (CUDA 13.0), NVRTC none" in text


def test_graphs_hold_whole_rounds_of_turns():
    assert gpu_measure.calls_of_graph(8e-6, 31) == 62
    assert gpu_measure.calls_of_graph(8e-6, 1) == gpu_measure.MAX_GRAPH_CALLS
    assert gpu_measure.calls_of_graph(0.5, 1) == 1
    assert gpu_measure.calls_of_graph(0.5, 3) == 3
    assert gpu_memory.turn_count(gpu_case(), 1 << 20) == 1
    decode = gpu_case("decode", 1024)
    assert gpu_memory.turn_count(decode, 60 << 20) * decode.cache_bytes > 2 * (60 << 20)


def test_rounds_of_graphs_are_interleaved():
    class Graph:
        def __init__(self, name, order):
            self._name, self._order = name, order

        def seconds_a_call(self, seconds):
            self._order.append(self._name)
            return len(self._order) * seconds

    order = []
    times = gpu_measure.interleaved({name: Graph(name, order) for name in "ab"}, 3, 1.0)
    assert order == list("ababab") and times == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert gpu_measure.medians(times) == {"a": 3, "b": 4}


@pytest.fixture
def program(tmp_path):
    """A stand-in for gpu_host: prints what the variable ANSWER holds, or fails with FAILURE."""
    path = tmp_path / "gpu_host"
    path.write_text('#!/bin/sh\n[ -z "$FAILURE" ] || { echo "$FAILURE" >&2; exit 1; }\n'
                    'echo "$ANSWER"\n')
    path.chmod(0o755)
    return path


def test_kernels_of_a_first_result_come_from_where_they_should(program, tmp_path):
    options = gpu_run.parse_arguments(["host", "--quick"])
    options.library = tmp_path / "lib" / "libattn_c.so.0"
    options.library.parent.mkdir()
    folder = tmp_path / "plain"
    folder.mkdir()
    step = ("bfloat16", 128, 1)

    def measure(origin, compiles, hits):
        answer = {"seconds": 0.2, "context": 0.0, "session": 0.0, "prepare": 0.1,
                  "compiles": compiles, "disk_hits": hits}
        environment = {"ANSWER": json.dumps(answer), "PATH": os.environ["PATH"]}
        return gpu_host_suite.first_row(program, options, environment, folder, origin, step)[0]

    row = measure("NVRTC", 3, 0)
    assert row["ours"] == pytest.approx(200) and gpu_run.is_met(row) and len(row["runs"]) == 2
    assert not gpu_run.is_met(measure("disk cache", 0, 3))  # 200 ms are too many
    assert "the kernels came from: disk cache" in measure("NVRTC", 0, 3)["failures"]["ours"]
    assert "attn_c_kernels.pack is not there" in measure("pack", 0, 0)["failures"]["ours"]
    (options.library.parent / gpu_host_suite.PACK).touch()
    assert measure("pack", 0, 0)["ours"] == pytest.approx(200)


def test_executes_are_held_against_bare_launches(program):
    options = gpu_run.parse_arguments(["host", "--quick"])
    answer = {"launches": 2, "binding_ns": 5000.0, "plan_ns": 7500.0, "same_kernels_ns": 4500.0,
              "empty_kernels_ns": 4000.0}
    environment = {"ANSWER": json.dumps(answer), "PATH": os.environ["PATH"]}
    pairs, empty = gpu_host_suite.execute_rows(program, options, environment)
    assert empty == 4 and [row["ours"] for row, _ in pairs] == [1.0, 3.5]
    assert [gpu_run.is_met(row) for row, _ in pairs] == [True, False]
    with pytest.raises(gpu_host_suite.ProgramFailed, match="no device"):
        gpu_host_suite.execute_rows(program, options, {"FAILURE": "no device"})


def test_what_the_suite_cpu_requires():
    gqa, attention, linear = roofline_suite.SUITES
    limit = roofline_suite.limit_us
    prefill = case_file.GqaCase("prefill", 32, 8, 128, 1, 2048, "float32")
    peers = {"onnxruntime": 300.0, "PyTorch": 240.0}
    assert limit(gqa, prefill, "simd-prefill", peers, 9.0) == pytest.approx(200)
    assert limit(gqa, prefill, "amx-prefill", peers, 9.0) == pytest.approx(120)
    assert limit(gqa, prefill, "simd-prefill", {}, 9.0) is None
    decode = dataclasses.replace(prefill, phase="decode", tokens=8192)
    assert limit(gqa, decode, "simd-decode", peers, 85.0) == pytest.approx(100)
    assert limit(gqa, decode, "simd-decode", peers, 500.0) == pytest.approx(160)
    small = dataclasses.replace(decode, num_heads=12, kv_num_heads=12, head_size=64, tokens=128)
    assert limit(gqa, small, "simd-decode", peers, 1.0) == 10
    masked = attention_suite.AttentionCase(12, 12, 64, 1, 128, "float16", "all", "float")
    assert limit(attention, masked, "simd-prefill", peers, None) == pytest.approx(120)
    tokens = linear_suite.LinearCase(16, 16, 32, 128, 1, 2048, "float32")
    assert limit(linear, tokens, "recurrent", peers, None) == pytest.approx(60)


def test_rows_of_the_suite_cpu():
    case = case_file.GqaCase("decode", 4, 2, 8, 3, 5, "float16")
    times = {"ours": 2e-6, "PyTorch": 3e-6, "floor": 1e-6}
    row = roofline_suite.row_of(roofline_suite.SUITES[0], case, times, "e", 2, 0.5)
    assert row["peers"] == {"PyTorch": pytest.approx(3)} and row["limit"] is None
    assert row["floor_us"] == pytest.approx(0.5) and row["of_floor"] == pytest.approx(0.25)
    cells = roofline_suite.cells_of(case, row)
    assert len(cells) == len(roofline_suite.COLUMNS)
    assert "- / 1.50" in cells and "25%" in cells
    bare = roofline_suite.row_of(roofline_suite.SUITES[0], case, {"ours": 2e-6}, "e", 2)
    assert "-" in roofline_suite.cells_of(case, bare) and bare["of_floor"] is None


@pytest.mark.parametrize("make", [probe.Numpy, lambda: probe.load(BUILD)])
def test_probes_run_on_any_number_of_threads(make):
    machine = make()
    turns = [[np.full(size, 3, np.uint16) for size in (1, 63, 5000)] for _ in range(2)]
    for threads in (1, 3, 2):
        read = machine.reader(turns, threads)
        product = machine.product(1e6, threads)
        for _ in range(3):
            read()
            product()


def test_the_suite_cpu_runs_in_the_same_run_as_its_floor(tmp_path, capsys):
    out = tmp_path / "cpu.json"
    run.main(["cpu", "--quick", "--filter", "D64 B1 T128 float32", "--rounds", "1", "--seconds",
              "0.001", "--json", str(out), "--build", BUILD or str(tmp_path)])
    row, = json.loads(out.read_text())["rows"]
    assert row["ours"] > 0 and row["floor_us"] > 0 and row["limit"] == 10
    assert "decode 12/12 D64 B1 T128" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.parse_arguments(["gqa", "--plot", "x.png"])


def test_alignment_keeps_values_and_what_is_one_array():
    state = np.arange(7, dtype=np.float16).reshape(7, 1)
    zero = np.zeros((), np.int32)
    (inputs, outputs), (others, _) = memory.align(
        [({"past": state, "total": zero}, {"present": state}), ({"past": state[1:]}, {})])
    assert inputs["past"] is outputs["present"]
    assert inputs["past"].ctypes.data % 64 == 0 and others["past"].ctypes.data % 64 == 0
    np.testing.assert_array_equal(inputs["past"], state)
    np.testing.assert_array_equal(others["past"], state[1:])
    assert inputs["total"].shape == ()
