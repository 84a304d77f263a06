"""python -m attn_c: what it prints, its JSON, and its exit codes."""

import argparse
import builtins
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import attn_c
from attn_c import _bench, _doctor, _golden, _info, _report

PACKAGE = pathlib.Path(attn_c.__file__).parent


def run(*arguments, code=0, **environment):
    """Output of a command that ends with an exit code."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "attn_c", *arguments], text=True, check=False,
        capture_output=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "COLUMNS": "200", **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_info_tells_versions_files_and_devices():
    known = json.loads(run("info", "--json"))
    assert known["version"] == attn_c.version()
    assert pathlib.Path(known["library"]).name.startswith("libattn_c.so")
    assert known["devices"][0]["device"] == "cpu"
    assert known["devices"][0]["context"]["engines"] and known["devices"][0]["context"]["amx"]
    assert all(one["available"] or one["reason"] for one in known["devices"])
    machine = known["devices"][0]["machine"]
    assert machine["cores"] >= 1 and machine["first_level_bytes"] > 0
    assert 1 <= machine["available"] <= len(os.sched_getaffinity(0))
    text = run("info")
    assert attn_c.version() in text and "simd-decode" in text


def test_list_names_operators_and_all_about_one():
    text = run("list")
    assert all(one.type in text for one in attn_c.operators())
    one = run("list", "TensorScatter")
    assert "write_indices" in one and "optional" in one and "required" in one
    tree = json.loads(run("list", "Attention", "--json"))
    assert tree[0]["inputs"][0]["name"] == "Q"
    assert "there is no operator Nonsense; there are" in run("list", "Nonsense", code=2)


def test_verify_runs_the_golden_cases():
    count = len(_golden.names())
    assert count >= 60
    report = json.loads(run("verify", "--suite", "golden", "--json"))
    assert report["suites"] == {"golden": {"passed": count, "failed": 0, "skipped": 0}}
    assert len(report["golden"]) == count
    assert f"{count} of {count} golden cases passed" in run("verify", "--suite", "golden")


def test_verify_without_a_device_says_so():
    if any(one.available and one.device_type == 2 for one in attn_c.devices()):
        pytest.skip("a GPU is here")
    assert "libcuda" in run("verify", "--device", "cuda", "--suite", "node", code=2)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "cpu:1"])
def test_verify_of_an_unknown_device_is_refused(device):
    text = run("verify", "--device", device, "--suite", "golden", code=2)
    assert "device" in text and "golden is skipped" in text


def test_verify_says_what_it_skips():
    if any(one.available and one.device_type == 2 for one in attn_c.devices()):
        text = run("verify", "--device", "cuda", "--suite", "golden", code=2)
        assert "golden cases skipped" in text and "nothing was run" in text
    else:
        text = run("verify", "--device", "cuda", code=2)
        assert "every case of golden and node is skipped: no CUDA driver" in text


def test_a_golden_case_that_fails_is_reported(tmp_path, ctx):
    for suffix in ("json", "bin"):
        data = bytearray((_golden.FOLDER / f"rotary_float32.{suffix}").read_bytes())
        if suffix == "bin":
            data[-1] ^= 0xff
            data[0] ^= 0xff
        (tmp_path / f"case.{suffix}").write_bytes(data)
    assert _golden.run_case(ctx, tmp_path, "case").wrong.startswith("Y: ")


def test_bench_measures_both_ways_beside_numpy(tmp_path):
    cases = tmp_path / "cases.txt"
    cases.write_text("phase=decode,prefill heads=1 size=8 batch=1 tokens=4\n")
    assert "phase: expected decode or prefill" in run("bench", "--cases", str(cases), code=2)
    cases.write_text("# two\nphase=decode heads=2/1 size=8 batch=1 tokens=3\n"
                     "phase=prefill heads=2/2 size=8 batch=2 tokens=3\n")
    target = tmp_path / "numbers.json"
    text = run("bench", "--cases", str(cases), "--peers", "--threads", "1", "--json", str(target))
    assert "decode 2/1 D8 B1 T3" in text
    report = json.loads(target.read_text())
    assert report["machine"]["thread_count"] == 1
    assert len(report["rows"]) == 4
    for row in report["rows"]:
        assert row["ours"] > 0 and row["unit"] == "us" and row["peers"]["numpy"] > 0


@pytest.mark.parametrize("arguments, words", [
    (["--threads", "-1"], "--threads: expected 0"), (["--threads", "x"], "--threads: expected 0"),
    (["--json", "/nowhere/x"], "--json: expected a file that can be written to; got '/nowhere/x'"),
    (["--json", "/"], "--json: expected a file"), (["--cases", "/nowhere"], "/nowhere"),
    (["--cases", "/"], "directory")])
def test_bench_refuses_before_it_measures(arguments, words):
    assert words in run("bench", *arguments, code=2)


@pytest.mark.parametrize("text, words", [
    ("", "there are no cases"), ("bad", "line 1: expected phase=, heads="),
    ("\nphase=decode heads=x size=8 batch=1 tokens=4", "line 2: heads: expected numbers from 1"),
    ("phase=decode heads=3/2 size=8 batch=1 tokens=4", "line 1: heads: expected a number, or N/M"),
    ("phase=decode heads=1 size=0 batch=1 tokens=4", "size: expected numbers from 1"),
    ("phase=decode heads=1 size=8 batch=-1 tokens=4", "batch: expected numbers from 1"),
    ("phase=decode heads=1 size=8 batch=1 tokens=4,", "tokens: expected numbers from 1"),
    ("\0", "line 1: expected")])
def test_cases_are_read_in_words(tmp_path, text, words):
    cases = tmp_path / "cases.txt"
    cases.write_text(text)
    options = argparse.Namespace(plot=None, json=None, cases=str(cases), suite="host")
    with pytest.raises(ValueError, match=re.escape(words)):
        _bench._checked_cases(options)


def test_bench_refuses_pictures_that_it_cannot_draw(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib draws")
    for name, words in ((tmp_path / "x.foo", "--plot: expected a file called .*.png"),
                        (tmp_path / "no" / "x.png", "--plot: expected a file that can be")):
        assert re.search(words, run("bench", "--plot", str(name), code=2))


def test_bench_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib draws")
    target = tmp_path / "numbers.png"
    run("bench", "host", "--plot", str(target))
    assert target.read_bytes().startswith(b"\x89PNG")


def test_a_peer_that_computes_something_else_is_no_peer(ctx, monkeypatch):
    case = _bench.read_cases("phase=decode heads=1 size=8 batch=1 tokens=2")[0]
    monkeypatch.setattr(_bench, "_peers", lambda case, inputs: [
        ("wrong", lambda: inputs["Q"] * 0)])
    with pytest.raises(attn_c.Error, match="wrong computes something else"):
        _bench.measure(ctx, case, True)


# ---- doctor -------------------------------------------------------------------------------------

def test_doctor_finds_nothing_wrong_or_says_what(monkeypatch):
    findings = json.loads(run("doctor", "--json"))["findings"]
    states = {one["what"]: one["state"] for one in findings}
    assert states["library"] == states["CPU"] == "ok"
    assert all(one["mend"] for one in findings if one["state"] == "problem")
    assert "attn_c doctor" in run("doctor")


@pytest.mark.parametrize("path, words", [
    ("/nowhere/libattn_c.so", "which cannot be loaded"), ("libm.so.6", "no library of attn_c")])
def test_doctor_finds_that_the_named_library_is_none(path, words):
    finding = json.loads(run("doctor", "--json", code=1, ATTN_C_LIBRARY=path))["findings"][0]
    assert (finding["what"], finding["state"]) == ("library", "problem")
    assert words in finding["found"] and "unset ATTN_C_LIBRARY" in finding["mend"]
    assert "ImportError: ATTN_C_LIBRARY is" in run("info", code=1, ATTN_C_LIBRARY=path)


def test_doctor_finds_a_gpu_that_cannot_be_used():
    if any(one.available and one.device_type == 2 for one in attn_c.devices()):
        pytest.skip("a GPU is here, and can be used")
    text = run("doctor", "--device", "cuda", code=1)
    assert "to mend" in text and "docker run --gpus all" in text
    text = run("doctor", "--device", "cuda", code=1, ATTN_C_DRIVER_PATH="/nowhere/libcuda.so")
    assert "/nowhere/libcuda.so" in text and "ATTN_C_DRIVER_PATH" in text


@pytest.mark.parametrize("reason, words", [
    ("no CUDA driver (libcuda.so.1) could be opened; tried", "--gpus all"),
    ("the CUDA driver serves CUDA 11.8: update the NVIDIA driver", "525.60"),
    ("it is sm_75; the CUDA back end needs sm_80 (Ampere) or later", "8.0"),
    ("this process was forked from one that used CUDA", "spawn"),
    ("this build of attn_c has no CUDA back end", "ATTN_C_BUILD_CUDA"),
    ("something else", "docs/cuda.md")])
def test_each_reason_has_a_remedy(reason, words):
    device = attn_c.DeviceInfo(2, 0, "GPU", False, reason)
    assert words in _doctor._mend_of(device)


def test_doctor_looks_at_the_cache_and_the_compiler(tmp_path):
    assert _doctor._cache("").state == "note"
    assert _doctor._cache(str(tmp_path / "later")).state == "ok"
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    found = _doctor._cache(str(open_folder))
    assert found.state == "problem" and "chmod 700" in found.mend
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert _doctor._cache(str(link)).state == "problem"
    assert _doctor._compiler("/x/libnvrtc.so", "13.0").state == "ok"
    assert "pip install" in _doctor._compiler("", "").mend


def test_doctor_sees_variables_and_another_version(monkeypatch):
    monkeypatch.setenv("ATTN_C_SIMD_LEVEL", "generic")
    assert "ATTN_C_SIMD_LEVEL=generic" in _doctor._environment().found
    monkeypatch.setenv("ATTN_C_SIMD_LEVLE", "generic")
    assert "knows no ATTN_C_SIMD_LEVLE" in _doctor._environment().found
    monkeypatch.setenv("ATTN_C_DRIVER_PATH", "/nowhere/libcuda.so.1")
    finding = _doctor._environment()
    assert finding.state == "problem" and finding.mend.startswith("unset ATTN_C_DRIVER_PATH")
    assert _doctor._cpu().state == "note"
    monkeypatch.setattr(_doctor, "version", lambda: "9.9.9")
    assert _doctor._library().state == "problem"


# ---- tables without rich ------------------------------------------------------------------------

def test_tables_and_progress_need_no_rich(monkeypatch, capsys):
    real = builtins.__import__

    def without_rich(name, *rest, **more):
        if name.partition(".")[0] == "rich":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _report.table("title", ("name", "number"), [("a", 1), ("bcdef", 22)], ("name",))
    with _report.Progress("work", 2) as progress:
        progress.step("one")
    assert capsys.readouterr().out == "title\nname   number\na      1\nbcdef  22\n"


def test_the_bar_is_drawn_on_a_terminal(monkeypatch, capsys):
    pytest.importorskip("rich", reason="rich draws it")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with _report.Progress("work", 2) as progress:
        progress.step("one")
    assert "work" in capsys.readouterr().err


def test_the_library_is_found_in_the_process():
    assert _info.library_path().exists()
