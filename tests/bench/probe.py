"""What the machine can do at the moment: the same bytes only read, as many operations only done.

By the library cpu_probe where it was built; otherwise by numpy, which reaches less.
"""

import ctypes
import functools
import itertools
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

LIBRARY = "libcpu_probe.so"
_MATRIX = 512  # rows and columns of the product by numpy


def load(build, path=None):
    """The probe: the library at `path` or in the build's folder, or numpy."""
    file = pathlib.Path(path) if path else pathlib.Path(build) / "lib" / LIBRARY
    if path or file.is_file():
        return Native(ctypes.CDLL(os.fspath(file)))
    return Numpy()


class Native:
    """The probe by cpu_probe.cc."""

    NAME = "cpu_probe"

    def __init__(self, library):
        self._read = library.probe_read
        self._read.restype = None
        self._read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
        self._product = library.probe_product
        self._product.restype = None
        self._product.argtypes = [ctypes.c_int64, ctypes.c_int]

    def reader(self, turns, threads):
        """A function that reads the arrays of the next turn once."""
        calls = []
        for arrays in turns:
            blocks = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
            sizes = (ctypes.c_int64 * len(arrays))(*(array.nbytes for array in arrays))
            calls.append(functools.partial(self._call_read, blocks, sizes, len(arrays), threads))
        return _around(calls)

    def _call_read(self, blocks, sizes, count, threads):
        self._read(blocks, sizes, count, threads)

    def product(self, flops, threads):
        """A function that does about so many floating-point operations."""
        return functools.partial(self._product, int(flops), threads)


class Numpy:
    """The probe where there is only numpy."""

    NAME = "numpy"

    def reader(self, turns, threads):
        """A function that reads the arrays of the next turn once."""
        pool = ThreadPoolExecutor(threads)

        def read(parts):
            list(pool.map(np.max, parts))

        return _around([
            functools.partial(read, [part for array in arrays for part in
                                     np.array_split(_words(array), threads) if part.size])
            for arrays in turns])

    def product(self, flops, threads):
        """A function that does about so many floating-point operations, in whole products."""
        pool = ThreadPoolExecutor(threads)
        a = np.ones((_MATRIX, _MATRIX), np.float32)
        products = max(1, round(flops / (2 * _MATRIX ** 3)))

        def multiply(_):
            np.matmul(a, a)

        def run():
            list(pool.map(multiply, range(products)))

        # What is counted is what is done.
        run.flops = products * 2 * _MATRIX ** 3
        return run


def _words(array):
    """An array's memory as integers; what does not fill a word is left out."""
    data = array.reshape(-1).view(np.uint8)
    return data[:data.size // 8 * 8].view(np.uint64)


def _around(calls, start=0.25):
    """Makes the next of `calls` each time; where others begin elsewhere, nothing is shared."""
    first = int(len(calls) * start)
    following = itertools.cycle([*calls[first:], *calls[:first]]).__next__
    return lambda: following()()
