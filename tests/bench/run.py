"""Measures suites of cases, and peers in the same run: `./dev bench SUITE [--peers] [--json FILE]`.

A row's `limit` is the largest value that meets the project's requirement, where there is one.
JSON: {"machine": {...}, "rows": [{"case", "metric", "unit", "ours", "peers": {name: value},
"limit"}]}.
"""

import argparse
import json
import os
import pathlib
import sys

# Where numpy measures what the machine can do, it does so on threads of this program.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import attention_suite  # noqa: E402
import gqa_suite  # noqa: E402
import host_suite  # noqa: E402
import linear_suite  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import roofline_suite  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = {"gqa": gqa_suite.SUITE, "attention": attention_suite.SUITE, "linear": linear_suite.SUITE,
          "host": host_suite, "cpu": roofline_suite}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--peers", action="store_true", help="measure other libraries as well")
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--filter", help="only cases with this text in their name and type")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the table")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.png",
                        help="draw the results of the suite cpu; needs matplotlib")
    parser.add_argument("--probe", type=pathlib.Path, metavar="FILE",
                        help="the library cpu_probe, where it is not in the build's folder lib")
    parser.add_argument("--threads", type=int, default=2, help="threads of each (2)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round and library (0.1)")
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall",
                        help="process: processor time, for busy machines and --threads 1 (wall)")
    parser.add_argument("--engine", help="force an engine of ours")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is not met")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads start at 1")
    if options.plot and not hasattr(SUITES[options.suite], "plot"):
        parser.error(f"--plot: the suite {options.suite} has no plot")
    return options


class Table:
    """Prints rows as they come, in columns that are wide enough for most, and keeps them."""

    def __init__(self, columns):
        self._widths = [max(len(name), width) for name, width in
                        zip(columns, (40, 9, 11, 11, 7, 15, 0))]
        self.rows = []
        self(columns)

    def __call__(self, cells):
        self.rows.append(cells)
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, self._widths)).rstrip(),
              flush=True)

    def markdown(self):
        """The same as a Markdown table."""
        head, *rest = ("| " + " | ".join(cells) + " |" for cells in self.rows)
        return "\n".join([head, "|" + " --- |" * len(self.rows[0]), *rest])


def summary(rows):
    """Lines that say which limits were met."""
    limited = [row for row in rows if row["limit"] is not None]
    missed = [row for row in limited if row["ours"] > row["limit"]]
    return [f"{len(rows)} rows; {len(limited) - len(missed)} of {len(limited)} limits met",
            *(f"missed: {row['case']}: {row['ours']:.1f} {row['unit']}, limit {row['limit']:.1f}"
              for row in missed)]


def main(arguments=None):
    options = parse_arguments(arguments)
    try:
        import attn_c
    except ImportError:
        sys.path.insert(0, str(options.build / "python"))
        import attn_c
    suite = SUITES[options.suite]
    info = attn_c.Context("cpu", thread_count=options.threads).info
    description = machine.describe(info, {"attn_c": attn_c.__version__, **suite.versions(options)})
    description["clock"] = options.clock
    for line in machine.lines(description):
        print(line)
    table = Table(suite.COLUMNS)
    rows = suite.run(attn_c, options, table)
    verdict = summary(rows)
    print("\n".join(verdict))
    if options.json:
        options.json.write_text(
            json.dumps({"machine": description, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text("\n\n".join(
            [f"# Suite {options.suite}", *machine.lines(description), table.markdown(),
             *verdict]) + "\n", encoding="utf-8")
    if options.plot:
        suite.plot(rows, options.plot)
    return 1 if options.check and len(verdict) > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
