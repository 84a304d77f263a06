"""The benchmark runner: cases from text, results in the promised form. No speed is tested here."""

import itertools
import json
import os
import pathlib

import pytest

import case_file
import gqa_memory
import measure
import run

BUILD = os.environ.get("ATTN_BENCH_BUILD", "")


def test_case_files_expand_and_have_unique_names():
    for name in ("gqa.txt", "gqa_quick.txt"):
        cases = case_file.read_gqa_cases(pathlib.Path(run.__file__).parent / "cases" / name)
        assert len({(case.name, case.type) for case in cases}) == len(cases) > 30


def test_a_line_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "cases.txt"
    path.write_text("# comment\nphase=prefill heads=4/2\n")
    with pytest.raises(ValueError, match=r"cases\.txt:2.*tokens"):
        case_file.read_gqa_cases(path)


def test_work_of_a_case():
    prefill = case_file.GqaCase("prefill", 4, 2, 8, 3, 5, "float32")
    assert prefill.flops == 3 * 4 * (1 + 2 + 3 + 4 + 5) * 8 * 2 * 2
    decode = case_file.GqaCase("decode", 4, 2, 8, 3, 5, "float16")
    assert decode.cache_bytes == 3 * 2 * 5 * 8 * 2 * 2


def test_decode_caches_exceed_the_last_level_and_take_turns():
    case = case_file.GqaCase("decode", 4, 2, 64, 1, 2048, "float16")
    sets = gqa_memory.argument_sets(case)
    assert len(sets) * case.cache_bytes > 2 * gqa_memory.last_level_bytes()
    assert all(outputs["present_key"] is inputs["past_key"] for inputs, outputs in sets)
    assert len({id(inputs["past_key"]) for inputs, _ in sets}) == len(sets)
    seen = []
    for start in (0.0, 0.5):
        turn = gqa_memory.taking_turns([lambda i=i: seen.append(i) for i in range(4)], start)
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


@pytest.mark.skipif(not BUILD, reason="the build folder with host_overhead is not named")
def test_the_host_suite_runs(tmp_path):
    results = tmp_path / "results.json"
    assert run.main(["host", "--quick", "--build", BUILD, "--json", str(results)]) == 0
    rows = {row["case"]: row for row in json.loads(results.read_text())["rows"]}
    assert set(rows) == {"plan_execute", "binding_execute", "library_load"}
    assert all(row["ours"] > 0 and row["limit"] > 0 for row in rows.values())
