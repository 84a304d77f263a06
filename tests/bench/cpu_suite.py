"""What the suites of single operators on the CPU share: ours next to ONNX Runtime, case by case."""

import dataclasses
import gc
import pathlib
from typing import Callable

import measure
import library
import memory

CASES = pathlib.Path(__file__).parent / "cases"


@dataclasses.dataclass(frozen=True)
class Suite:
    """One operator's measurements.

    A case has `name`, `type` and `work`: what one call does, and the unit of that a nanosecond.
    """

    name: str  # of the case files: NAME.txt, NAME_quick.txt
    operator: tuple  # domain, version, type, input names, output names
    read_cases: Callable  # file -> cases
    attributes: Callable  # case -> the node's attributes
    argument_sets: Callable  # case -> (inputs, outputs) a turn, arrays by the standard's names
    required: Callable  # case -> how many times as fast as the peer we have to be, or None

    COLUMNS = ("case", "type", "ours us", "ORT us", "ratio", "rate", "engine")

    def cases(self, quick=False):
        """All cases of the suite."""
        return self.read_cases(CASES / f"{self.name}{'_quick' if quick else ''}.txt")

    def row(self, case, seconds, peer_name, peer_seconds, engine):
        """A measurement as the results keep it; peer_seconds is None without a peer."""
        work, unit = case.work
        required = self.required(case)
        limit = peer_seconds / required * 1e6 if peer_seconds and required else None
        return {"case": f"{case.name} {case.type}", "metric": "time", "unit": "us",
                "ours": seconds * 1e6, "limit": limit, "rate": work / seconds / 1e9,
                "peers": {peer_name: peer_seconds * 1e6} if peer_seconds else {},
                "rate_unit": unit, "engine": engine}

    def run(self, attn_c, options, emit):
        """All rows; `emit` gets each one's cells as soon as they are measured."""
        peer = _peer(options.peers)
        context = library.make_context(attn_c, "cpu", options.threads, options.engine)
        rows = []
        for case in self.cases(options.quick):
            if options.filter and options.filter not in f"{case.name} {case.type}":
                continue
            sets, attributes = memory.align(self.argument_sets(case)), self.attributes(case)
            call, engine = library.make_call(context, self.operator, attributes, sets)
            calls = {"ours": call}
            if peer is not None and case.type in peer.TYPES:
                calls[peer.NAME] = peer.make_call(
                    self.operator, attributes, sets, options.threads)
            times = measure.interleaved(
                calls, options.rounds, options.seconds, measure.CLOCKS[options.clock])
            name = peer.NAME if peer else None
            row = self.row(case, times["ours"], name, times.get(name), engine)
            rows.append(row)
            emit(_cells(case, row))
            del sets, call, calls
            gc.collect()
        return rows

    def versions(self, options):
        """Versions of the peers."""
        peer = _peer(options.peers)
        return {peer.NAME: peer.version()} if peer is not None else {}


def _peer(wanted):
    if not wanted:
        return None
    import ort_peer
    return ort_peer


def _cells(case, row):
    peer = next(iter(row["peers"].values()), None)
    return (case.name, case.type, f"{row['ours']:.1f}", f"{peer:.1f}" if peer else "-",
            f"{peer / row['ours']:.2f}" if peer else "-",
            f"{row['rate']:.1f} {row['rate_unit']}", row["engine"])
