"""Suite `gqa` on a GPU: GroupQueryAttention next to PyTorch's attention back ends.

The peers attend and no more. Prefill is measured twice: attention alone, which the limit is for,
and with present_key and present_value. Decode rotates, appends in place and attends in one call; it
is measured without the rotation too.
"""

import gc
import pathlib

import case_file
import gpu_calls
import gpu_measure
import gpu_memory
import gpu_reference
import library

CASES = pathlib.Path(__file__).parent / "cases"
COLUMNS = ("case", "type", "ours us", "FA-2 us", "cuDNN us", "torch us", "of limit", "rate",
           "more us", "error", "engine")

# What has to hold: prefill's speed against FlashAttention-2, decode's time against cuDNN.
PREFILL_SPEED, DECODE_TIME = 0.9, 1.5
SCRATCH_LIMIT_BYTES, SCRATCH_TOKENS = 64 << 20, 131072

_OURS = "ours"


class DeviceLost(Exception):
    """The device answers with errors whatever is asked: no further case can run."""


def check_device(torch, what):
    """Raises DeviceLost where the device cannot go on after a failure."""
    try:
        torch.cuda.synchronize()
    except Exception as lost:
        raise DeviceLost(f"the device is lost after {what}; {lost}") from lost


def limit_of(case, peers):
    """Seconds that meet the requirement; None where there is none, or its peer gave no time."""
    if case.type == "float32":
        times = [peers[name] for name in (gpu_calls.EFFICIENT, gpu_calls.MATH) if name in peers]
        return min(times) if times else None
    if case.phase == "decode":
        return DECODE_TIME * peers[gpu_calls.CUDNN] if gpu_calls.CUDNN in peers else None
    return peers[gpu_calls.FLASH] / PREFILL_SPEED if gpu_calls.FLASH in peers else None


def has_bar(case):
    """Whether the case has to meet a limit; of the longest prefill its scratch has to."""
    return case.phase == "decode" or case.tokens < SCRATCH_TOKENS


def row_of(case, times, more, facts, failures):
    """The row of a case. times: {name: seconds}; more: {what else was measured of ours: name}."""
    ours = times.get(_OURS)
    peers = {name: seconds for name, seconds in times.items()
             if name not in (_OURS, *more.values())}
    limit = limit_of(case, peers) if has_bar(case) else None
    amount = case.flops if case.phase == "prefill" else case.cache_bytes
    return {"case": f"{case.name} {case.type}", "metric": "time", "unit": "us",
            "ours": ours and ours * 1e6,
            "peers": {name: seconds * 1e6 for name, seconds in peers.items()},
            "limit": limit and limit * 1e6,
            "more": {what: times[name] * 1e6 for what, name in more.items() if name in times},
            "rate": ours and amount / ours / 1e12,
            "rate_unit": "TFLOP/s" if case.phase == "prefill" else "TB/s",
            "bar": has_bar(case), "failures": failures, **facts}


