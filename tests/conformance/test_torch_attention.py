"""PyTorch's scaled_dot_product_attention on the CPU beside Attention, on the same tensors.

Random problems of everything that both take, each also held against float64, so that a disagreement
shows who is wrong. PyTorch's causal mask begins at the first key, as Attention's without a past.
"""

import numpy as np
import pytest
import torch
from attention_reference import attention

import attn_c

CASES = 120
# Relative to the largest element of the result; PyTorch rounds 16-bit results on the way.
BOUNDS = {torch.float64: 1e-14, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
PEER_BOUNDS = {torch.float64: 1e-14, torch.float32: 4e-6, torch.float16: 1e-2,
               torch.bfloat16: 8e-2}


@pytest.fixture(scope="session")
def ctx():
    return attn_c.Context("cpu", thread_count=2)


def draw(seed):
    """(attributes, tensors by the operator's names) of a random problem. Every row sees a key: what
    a row without one is differs among versions of PyTorch."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    dtype = list(BOUNDS)[int(rng.integers(0, 4))]
    kv_heads = int(rng.integers(1, 4))
    heads = kv_heads * int(rng.integers(1, 4))
    batch, size, v_size = (int(rng.integers(*pair)) for pair in ((1, 4), (1, 130), (1, 130)))
    rows, keys = (int(rng.choice(counts)) for counts in ((1, 2, 17, 70), (1, 5, 64, 300)))

    def normal(count, tokens, channels):
        tensor = torch.randn((batch, tokens, count, channels), generator=generator,
                             dtype=torch.float32).to(dtype).transpose(1, 2)
        return tensor if rng.random() < 0.5 else tensor.contiguous()  # views are taken as they are

    tensors = {"Q": normal(heads, rows, size), "K": normal(kv_heads, keys, size),
               "V": normal(kv_heads, keys, v_size)}
    attributes = {}
    kind = rng.choice(["none", "causal", "bool", "additive"])
    if kind == "causal":
        attributes["is_causal"] = 1
    elif kind != "none":
        shape = [size if rng.random() < 0.6 else 1 for size in (batch, heads, rows)] + [keys]
        mask = torch.rand(shape, generator=generator) < 0.7
        mask[..., 0] = True
        if kind == "additive":
            values = torch.randn(shape, generator=generator).to(dtype)
            mask = values.masked_fill(~mask, -torch.inf)
        tensors["attn_mask"] = mask
    if rng.random() < 0.4:
        attributes["scale"] = float(np.float32(rng.uniform(0.02, 0.6)))
    return attributes, tensors


def peer(attributes, tensors):
    """PyTorch's result; heads of a group are repeated, which every version takes."""
    group = tensors["Q"].shape[1] // tensors["K"].shape[1]
    key, value = (tensors[name].repeat_interleave(group, dim=1) for name in "KV")
    return torch.nn.functional.scaled_dot_product_attention(
        tensors["Q"], key, value, attn_mask=tensors.get("attn_mask"),
        is_causal=bool(attributes.get("is_causal")), scale=attributes.get("scale"))


def as_arrays(tensors):
    """The tensors' values as numpy has them: float64, or bool."""
    return {name: (tensor if tensor.dtype == torch.bool else tensor.double()).numpy()
            for name, tensor in tensors.items()}


def error(result, want):
    """The largest difference over the largest element."""
    return np.abs(result.double().numpy() - want).max() / max(np.abs(want).max(), 1e-3)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_problems(ctx, seed):
    attributes, tensors = draw(seed)
    want = attention(attributes, as_arrays(tensors))["Y"]
    dtype = tensors["Q"].dtype
    op = ctx.op("", "Attention", 24, **attributes)
    for engine in (None, "generic"):
        ours = op(outputs=["Y"], engine=engine, **tensors).Y
        assert isinstance(ours, torch.Tensor) and ours.dtype == dtype
        assert error(ours, want) <= BOUNDS[dtype], (dtype, attributes, engine)
    assert error(peer(attributes, tensors), want) <= PEER_BOUNDS[dtype], (dtype, attributes)
