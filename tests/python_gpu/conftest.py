"""What the tests of the Python package on a GPU share: skipped, with the reason, where there is no
PyTorch with CUDA or the plugin cannot use the device."""

import numpy as np
import pytest
import torch

import attn_c

HEADS, KV_HEADS, SIZE, CAPACITY, BATCH = 8, 2, 64, 96, 2


def _why_not():
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    return next((one.reason for one in attn_c.devices()
                 if one.device_type == 2 and not one.available), "")


@pytest.fixture(scope="session")
def ctx():
    reason = _why_not()
    if reason:
        pytest.skip(reason)
    torch.zeros(1, device="cuda")  # PyTorch's context is the current one: the plugin works in it
    return attn_c.Context("cuda")


@pytest.fixture
def op(ctx):
    return ctx.op("com.microsoft", "GroupQueryAttention", label="gpu",
                  num_heads=HEADS, kv_num_heads=KV_HEADS)


class Step:
    """A decode step over caches in place, in numpy; lengths are the keys' number, the new one
    included."""

    def __init__(self, seed=0, dtype=np.float16):
        rng = np.random.default_rng(seed)

        def normal(*shape):
            return rng.standard_normal(shape, np.float32).astype(dtype)

        self.inputs = {
            "query": normal(BATCH, 1, HEADS * SIZE), "key": normal(BATCH, 1, KV_HEADS * SIZE),
            "value": normal(BATCH, 1, KV_HEADS * SIZE),
            "past_key": normal(BATCH, KV_HEADS, CAPACITY, SIZE),
            "past_value": normal(BATCH, KV_HEADS, CAPACITY, SIZE),
            "seqlens_k": np.array([20, 33], np.int32)}
        # An upper bound of the keys, read on the host: what a captured step serves.
        self.total = np.array(CAPACITY, np.int32)

    def on(self, move):
        """({input: tensor}, {output: tensor}) with the caches in place; `move` copies an array."""
        inputs = {name: move(array) for name, array in self.inputs.items()}
        inputs["total_sequence_length"] = self.total
        outputs = {"output": move(np.zeros_like(self.inputs["query"])),
                   "present_key": inputs["past_key"], "present_value": inputs["past_value"]}
        return inputs, outputs

    def expected(self, lengths=None):
        """The output of the CPU back end, whose own tests hold it to the reference."""
        inputs, outputs = self.on(np.copy)
        if lengths is not None:
            inputs["seqlens_k"][:] = lengths
        cpu = attn_c.Context("cpu").op("com.microsoft", "GroupQueryAttention",
                                       num_heads=HEADS, kv_num_heads=KV_HEADS)
        with cpu.bind(None, inputs, outputs) as binding:
            binding.execute(prepare=True)
        return outputs["output"]


def to_torch(array):
    """A copy on the device, as a tensor of PyTorch."""
    return torch.from_numpy(array.copy()).cuda()


def assert_close(got, want, tolerance=2e-3):
    """Relative error of the whole, NaN nowhere."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)
