"""Suite `host`: what a call and opening the library cost, by the program host_overhead; and what a
prepared plan's call costs from Python, and from C# and Rust by a program in each, where it can run.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

COLUMNS = ("case", "ours us", "limit us")

# Executes are counted in processor time of the one thread that runs them: what they cost the host,
# whatever else the machine does.
LIMITS_US = {"plan_execute": 2.0, "binding_execute": 2.0, "library_load": 5000.0}
LANGUAGE_LIMIT_US = 2.5
_SKIP = 77
_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def run(attn_c, options, emit):
    """All rows: medians of several repetitions."""
    program = options.build / "bin" / "host_overhead"
    if not program.is_file():
        raise SystemExit(f"{program} is not there: build the target host_overhead")
    repetitions = 3 if options.quick else 9
    text = subprocess.run(
        [str(program), "--benchmark_format=json", f"--benchmark_repetitions={repetitions}",
         "--benchmark_min_time=0.2", "--benchmark_report_aggregates_only=true"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = []
    for entry in json.loads(text)["benchmarks"]:
        if entry.get("aggregate_name") != "median":
            continue
        name = entry["run_name"].split("/")[0]
        clock = "real_time" if name == "library_load" else "cpu_time"
        microseconds = entry[clock] * _UNITS[entry["time_unit"]]
        rows.append({"case": name, "metric": "time", "unit": "us", "ours": microseconds,
                     "peers": {}, "limit": LIMITS_US[name]})
        emit((name, f"{microseconds:.3f}", f"{LIMITS_US[name]:g}"))
    return [*rows, *_python_rows(attn_c, emit), *_language_rows(options, emit)]


def _python_rows(attn_c, emit):
    """A prepared binding and a prepared plan, called from Python by one thread."""
    from attn_c import _bench

    for case in _bench.read_cases(_bench.CASES["host"]):
        for row in _bench.measure(attn_c.Context("cpu", thread_count=1), case, False):
            name = f"Python, {row['metric'].removeprefix('time, ')}"
            yield {**row, "case": name, "metric": "time"}
            emit((name, f"{row['ours']:.3f}", f"{row['limit']:g}"))


def _languages(build):
    """(case, command, environment) of the programs of other languages."""
    tools = _ROOT / "tests" / "tools"
    program = build / "csharp" / "HostOverhead.exe"
    for runtime in ("mono", "dotnet") if program.is_file() else ():
        yield f"C# ({runtime})", [tools / "run_csharp.py", runtime, program], {}
    yield ("Rust", [tools / "run_cargo.py", _ROOT / "bindings" / "rust", "run", "-q", "--release",
                    "--example", "host_overhead"],
           {"ATTN_C_LIBRARY": str(build / "lib" / "libattn_c.so"),
            "CARGO_TARGET_DIR": str(build / "rust")})


def _language_rows(options, emit):
    """A row for each language whose program runs here."""
    for case, command, environment in _languages(options.build.resolve()):
        done = subprocess.run([sys.executable, *map(str, command)], text=True, check=False,
                              stdout=subprocess.PIPE, env={**os.environ, **environment})
        if done.returncode == _SKIP:
            print(f"{case}: {done.stdout.strip()}", file=sys.stderr)
            continue
        found = re.search(r"([\d.]+) us a call", done.stdout)
        if done.returncode != 0 or not found:
            raise SystemExit(f"{case}: {done.stdout}")
        microseconds = float(found[1])
        yield {"case": f"plan_execute, {case}", "metric": "time", "unit": "us",
               "ours": microseconds, "peers": {}, "limit": LANGUAGE_LIMIT_US}
        emit((f"plan_execute, {case}", f"{microseconds:.3f}", f"{LANGUAGE_LIMIT_US:g}"))


def versions(options):
    """There are no peers."""
    return {}
