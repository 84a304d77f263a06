"""Benchmark cases from text files: a line is `key=value ...`; commas make one case a value."""

import dataclasses
import itertools
import pathlib


def counts(text, number):
    """Head counts such as 32/8."""
    parts = text.split("/")
    if len(parts) != number:
        raise ValueError(f"heads is {text}, where {number} counts are expected")
    return tuple(int(part) for part in parts)


def _line(text, make, required, optional):
    """The cases of one line."""
    fields = {key: value.split(",") for key, value in (item.split("=") for item in text.split())}
    if not set(required) <= set(fields) <= {*required, *optional}:
        more = f", and {' or '.join(optional)} or not" if optional else ""
        raise ValueError(f"expected exactly the keys {', '.join(required)}{more}")
    keys = [key for key in (*required, *optional) if key in fields]
    return [make(**dict(zip(keys, values)))
            for values in itertools.product(*(fields[key] for key in keys))]


def read(path, make, required, optional=()):
    """All cases of a file, in its order; the line is named where it cannot be read. `make` gets a
    case's values as texts, by their keys."""
    cases = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        try:
            cases += _line(line, make, required, optional)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return cases


@dataclasses.dataclass(frozen=True)
class GqaCase:
    """One measurement of GroupQueryAttention. `tokens`: new tokens of a prefill, or the keys that
    a decoded token sees, itself included. `mask`: causal, or none where every key is seen."""

    phase: str  # prefill, decode
    num_heads: int
    kv_num_heads: int
    head_size: int
    batch: int
    tokens: int
    type: str
    mask: str = "causal"

    @property
    def name(self):
        """Short and unique, without the type."""
        return (f"{self.phase} {self.num_heads}/{self.kv_num_heads} D{self.head_size} "
                f"B{self.batch} {'S' if self.phase == 'prefill' else 'T'}{self.tokens}"
                f"{'' if self.mask == 'causal' else ' unmasked'}")

    @property
    def flops(self):
        """Multiply-adds of both products count two; visible pairs only."""
        pairs = self.tokens
        if self.phase == "prefill":
            pairs = self.tokens * (self.tokens + 1) // 2 if self.mask == "causal" else pairs ** 2
        return 4 * self.batch * self.num_heads * self.head_size * pairs

    @property
    def cache_bytes(self):
        """Bytes of the keys and values that one call reads."""
        size = 4 if self.type == "float32" else 2
        return 2 * self.batch * self.kv_num_heads * self.tokens * self.head_size * size

    @property
    def work(self):
        """What one call does, and the unit of that a nanosecond."""
        if self.phase == "prefill":
            return self.flops, "GFLOP/s"
        return self.cache_bytes, "GB/s"


def _gqa(phase, heads, head_size, batch, tokens, type, mask="causal"):
    if mask not in ("causal", "none"):
        raise ValueError(f"mask is {mask}, which is neither causal nor none")
    return GqaCase(phase, *counts(heads, 2), int(head_size), int(batch), int(tokens), type, mask)


def read_gqa_cases(path):
    """All cases of a file."""
    return read(path, _gqa, ("phase", "heads", "head_size", "batch", "tokens", "type"), ("mask",))
