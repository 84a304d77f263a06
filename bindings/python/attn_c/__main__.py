"""The package's commands: python -m attn_c --help."""

import argparse
import sys

from . import _verify


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attn_c")
    commands = parser.add_subparsers(required=True, metavar="command")
    verify = commands.add_parser(
        "verify", help="run the official node tests of the package onnx under every engine")
    verify.add_argument("--json", action="store_true", help="every outcome, as JSON")
    verify.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:N")
    verify.add_argument("--engine", help="this engine alone")
    verify.add_argument("--operator", action="append", choices=_verify.OPERATORS,
                        help="this operator alone; may be given several times")
    verify.add_argument("--complete", action="store_true",
                        help="an operator that the library does not have is a failure")
    verify.set_defaults(run=_verify.main)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
