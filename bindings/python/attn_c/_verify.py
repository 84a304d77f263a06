"""python -m attn_c verify: the golden cases of this package, which need numpy alone, and the
official node tests of the package onnx where that is installed."""

import argparse
import importlib.util
import re
import sys
import unittest
import warnings
from typing import Any, Iterator, NamedTuple, Optional, Sequence

from . import _golden, _report
from ._context import Context
from .errors import Error, Unsupported

SUITES = ("golden", "node")

# Operators with node tests in the package onnx; those of models that are expanded to primitive
# operators are none of this library's.
OPERATORS = ("Attention", "LinearAttention", "RotaryEmbedding", "TensorScatter")
_CHOSEN = "chosen"  # the engine that the library takes by itself


class Outcome(NamedTuple):
    """One test under one engine. state: "passed", "refused" (the engine does not serve the node,
    `text` is its reason), "failed" or "missing" (there is no such operator yet)."""

    operator: str
    case: str
    engine: str
    state: str
    text: str = ""


def _cases() -> dict[str, list[tuple[str, int, Any]]]:
    """{operator: [(case name, opset, node)]} of the package's tests of one node."""
    from onnx.backend.test.loader import load_model_tests

    found: dict[str, list[tuple[str, int, Any]]] = {name: [] for name in OPERATORS}
    for case in load_model_tests(kind="node"):
        model: Any = case.model
        nodes = model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in found or nodes[0].domain:
            continue
        opset = next(one.version for one in model.opset_import if not one.domain)
        found[nodes[0].op_type].append((case.name, opset, nodes[0]))
    return found


class _Result(unittest.TestResult):
    """Keeps what went wrong as exceptions instead of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Optional[BaseException] = None
        self.skip = ""

    def addError(self, test: Any, err: Any) -> None:
        self.error = err[1]

    addFailure = addError

    def addSkip(self, test: Any, reason: str) -> None:
        self.skip = reason


def _first_lines(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[:6])}"


def _run_one(tests: Any, backend: Any, operator: str, case: str,
             engine: Optional[str]) -> Optional[Outcome]:
    """None where the engine is one of other operators."""
    from .onnx_backend import OtherStage

    backend.engine, backend.last = engine, None
    result = _Result()
    device = "cuda" if backend.context_name.startswith("cuda") else "cpu"
    tests(f"{case}_{device}").run(result)
    name = engine or _CHOSEN
    if result.skip:
        return Outcome(operator, case, name, "failed", f"skipped: {result.skip}")
    if isinstance(result.error, OtherStage):
        return None
    if isinstance(result.error, Unsupported) and engine is not None:
        return Outcome(operator, case, name, "refused", str(result.error))
    if result.error is not None:
        return Outcome(operator, case, name, "failed", _first_lines(result.error))
    if engine is None:
        name = _CHOSEN
    return Outcome(operator, case, name, "passed", ", ".join(
        f"{stage} by {by}" for stage, by in backend.last.engines.items()))


def run(device: str = "cpu", engine: Optional[str] = None,
        operators: Sequence[str] = OPERATORS) -> list[Outcome]:
    """Every test of these operators, under the engine that is chosen and under each that can be
    forced; or under `engine` alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tests that the package makes of other operators
        from onnx.backend.test import BackendTest

        from .onnx_backend import for_engine, operator_of

        cases = _cases()
        backend = for_engine(device)
        names = [name for operator in operators for name, _, _ in cases[operator]]
        pattern = "^(" + "|".join(re.escape(name) for name in names) + ")_"
        runner = BackendTest(backend, __name__).include(pattern)
        tests = runner.test_cases["OnnxBackendNodeModelTest"]
    engines = [engine] if engine else [None, *backend.context().info.engines]
    outcomes = []
    for operator in operators:
        for one in engines:
            for case, opset, node in cases[operator]:
                reason = operator_of(node, opset)
                if reason is not None:
                    if one == engines[0]:
                        outcomes.append(Outcome(operator, case, one or _CHOSEN, "missing", reason))
                    continue
                outcome = _run_one(tests, backend, operator, case, one)
                if outcome is None:
                    break  # so it is for the operator's other cases
                outcomes.append(outcome)
    return outcomes


# ---- the report ---------------------------------------------------------------------------------

