"""Suite `cpu`: the operators together, next to every peer that is installed, with rooflines.

A row has the peers' times and, in `floor_us`, how long the machine takes at that moment to read the
keys and values once (decode), or to do as many multiply-adds out of registers (the rest): measured
between the operators of the same case, by as many threads. `of_floor` is that time through ours: an
engine that uses units for products of matrices can be above 1.
"""

import gc
import importlib

import attention_suite
import cpu_suite
import gqa_suite
import library
import linear_suite
import measure
import memory
import probe

COLUMNS = ("case", "type", "ours us", "peers us", "ratios", "rate", "of floor", "engine")
SUITES = (gqa_suite.SUITE, attention_suite.SUITE, linear_suite.SUITE)
PEERS = ("ort_peer", "torch_peer")

# How many times as fast as ONNX Runtime and as PyTorch each has to be; None: no requirement.
ORT, TORCH = "onnxruntime", "PyTorch"
_WITH_MATRIX_UNITS = {"float32": {ORT: 2.5, TORCH: 2.0}, "float16": {ORT: 5.0, TORCH: 4.0},
                      "bfloat16": {TORCH: 2.5}}
_WITHOUT = {"float32": {ORT: 1.5, TORCH: 1.2}, "float16": {ORT: 2.0}, "bfloat16": {}}
_READ_SHARE = 0.85  # of the reading of keys and values in decode, from _LONG_CONTEXT keys on
_LONG_CONTEXT = 4096
_SMALL_DECODE_US = 10.0


def find_peers(wanted):
    """(modules of the peers that can be imported, why the others cannot)."""
    found, missing = [], []
    for name in PEERS if wanted else ():
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            missing.append(f"peer {name.removesuffix('_peer')} left out: {error}")
    return found, missing


def is_decode(case):
    """One token over a cache."""
    return getattr(case, "phase", "") == "decode"


def requirement(suite, case, engine):
    """{peer: how many times as fast we have to be}."""
    if suite.name == "linear":
        return {ORT: 4.0 if case.tokens == 1 else 5.0} if case.tokens in (1, 2048) else {}
    if suite.name == "attention" and case.is_masked:
        return {ORT: 2.0, TORCH: 2.0}
    if is_decode(case):
        return {ORT: 1.5, TORCH: 1.5} if case.tokens >= _LONG_CONTEXT else {}
    return (_WITH_MATRIX_UNITS if "amx" in engine else _WITHOUT)[case.type]


def limit_us(suite, case, engine, peers_us, floor_us):
    """The longest time that meets all that is required, or None."""
    limits = [peers_us[name] / times for name, times in requirement(suite, case, engine).items()
              if name in peers_us]
    if is_decode(case) and case.tokens >= _LONG_CONTEXT and floor_us:
        limits.append(floor_us / _READ_SHARE)
    if is_decode(case) and (case.tokens, case.head_size, case.num_heads) == (128, 64, 12):
        limits.append(_SMALL_DECODE_US)
    return min(limits, default=None)


def floor_of(machine, suite, case, sets, threads):
    """A function that does the least that a call of the case has to do, or None."""
    work, unit = case.work
    if is_decode(case):
        return machine.reader([[inputs["past_key"], inputs["past_value"]] for inputs, _ in sets],
                              threads)
    return machine.product(work, threads) if unit == "GFLOP/s" and suite.name != "linear" else None


def row_of(suite, case, times, engine, threads, floor_scale=1.0):
    """A measurement as the results keep it, from seconds by name."""
    work, unit = case.work
    seconds = times["ours"]
    peers = {name: times[name] * 1e6 for name in (ORT, TORCH) if name in times}
    floor = times["floor"] * 1e6 * floor_scale if "floor" in times else None
    return {"case": f"{case.name} {case.type}", "suite": suite.name, "metric": "time",
            "unit": "us", "ours": seconds * 1e6, "peers": peers,
            "limit": limit_us(suite, case, engine, peers, floor),
            "rate": work / seconds / 1e9, "rate_unit": unit, "engine": engine, "threads": threads,
            "floor_us": floor, "of_floor": floor / (seconds * 1e6) if floor else None}


