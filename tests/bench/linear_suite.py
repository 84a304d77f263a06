"""Suite `linear`: LinearAttention (com.microsoft 1), one token and many, next to ONNX Runtime."""

import dataclasses

import case_file
import cpu_suite
import memory
import numpy as np

OPERATOR = ("com.microsoft", 1, "LinearAttention",
            ("query", "key", "value", "past_state", "decay", "beta"), ("output", "present_state"))
RULES = ("linear", "gated", "delta", "gated_delta")


@dataclasses.dataclass(frozen=True)
class LinearCase:
    """One measurement, with a past state; the present one is in its memory. `state`: warm, where
    each call finds the state of the last one, or cold, where states take turns over more than the
    processor's caches, as those of a model's layers do."""

    query_heads: int
    key_heads: int
    value_heads: int
    head_size: int
    batch: int
    tokens: int
    type: str
    rule: str = "gated_delta"
    state: str = "warm"

    @property
    def name(self):
        """Short and unique, without the type."""
        return (f"{self.rule} {self.query_heads}/{self.key_heads}/{self.value_heads} "
                f"D{self.head_size} B{self.batch} T{self.tokens} {self.state}")

    @property
    def state_shape(self):
        """Of past and present."""
        return self.batch, self.value_heads, self.head_size, self.head_size

    @property
    def work(self):
        """One token: bytes of a state read once and written once. Several: the products of the
        recurrence, a multiply-add counting two."""
        elements = self.batch * self.value_heads * self.head_size ** 2
        if self.tokens == 1:
            return 2 * elements * memory.numpy_type(self.type).itemsize, "GB/s"
        products = 2 + self.rule.startswith("gated") / 2 + self.rule.endswith("delta")
        outputs = max(self.query_heads, self.value_heads) / self.value_heads
        return 2 * (products - 1 + outputs) * elements * self.tokens, "GFLOP/s"


def attributes(case):
    """The node's attributes."""
    return {"q_num_heads": case.query_heads, "kv_num_heads": case.value_heads,
            "update_rule": case.rule}


def argument_sets(case, seed=1):
    """(inputs, outputs) a turn: keys of length 1, decays and rates as gates give them."""
    rng = np.random.default_rng(seed)
    dtype = memory.numpy_type(case.type)
    rows, size = (case.batch, case.tokens), case.head_size
    key = rng.standard_normal((*rows, case.key_heads, size))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    inputs = {"query": memory.normal(rng, (*rows, case.query_heads * size), dtype),
              "key": key.reshape(*rows, -1).astype(dtype),
              "value": memory.normal(rng, (*rows, case.value_heads * size), dtype)}
    if case.rule.startswith("gated"):
        inputs["decay"] = -rng.exponential(0.1, (*rows, case.value_heads)).astype(dtype)
    if case.rule.endswith("delta"):
        inputs["beta"] = rng.uniform(0, 1, (*rows, case.value_heads)).astype(dtype)
    output = np.zeros((*rows, max(case.query_heads, case.value_heads) * size), dtype)
    state_bytes = int(np.prod(case.state_shape)) * dtype.itemsize
    sets = []
    for _ in range(memory.turns_of(state_bytes) if case.state == "cold" else 1):
        state = memory.normal(rng, case.state_shape, dtype)
        sets.append(({**inputs, "past_state": state}, {"output": output, "present_state": state}))
    return sets


def _make(heads, head_size, batch, tokens, type, rule="gated_delta", state="warm"):
    if rule not in RULES:
        raise ValueError(f"rule is {rule}, which is none of {', '.join(RULES)}")
    if state not in ("warm", "cold"):
        raise ValueError(f"state is {state}, which is neither warm nor cold")
    return LinearCase(*case_file.counts(heads, 3), int(head_size), int(batch), int(tokens), type,
                      rule, state)


def read_cases(path):
    """All cases of a file."""
    return case_file.read(path, _make, ("heads", "head_size", "batch", "tokens", "type"),
                          ("rule", "state"))


# A state that comes from memory costs everyone the same reading.
SUITE = cpu_suite.Suite("linear", OPERATOR, read_cases, attributes, argument_sets,
                        lambda case: 2.0 if case.state == "warm" else None)
