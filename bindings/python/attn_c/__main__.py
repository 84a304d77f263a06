"""The package's commands: python -m attn_c --help."""

import argparse
import sys

from . import _bench, _doctor, _info, _verify

_MOST_DIGITS = 4  # of a number of threads

def _count(text: str) -> int:
    """A number of threads."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise argparse.ArgumentTypeError(f"expected 0 (all) to {10**_MOST_DIGITS - 1}; "
                                         f"got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attn_c")
    commands = parser.add_subparsers(required=True, metavar="command")

    info = commands.add_parser("info", help="versions, files, devices and their engines")
    info.add_argument("--json", action="store_true", help="the same as JSON")
    info.set_defaults(run=_info.info)

    listing = commands.add_parser("list", help="the operators, or all about one")
    listing.add_argument("operator", nargs="?", help="its name: inputs, outputs, attributes")
    listing.add_argument("--json", action="store_true", help="everything, as JSON")
    listing.set_defaults(run=_info.list_operators)

    verify = commands.add_parser(
        "verify", help="run the golden cases, and the node tests of the package onnx where it is")
    verify.add_argument("--suite", choices=_verify.SUITES, help="this suite alone")
    verify.add_argument("--json", action="store_true", help="every outcome, as JSON")
    verify.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:N")
    verify.add_argument("--engine", help="node tests: this engine alone")
    verify.add_argument("--operator", action="append", choices=_verify.OPERATORS,
                        help="node tests: this operator alone; may be given several times")
    verify.add_argument("--complete", action="store_true",
                        help="an operator that the library does not have is a failure")
    verify.set_defaults(run=_verify.main)

    bench = commands.add_parser("bench", help="measure calls on the CPU, beside others")
    bench.add_argument("suite", nargs="?", choices=_bench.SUITES, default="attention")
    bench.add_argument("--cases", metavar="FILE", help="cases from a file instead of a suite")
    bench.add_argument("--peers", action="store_true",
                       help="numpy, and PyTorch and ONNX Runtime where they are, in the same run")
    bench.add_argument("--threads", type=_count, default=0, help="0: all (the default)")
    bench.add_argument("--json", nargs="?", const="-", metavar="FILE",
                       help="the numbers as JSON, to a file where one is named")
    bench.add_argument("--plot", metavar="FILE.png", help="draw them (needs matplotlib)")
    bench.set_defaults(run=_bench.main)

    doctor = commands.add_parser(
        "doctor", help="find what keeps the library or a GPU from being used, and how to mend it")
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    doctor.add_argument("--device", choices=("cpu", "cuda"),
                        help="cuda: that no GPU can be used is a problem in any case")
    doctor.set_defaults(run=_doctor.main)
    return parser


def main() -> int:
    """Runs the command line; its exit code."""
    arguments = _parser().parse_args()
    result: int = arguments.run(arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
