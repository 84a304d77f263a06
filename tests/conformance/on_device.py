"""A context whose operators take and give numpy arrays while they run in memory of its device.

So a test that is written for the CPU runs on a GPU as it is. Arrays that share memory share it on
the device as well: what an array is a view of is copied there as a whole, and back where it is
written.
"""

import collections

import numpy as np

import attn_c


def attention_engines(ctx):
    """The engine of the library's choice, as None, and those that attention can be forced to."""
    others = ("-kv-update", "-rotary", "-scatter")
    linear = ("chunked", "recurrent")
    return (None, *(name for name in ctx.info.engines
                    if not name.endswith(others) and not name.startswith(linear)))


def _root(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _Memory:
    """Copies of arrays on the device while a call runs."""

    def __init__(self, context):
        self._context, self._roots = context, {}

    def tensor(self, array):
        """The array's place on the device; None stays None."""
        if array is None:
            return None
        array = np.asarray(array)
        root = _root(array)
        if id(root) not in self._roots:
            there = self._context.empty((max(root.nbytes, 1),), "uint8")
            if root.nbytes:
                there.copy_from(root.reshape(-1).view(np.uint8))
            self._roots[id(root)] = root, there
        there = self._roots[id(root)][1]
        strides = [stride // array.itemsize for stride in array.strides]
        return attn_c.Tensor(there, there.address + array.ctypes.data - root.ctypes.data,
                             array.dtype, array.shape, strides=strides, device=there.device,
                             context=self._context)

    def bring_back(self, arrays):
        """Copies what these arrays are views of from the device."""
        for root in {id(_root(array)) for array in arrays}:
            here, there = self._roots[root]
            if here.nbytes:
                here.reshape(-1).view(np.uint8)[:] = there.numpy()


class _Op:
    def __init__(self, context, op):
        self._context, self._op = context, op

    def __getattr__(self, name):
        return getattr(self._op, name)

    def __call__(self, *, outputs, out=None, engine=None, **inputs):
        memory, out = _Memory(self._context), out or {}
        got = self._op(outputs=outputs, engine=engine,
                       out={name: memory.tensor(array) for name, array in out.items()},
                       **{name: memory.tensor(array) for name, array in inputs.items()})
        made = {name: getattr(got, name) for name in outputs}
        memory.bring_back(out.values())
        return collections.namedtuple("Outputs", outputs)(
            *(out[name] if name in out else made[name].numpy() for name in outputs))


class OnDevice:
    """See the module. context: of any device."""

    def __init__(self, context):
        self._context, self.info = context, context.info

    def op(self, domain, type_name, version=1, **attributes):
        """As Context.op."""
        return _Op(self._context, self._context.op(domain, type_name, version, **attributes))
