"""The command `bench`: attention of one shape after another, beside what else computes it here."""

import argparse
import json
import os
import pathlib
import platform
import sys
import time
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy as np

from . import _report
from ._context import Context
from ._introspection import version
from .errors import Error

CASES = {
    # One new token over a cache, and a prompt: what an inference server does all day.
    "attention": """
        phase=decode heads=8/2 size=64,128 batch=1 tokens=512,2048
        phase=decode heads=32/8 size=128 batch=1 tokens=2048
        phase=prefill heads=8/2 size=64,128 batch=1 tokens=128,512
        """,
    # The smallest call: what is left is the cost of calling.
    "host": "phase=decode heads=1/1 size=64 batch=1 tokens=1",
}
SUITES = tuple(CASES)
# Many short rounds: on a busy machine some of them are left alone.
_ROUNDS, _SECONDS = 100, 0.002
_MOST_DIGITS = 7  # of a size
_HOST_LIMIT = 6.0  # microseconds that the smallest prepared call may cost


class Case(NamedTuple):
    """One measurement. tokens: keys that one new token sees, or the tokens of a prompt."""

    phase: str
    heads: int
    kv_heads: int
    size: int
    batch: int
    tokens: int

    @property
    def name(self) -> str:
        """Short and unique."""
        return (f"{self.phase} {self.heads}/{self.kv_heads} D{self.size} B{self.batch} "
                f"T{self.tokens}")


def _sizes(name: str, text: str) -> list[int]:
    """Whole numbers from 1 on, by commas."""
    numbers = text.split(",")
    if not all(number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
               and int(number) > 0 for number in numbers):
        raise ValueError(f"{name}: expected numbers from 1 to {10**_MOST_DIGITS - 1}; got {text!r}")
    return [int(number) for number in numbers]


def _cases_of(line: str) -> Iterator[Case]:
    """The cases of one line."""
    fields = dict(item.partition("=")[::2] for item in line.split())
    if sorted(fields) != ["batch", "heads", "phase", "size", "tokens"]:
        raise ValueError(f"expected phase=, heads=, size=, batch= and tokens=; got {line!r}")
    if fields["phase"] not in ("decode", "prefill"):
        raise ValueError(f"phase: expected decode or prefill; got {fields['phase']!r}")
    heads, slash, kv_heads = fields["heads"].partition("/")
    counts = [_sizes("heads", heads), _sizes("heads", kv_heads if slash else heads)]
    if [len(count) for count in counts] != [1, 1] or counts[0][0] % counts[1][0]:
        raise ValueError("heads: expected a number, or N/M where M divides N; "
                         f"got {fields['heads']!r}")
    for size in _sizes("size", fields["size"]):
        for batch in _sizes("batch", fields["batch"]):
            for tokens in _sizes("tokens", fields["tokens"]):
                yield Case(fields["phase"], counts[0][0], counts[1][0], size, batch, tokens)


def read_cases(text: str) -> list[Case]:
    """Cases from lines of `key=value`; commas make one case a value. Raises ValueError."""
    cases = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        try:
            cases += list(_cases_of(line)) if line else []
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if not cases:
        raise ValueError("there are no cases")
    return cases


