"""The tensors of a GroupQueryAttention benchmark case on a GPU, shared by all that are measured."""

import dataclasses
from typing import Any, Optional

# Decode reads its cache from memory: caches that take turns are together more than twice L2.
DEFAULT_L2_BYTES = 64 << 20


@dataclasses.dataclass
class Turn:
    """Tensors of one call. query, key, value: (B, S, heads * D) of the new tokens; output as query.
    The caches (decode): (B, kv heads, T, D), of which the last row is the new token's."""

    query: Any
    key: Any
    value: Any
    output: Any
    key_cache: Optional[Any] = None
    value_cache: Optional[Any] = None


@dataclasses.dataclass
class Memory:
    """Everything of a case. cos, sin: (positions, D/2), the same for every head."""

    turns: list
    seqlens_k: Any
    total: Any
    cos: Optional[Any] = None
    sin: Optional[Any] = None


def l2_bytes(torch):
    """Size of the second cache level of the current device."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return getattr(properties, "L2_cache_size", 0) or DEFAULT_L2_BYTES


def turn_count(case, cache_level_bytes):
    """How many caches take turns."""
    return 1 if case.phase == "prefill" else 1 + 2 * cache_level_bytes // case.cache_bytes


def make(torch, case, device, seed=1):
    """Draws N(0,1) for a case."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = getattr(torch, case.type)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=device, dtype=dtype)

    batch, heads, kv_heads, size = case.batch, case.num_heads, case.kv_num_heads, case.head_size
    new = case.tokens if case.phase == "prefill" else 1
    query, key, value = (normal(batch, new, count * size) for count in (heads, kv_heads, kv_heads))
    memory = Memory(
        [], torch.full((batch,), case.tokens - 1, dtype=torch.int32, device=device),
        torch.full((1,), case.tokens, dtype=torch.int32, device=device))
    places = torch.arange(case.tokens, device=device, dtype=torch.float64)
    rates = 1e4 ** (-torch.arange(size // 2, device=device, dtype=torch.float64) / (size / 2))
    angle = torch.outer(places, rates)
    memory.cos, memory.sin = angle.cos().to(dtype), angle.sin().to(dtype)
    if case.phase == "prefill":
        memory.turns.append(Turn(query, key, value, torch.empty_like(query)))
        return memory
    for _ in range(turn_count(case, l2_bytes(torch) if device != "cpu" else 1 << 20)):
        memory.turns.append(Turn(query, key, value, torch.empty_like(query),
                                 *(normal(batch, kv_heads, case.tokens, size) for _ in range(2))))
    return memory
