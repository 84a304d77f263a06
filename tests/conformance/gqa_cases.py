"""Random GroupQueryAttention nodes with inputs, of everything that both sides support."""

import dataclasses

import numpy as np

# Where keys and values come from and go to:
#   none      no past (first prompts)
#   grown     a present buffer longer than the past one
#   separate  past and present of one capacity in different memory
#   in_place  the same memory
FORMS = ("none", "grown", "separate", "in_place")
KINDS = ("prompt", "decode", "chunk", "shared")


@dataclasses.dataclass
class Case:
    """A node with its inputs. `capacity`: rows of the present caches."""

    kind: str
    form: str
    type: str
    attributes: dict
    inputs: dict
    capacity: int
    outputs: tuple
    features: frozenset

    def valid_rows(self):
        """(B, S): the query rows that belong to a token; the rest of a padded prompt does not."""
        batch, tokens = self.inputs["query"].shape[:2]
        if self.kind != "prompt":
            return np.ones((batch, tokens), bool)
        return np.arange(tokens) <= self.inputs["seqlens_k"].reshape(-1, 1)

    def memory(self):
        """A fresh set of outputs: NaN wherever something must be written, pasts copied."""
        batch, tokens = self.inputs["query"].shape[:2]
        heads, kv_heads = self.attributes["num_heads"], self.attributes["kv_num_heads"]
        size = self.head_size
        dtype = np.dtype(self.type)
        total = int(self.inputs["total_sequence_length"])
        shapes = {"output": (batch, tokens, heads * size),
                  "present_key": (batch, kv_heads, self.capacity, size),
                  "present_value": (batch, kv_heads, self.capacity, size),
                  "output_qk": (batch, heads, tokens, total)}
        memory = {name: np.full(shapes[name], np.nan, dtype) for name in self.outputs}
        inputs = dict(self.inputs)
        if self.form == "in_place":
            for name in ("key", "value"):
                memory[f"present_{name}"] = inputs[f"past_{name}"] = \
                    self.inputs[f"past_{name}"].copy()
        return inputs, memory

    @property
    def head_size(self):
        heads = self.attributes["num_heads"]
        if "key" not in self.inputs:
            heads += 2 * self.attributes["kv_num_heads"]
        return self.inputs["query"].shape[2] // heads


def _lengths(rng, kind, form, batch, tokens, room):
    """(total of each row, total_sequence_length, past rows)."""
    if kind == "prompt":
        totals = rng.integers(1, tokens + 1, batch) if rng.random() < 0.6 else \
            np.full(batch, tokens)
        totals[rng.integers(batch)] = tokens
        return totals, tokens, tokens + room
    if kind == "shared":
        past = tokens + int(rng.integers(1, 12))
        totals = rng.integers(tokens, past + 1, batch)
        return totals, max(int(totals.max()), tokens + 1), past
    # N = S: every row has room for its new tokens.
    longest = tokens + int(rng.integers(1, 40))
    totals = rng.integers(tokens, longest + 1, batch)
    totals[rng.integers(batch)] = longest
    past = longest - tokens if form == "grown" else longest + room
    return totals, longest, past


def _attributes(rng, size):
    heads = int(rng.choice([1, 2, 4]))
    attributes = {"num_heads": heads * int(rng.choice([1, 2, 3, 4, 8])), "kv_num_heads": heads}
    if rng.random() < 0.25:
        attributes["local_window_size"] = int(rng.integers(1, 12))
    elif rng.random() < 0.15:
        attributes["causal"] = 0
    if rng.random() < 0.25:
        attributes["softcap"] = float(rng.choice([0.5, 2.0, 20.0]))
    if rng.random() < 0.3:
        attributes["scale"] = float(rng.choice([0.05, 0.2, -0.1]))
    if rng.random() < 0.2:
        attributes["smooth_softmax"] = 1
    if rng.random() < 0.2:
        attributes["qk_output"] = int(rng.integers(1, 3))
    if size % 16 == 0 and rng.random() < 0.5:
        attributes["do_rotary"] = 1
        attributes["rotary_interleaved"] = int(rng.integers(2))
    return attributes