def _number(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def cells_of(case, row):
    """What the table shows of a row."""
    peers, ours, limit = row["peers"], row["ours"], row["limit"]
    torch = [peers[name] for name in (gpu_calls.EFFICIENT, gpu_calls.MATH) if name in peers]
    return (case.name, case.type, _number(ours), _number(peers.get(gpu_calls.FLASH)),
            _number(peers.get(gpu_calls.CUDNN)), _number(min(torch, default=None)),
            _number(ours / limit if ours and limit else None, "{:.2f}"),
            _number(row["rate"], "{:.2f} " + row["rate_unit"]),
            ", ".join(f"{what} {value:.1f}" for what, value in row["more"].items()) or "-",
            _number(row.get("error"), "{:.1e}"),
            f"{row.get('engine', '-')} ({row.get('kernel_from', '-')})")


def scratch_row(case, workspace_bytes):
    """The row of the scratch that the longest prefill needs."""
    return {"case": f"scratch of {case.name} {case.type}", "metric": "scratch", "unit": "MiB",
            "ours": workspace_bytes / 2**20, "peers": {}, "limit": SCRATCH_LIMIT_BYTES / 2**20,
            "more": {}, "bar": True, "failures": {}}


def _check(torch, case, memory, ours, graph, rotary):
    """The relative error of what the graph computes, from outputs that were poisoned before."""
    turn = memory.turns[(graph.calls - 1) % len(memory.turns)]
    turn.output.fill_(float("nan"))
    poisoned = ours.presents or ([] if turn.key_cache is None else
                                 [cache[:, :, -1] for cache in (turn.key_cache, turn.value_cache)])
    for tensor in poisoned:
        tensor.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    faults = ours.session.poll_faults()
    if faults:
        raise RuntimeError(f"the device reports: {faults.text}")
    if case.phase == "decode":
        error = gpu_reference.decode_error(torch, case, memory, turn, rotary)
    else:
        tables = (memory.cos, memory.sin) if rotary else None
        error = gpu_reference.prefill_error(torch, case, turn, tables)
        if ours.presents:
            error = max(error, gpu_reference.append_error(torch, case, turn, ours.presents, tables))
    if not error <= gpu_reference.LIMITS[case.type]:
        raise RuntimeError(f"wrong results: relative error {error:.1e}, allowed "
                           f"{gpu_reference.LIMITS[case.type]:.0e}")
    return error


class _Case:
    """One case on the device: what could be built, and why the rest could not."""

    def __init__(self, torch, context, case, memory):
        self._torch, self._context, self.case, self._memory = torch, context, case, memory
        self.graphs, self.failures, self.facts = {}, {}, {}
        self._kept = []  # bindings, and memory that graphs write to

    def attempt(self, name, build):
        """Adds a graph; a failure is remembered, and ends the run only where the device is lost."""
        try:
            self.graphs[name] = build()
        except Exception as error:  # whatever a library throws: the other columns go on
            self.failures[name] = f"{type(error).__name__}: {error}".strip()[:400]
            check_device(self._torch, f"{name}: {error}")

    def ours(self, **options):
        calls = gpu_calls.Ours(self._torch, self._context, self.case, self._memory, **options)
        self._kept.append(calls)
        graph = gpu_measure.Graph(self._torch, calls.functions())
        error = _check(self._torch, self.case, self._memory, calls, graph,
                       options.get("rotary", False))
        self.facts.setdefault("engine", calls.engine)
        self.facts.setdefault("kernel_from", calls.kernel_origin)
        self.facts.setdefault("workspace_bytes", calls.workspace_bytes)
        self.facts["error"] = max(error, self.facts.get("error", 0.0))
        return graph

    def peer(self, name):
        return gpu_measure.Graph(self._torch, gpu_calls.peer_functions(
            self._torch, name, self.case, self._memory))


def _measure(torch, context, case, options):
    """(row, workspace bytes or None)"""
    one = _Case(torch, context, case, gpu_memory.make(torch, case, options.device))
    prefill = case.phase == "prefill"
    one.attempt(_OURS, lambda: one.ours(rotary=not prefill))
    more = {"with append": {"append": True}, "rotated": {"append": True, "rotary": True}} \
        if prefill else {"without rotary": {}}
    for what, form in more.items():
        one.attempt(f"ours, {what}", lambda form=form: one.ours(**form))
    more = {what: f"ours, {what}" for what in more}
    for name in gpu_calls.peer_names(case):
        one.attempt(name, lambda name=name: one.peer(name))
    times = gpu_measure.interleaved(one.graphs, options.rounds, options.seconds)
    facts = {**one.facts, "rounds_us": {name: [seconds * 1e6 for seconds in values]
                                        for name, values in times.items()}}
    row = row_of(case, gpu_measure.medians(times), more, facts, one.failures)
    return row, one.facts.get("workspace_bytes")


def _attempt(torch, context, case, options):
    """As _measure; a failure of the whole case, its memory say, is the row's."""
    try:
        return _measure(torch, context, case, options)
    except DeviceLost:
        raise
    except Exception as error:  # the next case may be smaller
        text = f"{type(error).__name__}: {error}"[:400]
        check_device(torch, text)
        return row_of(case, {}, {}, {}, {_OURS: text}), None


def run(attn_c, options, emit):
    """`emit` gets each row and its cells as soon as they are measured."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.cuda.set_device(options.device)
    torch.zeros(1, device=options.device)  # the primary context, which the library then shares
    context = library.make_context(attn_c, options.device, 0, options.engine)
    for case in case_file.read_gqa_cases(
            CASES / ("gpu_gqa_quick.txt" if options.quick else "gpu_gqa.txt")):
        if options.filter and options.filter not in f"{case.name} {case.type}":
            continue
        try:
            row, workspace = _attempt(torch, context, case, options)
        except DeviceLost as lost:
            row = row_of(case, {}, {}, {}, {_OURS: str(lost)[:400]})
            emit(row, cells_of(case, row))
            break
        emit(row, cells_of(case, row))
        if not has_bar(case) and workspace is not None:
            row = scratch_row(case, workspace)
            emit(row, (row["case"], "", f"{row['ours']:.2f} MiB", "", "", "",
                       f"{row['ours'] / row['limit']:.2f}", "", "", "", ""))
        gc.collect()
        torch.cuda.empty_cache()


def versions(options):
    """Versions of the peers, and of what they run on."""
    import torch
    return {"torch": torch.__version__, "CUDA of torch": torch.version.cuda,
            "cuDNN": torch.backends.cudnn.version()}
