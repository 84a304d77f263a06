"""Arrays of benchmark cases, shared by all that are measured, and how calls take turns on them."""

import itertools

import numpy as np

# What a step reads it reads from memory, not from the last cache level: as many copies as make more
# than twice its size take turns.
DEFAULT_LAST_LEVEL_BYTES = 32 << 20


def numpy_type(name):
    """The numpy type of an element type's name; bfloat16 needs ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def normal(rng, shape, dtype):
    """N(0,1) of any size: four million draws, repeated."""
    count = int(np.prod(shape))
    draws = rng.standard_normal(min(count, (1 << 22) - 3), dtype=np.float32).astype(dtype)
    return np.resize(draws, shape)


def last_level_bytes():
    """Size of the largest cache of processor 0."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size") as file:
            return int(file.read().strip().rstrip("K")) << 10
    except (OSError, ValueError):
        return DEFAULT_LAST_LEVEL_BYTES


def turns_of(byte_count):
    """How many copies of so many bytes take turns."""
    return 1 + 2 * last_level_bytes() // byte_count


def taking_turns(calls, start=0.0):
    """A function that makes the next of `calls` each time, around and around.

    `start` is where it begins, as a part of the whole: two that share memory begin far apart, so
    that neither finds in the processor's caches what the other has just read.
    """
    first = int(len(calls) * start)
    following = itertools.cycle([*calls[first:], *calls[:first]]).__next__
    return lambda: following()()
