"""Times several implementations of one piece of work side by side."""

import statistics
import time

# A call that lasts this long is its own warm-up.
_LONG_SECONDS = 0.2

# Threads of a runtime may spin for a while after a call; a pause keeps them out of the next one's
# measurement.
_SETTLE_SECONDS = 0.02


# wall: what a caller waits. process: processor time of all threads; with one thread it hardly feels
# what else a busy machine does.
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}


def _time_once(function, clock):
    begin = clock()
    function()
    return max(clock() - begin, 1e-7)


def _warm_up(function, clock):
    """Seconds of one call."""
    function()
    return min(_time_once(function, clock) for _ in range(3))


def interleaved(functions, rounds=5, seconds=0.1, clock=time.perf_counter):
    """Median seconds a call of each function, by name.

    Every round runs all functions one after another (A B A B ...), each for about `seconds`, so
    that a slow moment of the machine touches all of them. `functions` take no argument.
    """
    once = {name: _warm_up(function, clock) for name, function in functions.items()}
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            calls = max(1, min(20000, round(seconds / once[name])))
            time.sleep(_SETTLE_SECONDS)
            if once[name] < _LONG_SECONDS:
                function()
            begin = clock()
            for _ in range(calls):
                function()
            times[name].append((clock() - begin) / calls)
    return {name: statistics.median(values) for name, values in times.items()}
