"""Attention layers that real models went through, as nodes of this library's operators.

tests/data/README.md says what was recorded. A layer comes in several nodes that mean the same.
"""

import dataclasses
import pathlib

import numpy as np

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"


@dataclasses.dataclass(frozen=True)
class Node:
    """A node with its inputs, and what the model got: `want` by the output's names, where `felt`
    (broadcast against a want) says what of it is no padding."""

    name: str
    operator: tuple  # domain, version, type
    attributes: dict
    inputs: dict
    want: dict
    felt: dict


def _smollm2():
    """Layers of one prompt: {name: (attributes, facts, tensors)}."""
    layers, name = {}, ""
    for line in (DATA / "smollm2" / "manifest.txt").read_text(encoding="utf-8").splitlines():
        kind, *words = line.split() or [""]
        if kind == "layer":
            name = f"smollm2 {words[0]}"
            layers[name] = {}, {}, {}
        attributes, facts, tensors = layers.get(name, ({}, {}, {}))
        if kind == "attribute":
            attributes[words[0]] = int(words[2])
        elif kind == "fact":
            facts[words[0]] = int(words[1])
        elif kind == "tensor":
            shape = [int(extent) for extent in words[2].split("x")]
            tensors[words[0]] = np.fromfile(DATA / "smollm2" / words[3], "<f4").reshape(shape)
    return layers


def decoder_nodes():
    """GroupQueryAttention on the whole prompt of SmolLM2."""
    for name, (attributes, facts, tensors) in _smollm2().items():
        count, pairs = len(tensors["query"]), facts["head_size"] // 2
        angles = np.outer(np.arange(count), facts["rope_base"] ** (-np.arange(pairs) / pairs))
        inputs = {which: tensors[which][None] for which in ("query", "key", "value")}
        inputs.update(cos_cache=np.cos(angles).astype(np.float32),
                      sin_cache=np.sin(angles).astype(np.float32),
                      seqlens_k=np.array([count - 1], np.int32),
                      total_sequence_length=np.array(count, np.int32))
        want = {"output": tensors["output"][None], "present_key": tensors["present_key"][None]}
        yield Node(name, ("com.microsoft", 1, "GroupQueryAttention"), attributes, inputs, want, {})


def encoder_nodes():
    """Sentences of different lengths in MiniLM: with a mask, with lengths, without causality."""
    for layer in (0, 5):
        recording = np.load(DATA / "minilm" / f"layer_{layer}.npz")
        query, key, value, out = (recording[name] for name in ("q", "k", "v", "out"))
        lengths = recording["lens"]
        batch, heads, rows, size = query.shape
        shown = np.arange(rows) < lengths[:, None]

        def flat(array):
            return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(batch, rows, -1)

        heads_apart = dict(zip("QKV", (query, key, value)))
        felt_apart, felt_flat = shown[:, None, :, None], shown[:, :, None]
        yield Node(f"minilm {layer} mask", ("", 23, "Attention"), {},
                   {**heads_apart, "attn_mask": shown[:, None, None]}, {"Y": out},
                   {"Y": felt_apart})
        yield Node(f"minilm {layer} lengths", ("", 24, "Attention"), {},
                   {**heads_apart, "nonpad_kv_seqlen": lengths}, {"Y": out}, {"Y": felt_apart})
        rows_of = {"query": flat(query), "key": flat(key), "value": flat(value)}
        yield Node(f"minilm {layer} varlen", ("pkg.nxrt", 1, "VarlenAttention"),
                   {"num_heads": heads}, {**rows_of, "nonpad_kv_seqlen": lengths},
                   {"output": flat(out)}, {"output": felt_flat})
        yield Node(f"minilm {layer} gqa", ("com.microsoft", 1, "GroupQueryAttention"),
                   {"num_heads": heads, "kv_num_heads": heads, "causal": 0},
                   {**rows_of, "seqlens_k": lengths.astype(np.int32) - 1,
                    "total_sequence_length": np.array(rows, np.int32)},
                   {"output": flat(out)}, {"output": felt_flat})


NODES = [*decoder_nodes(), *encoder_nodes()]

# Largest difference of an element, relative to the largest of the result: inputs in 16 bits are
# rounded before anything is computed.
BOUNDS = {"float32": 2e-6, "float16": 3e-3, "bfloat16": 3e-2}


def error(node: Node, name: str, result: np.ndarray) -> float:
    """How far an output is from the recording, where that is felt."""
    want = node.want[name].astype(np.float64)
    felt = np.broadcast_to(node.felt.get(name, True), want.shape)
    off = np.abs(result.astype(np.float64) - want)[felt].max()
    return float(off / np.abs(want[felt]).max())
