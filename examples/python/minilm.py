"""all-MiniLM-L6-v2 in numpy, its attention by this library: sentences to unit vectors.

Queries, keys and values are (B, S, 384) as the projections leave them, and what is padding is
hidden by a boolean mask (B, 1, 1, S): nothing is copied or transposed for the attention.
"""

import json
import math
import struct
import time
import unicodedata
from pathlib import Path

import numpy as np

import attn_c

HEADS, LAYERS, LONGEST = 12, 6, 256


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The float32 arrays of a file."""
    data = np.fromfile(path, np.uint8)
    size, = struct.unpack("<Q", data[:8].tobytes())
    entries = json.loads(data[8:8 + size].tobytes())
    arrays = {}
    for name, entry in entries.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        arrays[name] = np.frombuffer(data[begin:end].tobytes(), "<f4").reshape(entry["shape"])
    return arrays


class WordPieces:
    """BERT's tokenizer in lower case."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        self._ids = {piece: number for number, piece in enumerate(lines)}

    @staticmethod
    def _stands_alone(character: str) -> bool:
        code = ord(character)
        symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
        chinese = 0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF
        return symbol or chinese or unicodedata.category(character).startswith("P")

    def _words(self, text: str):
        plain = "".join(c for c in unicodedata.normalize("NFD", text.lower())
                        if unicodedata.category(c) != "Mn")
        for word in plain.split():
            run = ""
            for character in word:
                if unicodedata.category(character) in ("Cc", "Cf") or character == "\ufffd":
                    continue
                if not self._stands_alone(character):
                    run += character
                    continue
                if run:
                    yield run
                yield character
                run = ""
            if run:
                yield run

    def _pieces(self, word: str) -> list[int]:
        found, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin else ""
            end = next((end for end in range(len(word), begin, -1)
                        if prefix + word[begin:end] in self._ids), None)
            if end is None or len(word) > 100:
                return [self._ids["[UNK]"]]
            found.append(self._ids[prefix + word[begin:end]])
            begin = end
        return found

    def encode(self, text: str) -> list[int]:
        """Token ids with the marks at both ends, at most LONGEST."""
        ids = [piece for word in self._words(text) for piece in self._pieces(word)]
        return [self._ids["[CLS]"], *ids[:LONGEST - 2], self._ids["[SEP]"]]


def _layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12) * weight + bias


_erf = np.vectorize(math.erf, otypes=[np.float32])


class Model:
    """Weights and the attention operator."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        self.weights = read_safetensors(folder / "model.safetensors")
        self.words = WordPieces(folder / "vocab.txt")
        context = attn_c.Context("cpu", thread_count=threads)
        self._attention = context.op("ai.onnx", "Attention", 23, q_num_heads=HEADS,
                                     kv_num_heads=HEADS)
        self.attention_seconds = self.seconds = 0.0

    def encode(self, texts) -> np.ndarray:
        """(texts, 384): a unit vector for each."""
        ids = [self.words.encode(text) for text in texts]
        longest = max(map(len, ids))
        mask = np.arange(longest) < np.array([len(one) for one in ids])[:, None]
        padded = np.array([one + [0] * (longest - len(one)) for one in ids])
        return self.forward(padded, mask)

    def _linear(self, x, name: str):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _attend(self, x, name: str, mask) -> np.ndarray:
        query, key, value = (self._linear(x, f"{name}attention.self.{which}")
                             for which in ("query", "key", "value"))
        before = time.perf_counter()
        output = self._attention(Q=query, K=key, V=value, attn_mask=mask, outputs=["Y"]).Y
        self.attention_seconds += time.perf_counter() - before
        return output

    def forward(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """As encode, of token ids (B, S) and what of them is no padding (B, S)."""
        begin = time.perf_counter()
        weights = self.weights
        x = (weights["embeddings.word_embeddings.weight"][ids]
             + weights["embeddings.position_embeddings.weight"][:ids.shape[1]]
             + weights["embeddings.token_type_embeddings.weight"][0])
        x = self._norm(x, "embeddings.LayerNorm")
        seen = np.ascontiguousarray(mask[:, None, None])
        for number in range(LAYERS):
            name = f"encoder.layer.{number}."
            attended = self._attend(x, name, seen)
            x = self._norm(x + self._linear(attended, name + "attention.output.dense"),
                           name + "attention.output.LayerNorm")
            h = self._linear(x, name + "intermediate.dense")
            h = h * np.float32(0.5) * (1 + _erf(h * np.float32(math.sqrt(0.5))))
            x = self._norm(x + self._linear(h, name + "output.dense"), name + "output.LayerNorm")
        counted = mask[:, :, None].astype(np.float32)
        mean = (x * counted).sum(1) / counted.sum(1)
        self.seconds += time.perf_counter() - begin
        return mean / np.linalg.norm(mean, axis=-1, keepdims=True)

    def _norm(self, x, name: str):
        return _layer_norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"])
