"""Measures on a GPU, peers in the same run: `./dev gpu-bench SUITE [--quick] [--out FOLDER]`.

Writes <out>/gpu-SUITE.json and .md. A row's `limit` is the largest value that meets the project's
requirement; `bar` says that there is one, so a row without a limit or a value is not met.
JSON: {"machine": {...}, "rows": [{"case", "metric", "unit", "ours", "peers": {name: value},
"limit", "bar", "failures": {name: why}, ...}]}.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import gpu_gqa_suite  # noqa: E402
import gpu_host_suite  # noqa: E402
import gpu_operators_suite  # noqa: E402
import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = {"gqa": gpu_gqa_suite, "host": gpu_host_suite,
          "operators": gpu_operators_suite}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="gpu-bench", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--quick", action="store_true", help="fewer cases, fewer repetitions")
    parser.add_argument("--filter", help="only cases with this text in their name and type")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench",
                        metavar="FOLDER", help="where the results go (build/bench)")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (7; quick: 3)")
    parser.add_argument("--seconds", type=float, default=0.01,
                        help="of a round and contender (0.01)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--engine", help="force an attention engine of ours")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release",
                        help="the folder with lib, bin and python (build/release)")
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is not met")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.library = options.build / "lib" / "libattn_c.so.0"
    return options


def driver_release():
    """The version of the NVIDIA driver itself, empty where it does not say."""
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        found = re.search(r"\b(\d+\.\d+(\.\d+)?)\b", text)
        if found:
            return found.group(1)
        return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              check=True, stdout=subprocess.PIPE,
                              text=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def describe(info, versions):
    """The machine, the device, and versions of everything."""
    description = machine.describe(info, versions)
    description.update(architecture=info.architecture, driver=driver_release(),
                       driver_cuda=info.driver_version, nvrtc=info.nvrtc_version)
    return description


def lines(description):
    """The same for people."""
    versions = ", ".join(f"{name} {value}" for name, value in description["versions"].items())
    return [f"{description['device']} ({description['architecture']}), driver "
            f"{description['driver'] or 'unknown'} (CUDA {description['driver_cuda']}), NVRTC "
            f"{description['nvrtc'] or 'none'}; {versions}",
            f"{description['processor']}, {description['processors']} processors, "
            f"{description['system']}, load average at the start {description['load']:.1f}"]


def is_met(row):
    """Whether a row with a bar meets it."""
    return row["ours"] is not None and row["limit"] is not None and row["ours"] <= row["limit"]


def summary(rows, seconds):
    """What is missed and what failed; the counts last."""
    barred = [row for row in rows if row["bar"]]
    missed = [row for row in barred if not is_met(row)]
    text = []
    for row in rows:
        text += [f"failed: {row['case']}: {name}: {why}" for name, why in row["failures"].items()]
    for row in missed:
        if row["ours"] is None or row["limit"] is None:
            text.append(f"not measured: {row['case']}")
        else:
            text.append(f"missed: {row['case']}: {row['ours']:.3g} {row['unit']}, limit "
                        f"{row['limit']:.3g} ({row['ours'] / row['limit']:.2f} of it)")
    return [*text, f"{len(rows)} cells; {len(barred) - len(missed)} of {len(barred)} meet the bar; "
                   f"{seconds:.0f} s"]


class Table:
    """Prints rows as they come, in columns that are wide enough for most, and keeps them."""

    def __init__(self, columns):
        self.rows = [columns]
        self._widths = [max(len(column), 9) for column in columns]
        self._widths[0] = 38
        self._show(columns)

    def __call__(self, cells):
        self.rows.append(cells)
        self._show(cells)

    def _show(self, cells):
        print("  ".join(cell.ljust(width)
                        for cell, width in zip(cells, self._widths)).rstrip(), flush=True)

    def markdown(self):
        """The same as a Markdown table."""
        head, *rest = ("| " + " | ".join(cells) + " |" for cells in self.rows)
        return "\n".join([head, "|" + " --- |" * len(self.rows[0]), *rest])


def write(options, description, rows, table, verdict):
    """The results as JSON and as Markdown."""
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"gpu-{options.suite}"
    (options.out / f"{name}.json").write_text(
        json.dumps({"machine": description, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    (options.out / f"{name}.md").write_text("\n\n".join(
        [f"# Suite {options.suite} on a GPU", *lines(description), table.markdown(),
         *verdict]) + "\n", encoding="utf-8")


def load_library(options):
    """The Python package of the build, over that build's library."""
    sys.path.insert(0, str(options.build / "python"))
    os.environ["ATTN_C_LIBRARY"] = str(options.library.resolve())
    import attn_c
    return attn_c


def main(arguments=None):
    options = parse_arguments(arguments)
    start = time.monotonic()
    if not options.library.is_file():
        print(f"{options.library} is not there: build the targets attn_c and attn_c_python")
        return 1
    attn_c = load_library(options)
    suite = SUITES[options.suite]
    try:
        info = attn_c.Context(options.device).info
    except attn_c.Error as error:
        print(f"no device to measure on: {error}")
        return 1
    description = describe(info, {"attn_c": attn_c.__version__, **suite.versions(options)})
    print("\n".join(lines(description)))
    table, rows = Table(suite.COLUMNS), []

    def emit(row, cells):
        rows.append(row)
        table(cells)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is there is written
    try:
        suite.run(attn_c, options, emit)
    finally:
        verdict = summary(rows, time.monotonic() - start)
        print("\n".join(verdict), flush=True)
        write(options, description, rows, table, verdict)
    return 1 if options.check and not all(is_met(row) for row in rows if row["bar"]) else 0


if __name__ == "__main__":
    sys.exit(main())