def _add_rotary(rng, inputs, attributes, kind, batch, tokens, size, longest, dtype):
    width = 8 * int(rng.integers(1, size // 16 + 1))
    rows = longest + int(rng.integers(0, 5)) + 8
    angle = np.outer(np.arange(rows), 1e4 ** (-np.arange(width) / width))
    inputs["cos_cache"], inputs["sin_cache"] = np.cos(angle).astype(dtype), \
        np.sin(angle).astype(dtype)
    if rng.random() < 0.4:
        if kind == "prompt":  # ONNX Runtime takes one offset from the whole array
            positions = int(rng.integers(0, 8)) + np.tile(np.arange(tokens), (batch, 1))
        else:
            positions = rng.integers(0, rows, (batch, tokens))
        inputs["position_ids"] = positions.astype(np.int64)


def _features(case_kind, form, attributes, inputs, totals, batch, type_name):
    size = inputs.get("cos_cache", np.zeros((1, 0))).shape[1] * 2
    found = {case_kind, form, type_name}
    found.update(name for name in ("attention_bias", "head_sink", "position_ids", "cos_cache")
                 if name in inputs)
    found.update(name for name in ("local_window_size", "softcap", "scale", "smooth_softmax")
                 if name in attributes)
    if "key" not in inputs:
        found.add("packed")
    if attributes.get("causal", 1) == 0:
        found.add("bidirectional")
    if attributes.get("scale", 0) < 0:
        found.add("negative scale")
    if attributes.get("rotary_interleaved"):
        found.add("interleaved")
    if size:
        found.add(f"rotary width {size}")
    if len(set(totals.tolist())) > 1:
        found.add("ragged")
    if batch > 1:
        found.add("batch")
    if "qk_output" in attributes:
        found.add(f"qk_output {attributes['qk_output']}")
    return frozenset(found)


def draw(seed):
    """The case of a seed."""
    rng = np.random.default_rng([20, seed])
    type_name = str(rng.choice(["float32", "float16"]))
    dtype = np.dtype(type_name)
    kind = str(rng.choice(KINDS, p=[0.35, 0.35, 0.2, 0.1]))
    form = str(rng.choice(FORMS if kind == "prompt" else
                          FORMS[2:] if kind == "shared" else FORMS[1:]))
    if kind == "prompt" and form == "grown":
        form = "none"
    batch = 1 if kind == "chunk" else int(rng.integers(1, 4))
    tokens = {"prompt": int(rng.integers(1, 34)), "decode": 1, "chunk": int(rng.integers(2, 20)),
              "shared": 1}[kind]
    if kind == "shared" and batch == 1:
        tokens = int(rng.integers(1, 6))
    size = int(rng.choice([8, 16, 32, 40, 64, 80, 96, 128]))
    attributes = _attributes(rng, size)
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    totals, bound, past = _lengths(rng, kind, form, batch, tokens, int(rng.integers(0, 20)))
    capacity = {"none": bound, "grown": past + tokens}.get(form, past)

    def normal(*shape):
        return rng.standard_normal(shape).astype(dtype)

    inputs = {"query": normal(batch, tokens, heads * size)}
    if kind != "shared" and rng.random() < 0.3:
        inputs["query"] = normal(batch, tokens, (heads + 2 * kv_heads) * size)
    else:
        added = 0 if kind == "shared" else tokens
        inputs["key"], inputs["value"] = (normal(batch, added, kv_heads * size) for _ in range(2))
    if form != "none":
        for name in ("past_key", "past_value"):
            inputs[name] = normal(batch, kv_heads, past, size)
            if kind != "prompt":  # rows that nobody wrote are never felt
                for b, total in enumerate(totals):
                    written = total if kind == "shared" else total - tokens
                    inputs[name][b, :, written:] = np.nan
    inputs["seqlens_k"] = (totals - 1).astype(np.int32)
    inputs["total_sequence_length"] = np.array(bound, np.int32)
    if attributes.get("do_rotary"):
        _add_rotary(rng, inputs, attributes, kind, batch, tokens, size, bound, dtype)
    if rng.random() < 0.25:
        inputs["attention_bias"] = normal(
            int(rng.choice([1, batch])), int(rng.choice([1, heads])), tokens, bound)
    if rng.random() < 0.25:
        inputs["head_sink"] = normal(heads)
    outputs = ["output", "present_key", "present_value"]
    if "qk_output" in attributes:
        outputs.append("output_qk")
    return Case(kind, form, type_name, attributes, inputs, capacity, tuple(outputs),
                _features(kind, form, attributes, inputs, totals, batch, type_name))
