"""Times work on a GPU side by side: CUDA graphs between events, so that no host time counts."""

import math
import statistics

# Calls of one graph: enough that starting the graph is no part of a call's time.
GRAPH_SECONDS = 1e-3
MAX_GRAPH_CALLS = 60

# A replay that lasts this long is its own warm-up.
LONG_SECONDS = 0.1


def calls_of_graph(seconds_a_call, turns):
    """How many calls one graph holds: whole rounds of `turns`, about GRAPH_SECONDS long."""
    wanted = min(MAX_GRAPH_CALLS, math.ceil(GRAPH_SECONDS / max(seconds_a_call, 1e-9)))
    return turns * max(1, math.ceil(wanted / turns))


def _seconds(torch, function, count):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


class Graph:
    """Calls that take turns, captured once. `functions` are launched on the current stream."""

    def __init__(self, torch, functions):
        self._torch = torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for function in functions:  # warm-up: plans, scratch
                function()
            stream.synchronize()
            once = _seconds(torch, functions[0], 1)
        self.calls = calls_of_graph(once, len(functions))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            for call in range(self.calls):
                functions[call % len(functions)]()
        self.replay()
        torch.cuda.synchronize()
        self._once = max(_seconds(torch, self.replay, 1), 1e-6)

    def replay(self):
        """Launches all calls."""
        self._graph.replay()

    def seconds_a_call(self, seconds):
        """The mean of replays that last about `seconds`, after one that is not counted."""
        count = max(1, min(1000, round(seconds / self._once)))
        if self._once < LONG_SECONDS:
            self.replay()
        return _seconds(self._torch, self.replay, count) / (count * self.calls)


def interleaved(graphs, rounds, seconds):
    """{name: seconds a call of each round}: every round runs all graphs, one after another."""
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(graph.seconds_a_call(seconds))
    return times


def medians(times):
    """{name: median}"""
    return {name: statistics.median(values) for name, values in times.items()}