def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts by operator and engine, and in all: `cases` that the engine of the library's choice
    passed, of `total`."""
    operators: dict[str, dict[str, Any]] = {}
    for one in outcomes:
        entry = operators.setdefault(one.operator, {"cases": set(), "engines": {}, "missing": ""})
        entry["cases"].add(one.case)
        if one.state == "missing":
            entry["missing"] = one.text
            continue
        counts = entry["engines"].setdefault(one.engine, {"passed": 0, "refused": 0, "failed": 0})
        counts[one.state] += 1
    by_case: dict[tuple[str, str], set[str]] = {}
    for one in outcomes:
        by_case.setdefault((one.operator, one.case), set()).add(one.state)
    states = list(by_case.values())
    for entry in operators.values():
        entry["cases"] = len(entry["cases"])
    return {
        "operators": operators, "total": len(states),
        "passed": sum("passed" in state and "failed" not in state for state in states),
        "failed": sum("failed" in state for state in states),
        "missing": sum("missing" in state for state in states),
        "refused": sum(state == {"refused"} for state in states),
        "runs": sum(one.state == "passed" for one in outcomes)}


def _rows(counts: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for operator, entry in counts["operators"].items():
        if not entry["engines"]:
            yield operator, str(entry["cases"]), "missing", "", "", ""
        for engine, numbers in entry["engines"].items():
            yield (operator, str(entry["cases"]), engine, str(numbers["passed"]),
                   str(numbers["refused"]), str(numbers["failed"]))


def _print_table(counts: dict[str, Any], title: str) -> None:
    heads = ("operator", "cases", "engine", "passed", "refused", "failed")
    _report.table(title, heads, _rows(counts), ("operator", "engine"))


def _closing_line(counts: dict[str, Any]) -> str:
    line = (f"{counts['passed']} of {counts['total']} node tests passed "
            f"({counts['runs']} runs under engines)")
    for state in ("failed", "refused", "missing"):
        if counts[state]:
            line += f", {counts[state]} {state}"
    return line


def run_golden(device: str = "cpu") -> list[_golden.Outcome]:
    """The golden cases of the package, which are calls of the CPU."""
    context = Context(device, ignore_environment=True)
    outcomes = []
    with _report.Progress("golden cases", len(_golden.names())) as progress:
        for name in _golden.names():
            outcomes.append(_golden.run_case(context, _golden.FOLDER, name))
            progress.step(name)
    return outcomes


def _golden_suite(arguments: argparse.Namespace, report: dict[str, Any]) -> bool:
    """Runs the golden cases into the report; whether all is well."""
    if not arguments.device.startswith("cpu"):
        report["suites"]["golden"] = {"passed": 0, "failed": 0, "skipped": len(_golden.names()),
                                      "reason": "the golden cases are calls of the CPU"}
        if not arguments.json:
            print(f"{len(_golden.names())} golden cases skipped: they are calls of the CPU")
        return True
    outcomes = run_golden(arguments.device)
    failed = [one for one in outcomes if one.wrong]
    report["suites"]["golden"] = {
        "passed": len(outcomes) - len(failed), "failed": len(failed), "skipped": 0}
    report["golden"] = [one._asdict() for one in outcomes]
    if not arguments.json:
        for one in failed:
            print(f"FAILED {one.case}: {one.wrong}")
        print(f"{len(outcomes) - len(failed)} of {len(outcomes)} golden cases passed")
    return bool(outcomes) and not failed


def _node_suite(arguments: argparse.Namespace, report: dict[str, Any]) -> bool:
    """Runs the node tests into the report; whether all is well."""
    import onnx

    outcomes = run(arguments.device, arguments.engine, arguments.operator or OPERATORS)
    counts = summary(outcomes)
    report["suites"]["node"] = {
        "passed": counts["passed"], "failed": counts["failed"],
        "skipped": counts["missing"] + counts["refused"]}
    report.update(onnx=onnx.__version__, **counts,
                  outcomes=[one._asdict() for one in outcomes])
    if not arguments.json:
        _print_table(counts, f"node tests of onnx {onnx.__version__} on {arguments.device}")
        for one in outcomes:
            if one.state == "failed":
                print(f"FAILED {one.case} under {one.engine}: {one.text}")
        for name, entry in counts["operators"].items():
            if entry["missing"]:
                print(f"MISSING {name}: {entry['missing']}")
        print(_closing_line(counts))
    good = counts["failed"] == 0 and counts["refused"] == 0
    return good and (counts["missing"] == 0 or not arguments.complete)


def _wanted_suites(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The suites that are meant: with an engine or operators, node tests alone."""
    if arguments.suite:
        return (arguments.suite,)
    return ("node",) if arguments.engine or arguments.operator else SUITES


def main(arguments: argparse.Namespace) -> int:
    """The command `verify`; 0 where something ran and nothing failed, 2 where nothing could."""
    wanted = _wanted_suites(arguments)
    has_onnx = importlib.util.find_spec("onnx") is not None
    if wanted == ("node",) and not has_onnx:
        print("verify: needs the package onnx: pip install 'attn_c[test]'", file=sys.stderr)
        return 2
    report: dict[str, Any] = {"device": arguments.device, "suites": {}}
    good = True
    try:
        Context(arguments.device)  # a device that cannot be used is said before anything is loaded
        if "golden" in wanted:
            good = _golden_suite(arguments, report)
        if "node" in wanted and has_onnx:
            good = _node_suite(arguments, report) and good
    except Error as error:
        print(f"verify: every case of {' and '.join(wanted)} is skipped: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        _report.as_json(report)
    elif "node" in wanted and not has_onnx:
        print("node tests skipped: the package onnx is not here (pip install 'attn_c[test]')")
    if not any(suite["passed"] or suite["failed"] for suite in report["suites"].values()):
        print("verify: nothing was run", file=sys.stderr)
        return 2 if good else 1
    return 0 if good else 1