def cells_of(case, row):
    """The row's cells, in the order of COLUMNS."""
    peers = " / ".join(f"{row['peers'][name]:.1f}" if name in row["peers"] else "-"
                       for name in (ORT, TORCH))
    ratios = " / ".join(f"{row['peers'][name] / row['ours']:.2f}" if name in row["peers"] else "-"
                        for name in (ORT, TORCH))
    share = f"{row['of_floor']:.0%}" if row["of_floor"] else "-"
    return (case.name, case.type, f"{row['ours']:.1f}", peers, ratios,
            f"{row['rate']:.1f} {row['rate_unit']}", share, row["engine"])


def _measure(attn_c, context, suite, case, peers, machine, options):
    sets, attributes = memory.align(suite.argument_sets(case)), suite.attributes(case)
    call, engine = library.make_call(context, suite.operator, attributes, sets)
    calls = {"ours": call}
    for peer in peers:
        if case.type not in peer.TYPES:
            continue
        made = peer.make_call(suite.operator, attributes if peer.NAME == ORT else case, sets,
                              options.threads)
        if made is not None:
            calls[peer.NAME] = made
    floor = floor_of(machine, suite, case, sets, options.threads)
    if floor is not None:
        calls["floor"] = floor
    times = measure.interleaved(calls, options.rounds, options.seconds,
                                measure.CLOCKS[options.clock])
    done = getattr(floor, "flops", case.work[0])
    return row_of(suite, case, times, engine, options.threads, case.work[0] / done)


def run(attn_c, options, emit):
    """All rows; `emit` gets each one's cells as soon as they are measured."""
    peers, missing = find_peers(options.peers)
    for line in missing:
        print(line)
    machine = probe.load(options.build, options.probe)
    context = library.make_context(attn_c, "cpu", options.threads, options.engine)
    rows = []
    for suite in SUITES:
        file = f"cpu_{suite.name}{'_quick' if options.quick else ''}.txt"
        for case in suite.read_cases(cpu_suite.CASES / file):
            if options.filter and options.filter not in f"{case.name} {case.type}":
                continue
            if case.type == "bfloat16" and not has_bfloat16():
                print(f"{case.name} bfloat16 left out: ml_dtypes is not installed")
                continue
            row = _measure(attn_c, context, suite, case, peers, machine, options)
            rows.append(row)
            emit(cells_of(case, row))
            gc.collect()
    return rows


def has_bfloat16():
    """Whether numpy can hold the type."""
    try:
        memory.numpy_type("bfloat16")
    except ImportError:
        return False
    return True


def versions(options):
    """Versions of the peers, and what measures the floor."""
    found, _ = find_peers(options.peers)
    machine = probe.load(options.build, options.probe)
    return {**{peer.NAME: peer.version() for peer in found}, "floor by": machine.NAME}


def plot(rows, path):
    """Times as fast as each peer, and the share of the floor, a bar a row. Needs matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (left, right) = pyplot.subplots(
        1, 2, sharey=True, figsize=(13, 1.5 + 0.28 * len(rows)), layout="constrained")
    places = range(len(rows))
    for offset, name in ((-0.2, ORT), (0.2, TORCH)):
        ratios = [row["peers"].get(name, 0) / row["ours"] for row in rows]
        left.barh([place + offset for place in places], ratios, 0.4, label=name)
    left.axvline(1, color="black", linewidth=0.8)
    left.set(yticks=list(places), yticklabels=[row["case"] for row in rows],
             xlabel="times as fast as")
    left.invert_yaxis()
    left.legend()
    right.barh(list(places), [100 * (row["of_floor"] or 0) for row in rows])
    right.axvline(100, color="black", linewidth=0.8)
    right.set(xlabel="% of the read (decode) or product (others) of the same moment")
    figure.savefig(path)
