"""Benchmark cases from text files: a line is `key=value ...`; commas make one case a value."""

import dataclasses
import itertools
import pathlib


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


def _gqa_cases(fields):
    heads = fields["heads"]
    for values in itertools.product(heads, fields["head_size"], fields["batch"],
                                    fields["tokens"], fields["type"],
                                    fields.get("mask", ["causal"])):
        num_heads, kv_num_heads = map(int, values[0].split("/"))
        if values[5] not in _MASKS:
            raise ValueError(f"mask is {values[5]}, which is none of {_MASKS}")
        yield GqaCase(fields["phase"][0], num_heads, kv_num_heads, int(values[1]),
                      int(values[2]), int(values[3]), *values[4:])


_KEYS = {"phase", "heads", "head_size", "batch", "tokens", "type"}
_MASKS = ["causal", "none"]


def read_gqa_cases(path):
    """All cases of a file, in its order; the line is named where it cannot be read."""
    cases = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        try:
            fields = {key: value.split(",")
                      for key, value in (item.split("=") for item in line.split())}
            if set(fields) - {"mask"} != _KEYS:
                raise ValueError(f"expected exactly the keys {sorted(_KEYS)}, and mask or not")
            cases.extend(_gqa_cases(fields))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return cases
