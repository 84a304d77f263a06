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


def align(sets, boundary=64):
    """The argument sets with arrays that begin on a cache line, as the allocators of runtimes
    place them; numpy aligns to 16 bytes. What was one array in several places stays one."""
    moved = {}

    def place(array):
        if id(array) not in moved:
            room = np.empty(array.nbytes + boundary, np.uint8)
            first = -room.ctypes.data % boundary
            copy = room[first:first + array.nbytes].view(array.dtype).reshape(array.shape)
            copy[...] = array
            moved[id(array)] = copy, array  # the array lives, so that its id is no other's
        return moved[id(array)][0]

    return [tuple({name: place(array) for name, array in arguments.items()} for arguments in one)
            for one in sets]


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