def _inputs(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    rows = 1 if case.phase == "decode" else case.tokens

    def normal(heads: int, length: int) -> np.ndarray:
        shape = (case.batch, heads, length, case.size)
        return rng.standard_normal(shape, np.float32)

    return {"Q": normal(case.heads, rows), "K": normal(case.kv_heads, case.tokens),
            "V": normal(case.kv_heads, case.tokens)}


def _ours(context: Context, case: Case, inputs: dict[str, np.ndarray],
          output: np.ndarray) -> dict[str, Callable[[], Any]]:
    """A prepared binding, and a prepared plan that gets its tensors with each call."""
    op = context.op("ai.onnx", "Attention", 24, is_causal=int(case.phase == "prefill"))
    session = context.session()
    binding = op.bind(session, inputs, {"Y": output})
    binding.prepare()
    plan = op.prepare(inputs, {"Y": output})
    outputs = {"Y": output}
    return {"binding": binding.execute,
            "plan": lambda: plan.execute(inputs, outputs, session=session)}


def _numpy(case: Case, inputs: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
    group = case.heads // case.kv_heads
    rows = inputs["Q"].shape[2]
    hidden = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)

    def call() -> np.ndarray:
        query = inputs["Q"].reshape(case.batch, case.kv_heads, group * rows, case.size)
        scores = query @ inputs["K"].swapaxes(2, 3) / np.float32(np.sqrt(case.size))
        scores = scores.reshape(case.batch, case.kv_heads, group, rows, -1)
        if case.phase == "prefill":
            scores = scores + hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = weights.reshape(case.batch, case.kv_heads, group * rows, -1) @ inputs["V"]
        result: np.ndarray = mixed.reshape(inputs["Q"].shape)
        return result

    return call


def _torch(case: Case, inputs: dict[str, np.ndarray]) -> Optional[Callable[[], Any]]:
    try:
        import torch
    except ImportError:
        return None
    query, key, value = (torch.from_numpy(inputs[name]) for name in "QKV")
    attention = torch.nn.functional.scaled_dot_product_attention

    def call() -> Any:
        with torch.inference_mode():
            return attention(query, key, value, is_causal=case.phase == "prefill",
                             enable_gqa=case.heads != case.kv_heads)

    return call


def _onnxruntime(case: Case, inputs: dict[str, np.ndarray]) -> Optional[Callable[[], Any]]:
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Attention", ["Q", "K", "V"], ["Y"],
                            is_causal=int(case.phase == "prefill"))
    graph = helper.make_graph(
        [node], "attention",
        [helper.make_tensor_value_info(name, kind, inputs[name].shape) for name in "QKV"],
        [helper.make_tensor_value_info("Y", kind, inputs["Q"].shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def _peers(case: Case, inputs: dict[str, np.ndarray]) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "numpy", _numpy(case, inputs)
    for name, make in (("torch", _torch), ("onnxruntime", _onnxruntime)):
        call = make(case, inputs)
        if call is not None:
            yield name, call


def _interleaved(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds a call in the quickest round of each; all of them take turns in every round."""
    counts = {}
    for name, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        counts[name] = max(1, min(1000, int(_SECONDS / max(time.perf_counter() - begin, 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - begin) / counts[name] * 1e6)
    return {name: min(values) for name, values in times.items()}


def measure(context: Context, case: Case, with_peers: bool) -> list[dict[str, Any]]:
    """The rows of one case: microseconds of both ways to call, and of the peers."""
    inputs = _inputs(case)
    output = np.empty_like(inputs["Q"])
    calls = _ours(context, case, inputs, output)
    peers = dict(_peers(case, inputs)) if with_peers else {}
    for name, call in peers.items():
        calls["binding"]()
        result = call()
        got = np.asarray(result[0] if isinstance(result, list) else result)
        if not np.allclose(got, output, rtol=1e-3, atol=1e-4):
            raise Error(f"{case.name}: {name} computes something else")
    times = _interleaved({**calls, **peers})
    limit = _HOST_LIMIT if case in read_cases(CASES["host"]) else None
    return [{"case": case.name, "metric": f"time, {way}", "unit": "us", "ours": times[way],
             "peers": {name: times[name] for name in peers}, "limit": limit} for way in calls]


def machine(context: Context) -> dict[str, Any]:
    """What the numbers belong to."""
    info = context.info
    return {"device": info.device_name, "simd_level": info.simd_level,
            "thread_count": info.thread_count, "system": platform.platform(),
            "processors": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0],
            "versions": {"attn_c": version(), "python": platform.python_version(),
                         "numpy": np.__version__}}


def _plot(path: str, rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row["metric"] == "time, binding"]
    series = {"attn_c": [row["ours"] for row in shown]}
    for name in (shown[0]["peers"] if shown else {}):
        series[name] = [row["peers"][name] for row in shown]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.5 * len(shown)), layout="constrained")
    height = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        axes.barh([at + number * height for at in range(len(shown))], values, height, label=name)
    axes.set_yticks([at + 0.4 - height / 2 for at in range(len(shown))],
                    [row["case"] for row in shown])
    axes.set_xscale("log")
    axes.set_xlabel("microseconds a call")
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(path)


def _check_target(option: str, name: str) -> None:
    """Raises ValueError where a file could not be written."""
    path = pathlib.Path(name)
    place = path if path.exists() else path.parent
    if path.is_dir() or not place.exists() or not os.access(place, os.W_OK):
        raise ValueError(f"{option}: expected a file that can be written to; got {name!r}")


def _check_plot(name: str) -> None:
    """Raises ValueError where nothing could be drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'attn_c[cli]'") from None
    known = sorted(Figure().canvas.get_supported_filetypes())
    if pathlib.Path(name).suffix[1:].lower() not in known:
        raise ValueError(f"--plot: expected a file called .{', .'.join(known)}; got {name!r}")
    _check_target("--plot", name)


def _checked_cases(arguments: argparse.Namespace) -> list[Case]:
    """The cases, once everything else of the command line is known to be well. Raises ValueError,
    OSError."""
    if arguments.plot:
        _check_plot(arguments.plot)
    if arguments.json and arguments.json != "-":
        _check_target("--json", arguments.json)
    if not arguments.cases:
        return read_cases(CASES[arguments.suite])
    try:
        return read_cases(pathlib.Path(arguments.cases).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"--cases: {arguments.cases}: {error}") from error


def main(arguments: argparse.Namespace) -> int:
    """The command `bench`; 2 for a command line that cannot be followed."""
    try:
        cases = _checked_cases(arguments)
    except (OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    context = Context("cpu", thread_count=arguments.threads)
    rows: list[dict[str, Any]] = []
    with _report.Progress("bench", len(cases)) as progress:
        for case in cases:
            rows += measure(context, case, arguments.peers)
            progress.step(case.name)
    result = {"machine": machine(context), "rows": rows}
    if arguments.json == "-":
        _report.as_json(result)
    else:
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
        peers = list(rows[0]["peers"]) if rows else []
        _report.table(f"microseconds a call, {context.info.thread_count} threads",
                      ("case", "metric", "attn_c", *peers),
                      [(row["case"], row["metric"], f"{row['ours']:.2f}",
                        *(f"{row['peers'][name]:.2f}" for name in peers)) for row in rows],
                      ("case", "metric"))
    if arguments.plot:
        _plot(arguments.plot, rows)
    return 0
