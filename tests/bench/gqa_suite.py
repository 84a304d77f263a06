"""Suite `gqa`: GroupQueryAttention, prefill and decode, next to ONNX Runtime."""

import gc
import pathlib

import case_file
import gqa_memory
import gqa_ours
import measure

CASES = pathlib.Path(__file__).parent / "cases"

# How many times as fast as the peer each type has to be.
REQUIRED = {"float32": 1.0, "float16": 2.0}

COLUMNS = ("case", "type", "ours us", "ORT us", "ratio", "rate", "engine")


def _peer(wanted):
    if not wanted:
        return None
    import gqa_ort
    return gqa_ort


def _row(case, ours, peer_name, peer, engine):
    prefill = case.phase == "prefill"
    limit = peer / REQUIRED[case.type] * 1e6 if peer and case.type in REQUIRED else None
    return {"case": f"{case.name} {case.type}", "metric": "time", "unit": "us",
            "ours": ours * 1e6, "peers": {peer_name: peer * 1e6} if peer else {}, "limit": limit,
            "rate": (case.flops if prefill else case.cache_bytes) / ours / 1e9,
            "rate_unit": "GFLOP/s" if prefill else "GB/s", "engine": engine}


def _cells(case, row):
    peer = next(iter(row["peers"].values()), None)
    return (case.name, case.type, f"{row['ours']:.1f}", f"{peer:.1f}" if peer else "-",
            f"{peer / row['ours']:.2f}" if peer else "-",
            f"{row['rate']:.1f} {row['rate_unit']}", row["engine"])


def run(attn_c, options, emit):
    """All rows; `emit` gets each one's cells as soon as they are measured."""
    peer = _peer(options.peers)
    context = gqa_ours.make_context(attn_c, "cpu", options.threads, options.engine)
    cases = case_file.read_gqa_cases(CASES / ("gqa_quick.txt" if options.quick else "gqa.txt"))
    rows = []
    for case in cases:
        if options.filter and options.filter not in f"{case.name} {case.type}":
            continue
        sets = gqa_memory.argument_sets(case)
        ours, engine = gqa_ours.make_call(context, case, sets)
        calls = {"ours": ours}
        if peer is not None and case.type in peer.TYPES:
            calls[peer.NAME] = peer.make_call(case, sets, options.threads)
        times = measure.interleaved(
            calls, options.rounds, options.seconds, measure.CLOCKS[options.clock])
        row = _row(case, times["ours"], options.peers and peer.NAME,
                   times.get(peer.NAME) if peer else None, engine)
        rows.append(row)
        emit(_cells(case, row))
        del sets, ours, calls
        gc.collect()
    return rows


def versions(options):
    """Versions of the peers."""
    peer = _peer(options.peers)
    return {peer.NAME: peer.version()} if peer is not None else {}
