"""What is in the wheel, what it promises in its name, and that it runs with numpy alone."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from conftest import ROOT, VERSIONS, find_python

MAX_BYTES = 20 << 20
CASES = len(list((ROOT / "tests" / "golden" / "cases").glob("*.json")))
OURS = ("attn_c/", "attn_c-")


def run(python, *arguments):
    """Output of a program that sees its environment alone, from another folder, warnings fatal."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("ATTN_C_", "PYTHON", "LD_"))}
    done = subprocess.run([str(python), "-W", "error", "-P", *arguments], cwd="/", env=clean,
                          text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_name_promises_every_python_and_a_platform(wheel):
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("attn_c", "cp311", "abi3")
    assert version in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert platform.startswith("manylinux_2_")


def test_it_is_small(wheel):
    assert wheel.stat().st_size <= MAX_BYTES


def test_everything_is_in_it_and_nothing_else(wheel):
    names = [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]
    assert all(name.startswith(OURS) for name in names)
    inside = {name.removeprefix("attn_c/") for name in names if name.startswith("attn_c/")}
    sources = ROOT / "bindings" / "python" / "attn_c"
    cases = ROOT / "tests" / "golden" / "cases"
    golden = {f"golden/{path.name}" for path in cases.iterdir()}
    assert golden <= inside
    expected = golden | {path.relative_to(sources).as_posix() for path in sources.rglob("*")
                if path.is_file() and path.suffix != ".pyc"}
    assert expected <= inside
    assert {"_native.abi3.so", "libattn_c.so.0", "native.py", "py.typed"} <= inside
    generated = {"_native.abi3.so", "libattn_c.so.0", "native.py", "attn_c_kernels.pack"}
    assert inside - expected <= generated
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {
        "LICENSE", "THIRD_PARTY_NOTICES.md"}


def test_the_module_keeps_to_the_stable_interface(wheel):
    done = subprocess.run([sys.executable, "-m", "abi3audit", "--strict", "--report", str(wheel)],
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    modules = [module for spec in json.loads(done.stdout)["specs"].values()
               for module in spec["wheel"]]
    assert [module["name"] for module in modules] == ["_native.abi3.so"]
    result = modules[0]["result"]
    assert result["is_abi3"] and result["is_abi3_baseline_compatible"]
    assert result["baseline"] == "3.11" and not result["non_abi3_symbols"]


def test_no_other_library_is_needed(wheel):
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(wheel)], text=True,
                          capture_output=True, check=True)
    platform = wheel.stem.split("-")[-1]
    text = " ".join(done.stdout.split())
    assert f'consistent with the following platform tag: "{platform}"' in text
    assert "external shared libraries are required" not in text


def test_a_python_is_here():
    assert any(find_python(version) for version in VERSIONS)


def test_it_runs_with_numpy_alone(installed):
    code = ("import importlib.metadata as m, attn_c, numpy as np\n"
            "print(sorted({d.name.lower() for d in m.distributions()}))\n"
            "op = attn_c.Context('cpu').op('ai.onnx', 'Attention', 24)\n"
            "x = np.ones((1, 1, 2, 4), np.float32)\n"
            "print(op(Q=x, K=x, V=x).Y.sum())\n"
            "print(attn_c.__version__ == m.version('attn_c'))\n")
    assert run(installed, "-c", code).splitlines() == ["['attn_c', 'numpy']", "8.0", "True"]


def test_read_only_arrays_are_inputs(installed):
    """numpy before 2.1 has no DLPack for them."""
    code = ("import attn_c, numpy as np\n"
            "ctx = attn_c.Context('cpu')\n"
            "op = ctx.op('ai.onnx', 'Attention', 24)\n"
            "x = np.ones((1, 1, 2, 4), np.float32)\n"
            "x.setflags(write=False)\n"
            "given, y = dict(Q=x, K=x, V=x), np.zeros_like(x)\n"
            "op.prepare(given, ['Y']).execute(given, {'Y': y}, session=ctx.session())\n"
            "op.bind(None, given, {'Y': y}).execute(prepare=True)\n"
            "print(op(**given).Y.sum(), y.sum())\n"
            "try: op(out={'Y': x}, **given)\n"
            "except attn_c.InvalidArgument as error: print('read-only' in str(error))\n")
    assert run(installed, "-c", code).splitlines() == ["8.0 8.0", "True"]


def test_its_own_library_is_used(installed):
    code = ("import attn_c, pathlib\n"
            "inside = str(pathlib.Path(attn_c.__file__).parent)\n"
            "lines = pathlib.Path('/proc/self/maps').read_text().splitlines()\n"
            "found = {line.split()[-1] for line in lines if 'libattn_c' in line}\n"
            "print(found == {inside + '/libattn_c.so.0'})\n")
    assert run(installed, "-c", code) == "True\n"


FAKE = ROOT / "build" / "release" / "tests" / "loading" / "fakes" / "libcuda.so.1"
# The fake driver's state begins with version, devices, and the compute capability.
ON_THE_FAKE = """
import ctypes, json, sys, attn_c
fake = ctypes.CDLL(sys.argv[1]).fake_driver
fake.restype = ctypes.POINTER(ctypes.c_int)
for fake()[2], fake()[3] in ((8, 0), (8, 9), (9, 0)):
    context = attn_c.Context("cuda", driver_path=sys.argv[1], nvrtc_path="/no/such/libnvrtc.so",
                             disk_cache=False, ignore_environment=True)
    plan = context.op("ai.onnx", "TensorScatter", 24).prepare(
        {"past_cache": ("float16", (1, 2, 8, 64)), "update": ("float16", (1, 2, 1, 64)),
         "write_indices": ("int64", (1,))})
    print(context.info.architecture, "kernel from pack" in json.dumps(plan.describe()))
"""


def test_the_pack_beside_the_library_is_used_without_a_compiler(wheel, installed):
    if "attn_c/attn_c_kernels.pack" not in zipfile.ZipFile(wheel).namelist():
        pytest.skip("no pack was made: NVRTC (tests/tools/requirements-kernels.txt) is not here")
    if not FAKE.exists():
        pytest.skip("the fake driver of tests/loading was not built")
    lines = run(installed, "-c", ON_THE_FAKE, str(FAKE)).splitlines()
    assert lines == ["sm_80 True", "sm_89 True", "sm_90 True"]


def test_the_commands_need_no_other_package(installed):
    verified = json.loads(run(installed, "-m", "attn_c", "verify", "--json"))
    assert verified["suites"] == {"golden": {"passed": CASES, "failed": 0, "skipped": 0}}
    assert "golden cases passed" in run(installed, "-m", "attn_c", "verify")
    known = json.loads(run(installed, "-m", "attn_c", "info", "--json"))
    assert known["library"].startswith(known["package"])
    assert "GroupQueryAttention" in run(installed, "-m", "attn_c", "list")
    assert json.loads(run(installed, "-m", "attn_c", "doctor", "--json"))["findings"]
    rows = json.loads(run(installed, "-m", "attn_c", "bench", "host", "--json"))["rows"]
    assert [row["metric"] for row in rows] == ["time, binding", "time, plan"]
