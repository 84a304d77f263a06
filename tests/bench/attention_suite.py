"""Suite `attention`: Attention (ai.onnx 23) without a past, next to ONNX Runtime."""

import dataclasses

import case_file
import cpu_suite
import memory
import numpy as np

OPERATOR = ("", 23, "Attention", ("Q", "K", "V", "attn_mask"), ("Y",))

# all: a mask that shows everything. padding: rows of half to all of the tokens, at random.
MASKS = ("none", "causal", "all", "padding")


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """One measurement: `tokens` queries and as many keys; `mask_type` bool, or float for the
    type of the queries."""

    heads: int
    kv_heads: int
    head_size: int
    batch: int
    tokens: int
    type: str
    mask: str = "none"
    mask_type: str = "bool"

    @property
    def is_masked(self):
        """Whether there is a mask tensor."""
        return self.mask in ("all", "padding")

    @property
    def name(self):
        """Short and unique, without the type."""
        kind = f" {self.mask_type}" if self.is_masked else ""
        return (f"{self.heads}/{self.kv_heads} D{self.head_size} B{self.batch} S{self.tokens} "
                f"{self.mask}{kind}")

    @property
    def work(self):
        """Multiply-adds of both products count two; of pairs that causality shows, masked ones
        included."""
        pairs = self.tokens ** 2
        if self.mask == "causal":
            pairs = self.tokens * (self.tokens + 1) // 2
        return 4 * self.batch * self.heads * self.head_size * pairs, "GFLOP/s"


def attributes(case):
    """The node's attributes."""
    return {"is_causal": 1} if case.mask == "causal" else {}


def _mask(case, rng, dtype):
    """(batch, 1, tokens, tokens), as the peer wants it: each query row has its cells."""
    shape = (case.batch, 1, case.tokens, case.tokens)
    visible = np.ones(shape, bool)
    if case.mask == "padding":
        lengths = rng.integers(case.tokens // 2, case.tokens + 1, case.batch)
        visible &= (np.arange(case.tokens) < lengths[:, None])[:, None, None, :]
    if case.mask_type == "bool":
        return visible
    return np.where(visible, 0, -np.inf).astype(dtype)


def argument_sets(case, seed=1):
    """One (inputs, outputs): what a layer gets was written by the layer before, and lies in the
    processor's caches where it fits."""
    rng = np.random.default_rng(seed)
    dtype = memory.numpy_type(case.type)
    heads = {"Q": case.heads, "K": case.kv_heads, "V": case.kv_heads}
    inputs = {name: memory.normal(rng, (case.batch, count, case.tokens, case.head_size), dtype)
              for name, count in heads.items()}
    if case.is_masked:
        inputs["attn_mask"] = _mask(case, rng, dtype)
    return [(inputs, {"Y": np.zeros(inputs["Q"].shape, dtype)})]


def _make(heads, head_size, batch, tokens, type, mask="none", mask_type="bool"):
    if mask not in MASKS:
        raise ValueError(f"mask is {mask}, which is none of {', '.join(MASKS)}")
    if mask_type not in ("bool", "float"):
        raise ValueError(f"mask_type is {mask_type}, which is neither bool nor float")
    return AttentionCase(*case_file.counts(heads, 2), int(head_size), int(batch), int(tokens), type,
                         mask, mask_type)


def read_cases(path):
    """All cases of a file."""
    return case_file.read(path, _make, ("heads", "head_size", "batch", "tokens", "type"),
                          ("mask", "mask_type"))


SUITE = cpu_suite.Suite("attention", OPERATOR, read_cases, attributes, argument_sets,
                        lambda case: 1.0)
