"""Times several implementations of one piece of work side by side."""

import statistics
import time

# Threads of a runtime may spin for a while after a call; a pause keeps them out of the next one's
# measurement.
_SETTLE_SECONDS = 0.02


def _calls_for(function, seconds):
    """How many calls last about `seconds`; also the warm-up."""
    function()
    begin = time.perf_counter()
    function()
    once = max(time.perf_counter() - begin, 1e-7)
    return max(1, min(20000, round(seconds / once)))


def interleaved(functions, rounds=5, seconds=0.1):
    """Median seconds a call of each function, by name.

    Every round runs all functions one after another (A B A B ...), each for about `seconds`, so
    that a slow moment of the machine touches all of them. `functions` take no argument.
    """
    counts = {name: _calls_for(function, seconds) for name, function in functions.items()}
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            time.sleep(_SETTLE_SECONDS)
            function()
            begin = time.perf_counter()
            for _ in range(counts[name]):
                function()
            times[name].append((time.perf_counter() - begin) / counts[name])
    return {name: statistics.median(values) for name, values in times.items()}
