"""Suite `host`: what a call and opening the library cost, by the program host_overhead."""

import json
import pathlib
import subprocess

COLUMNS = ("case", "ours us", "limit us")

# Executes are counted in processor time of the one thread that runs them: what they cost the host,
# whatever else the machine does.
LIMITS_US = {"plan_execute": 2.0, "binding_execute": 2.0, "library_load": 5000.0}
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
    return rows


def versions(options):
    """There are no peers."""
    return {}
