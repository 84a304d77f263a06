"""SmolLM2-135M-Instruct in numpy, its attention by this library.

Each layer is one call of GroupQueryAttention through a binding: rotary embedding, append to the
cache and attention together. The caches are bound in place and never move; what changes from step
to step are the tensors of the new tokens and the two lengths.
"""

import time
from pathlib import Path

import numpy as np

import attn_c
import gguf_file

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SYSTEM = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
          "Face<|im_end|>\n")
END = "<|im_end|>"


def as_chat(question: str) -> str:
    """The text of a question to the assistant."""
    return f"{SYSTEM}<|im_start|>user\n{question}{END}\n<|im_start|>assistant\n"


def _tokenizer(metadata: dict):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    control = np.nonzero(np.asarray(metadata["tokenizer.ggml.token_type"]) == 3)[0]
    made.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False)
                             for i in control])
    return made


def _rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


class _Layer:
    """One layer's attention: a binding whose caches stay where they are."""

    def __init__(self, op, session, caches: np.ndarray, tables) -> None:
        self._binding = op.bind(
            session,
            {"past_key": caches[0], "past_value": caches[1], "cos_cache": tables[0],
             "sin_cache": tables[1]},
            {"present_key": caches[0], "present_value": caches[1]})

    def attend(self, query, key, value, lengths, total) -> np.ndarray:
        """The attention of new tokens, whose keys and values go into the caches."""
        output = np.empty_like(query)
        for name, array in (("query", query), ("key", key), ("value", value),
                            ("seqlens_k", lengths), ("total_sequence_length", total)):
            self._binding.set_input(name, array)
        self._binding.set_output("output", output)
        self._binding.execute(prepare=True)
        return output


class Model:
    """Weights, and one sequence with its caches of `capacity` tokens.

    dtype: the type of queries, keys, values and caches; the rest is float32.
    """

    def __init__(self, folder: Path, capacity: int, dtype="float32", threads: int = 0) -> None:
        self.metadata, self.weights = gguf_file.read(folder / FILE)
        self.tokenizer = _tokenizer(self.metadata)
        self.layers = self._value("block_count")
        width = self._value("embedding_length")
        self.heads = self._value("attention.head_count")
        self.kv_heads = self._value("attention.head_count_kv")
        self.size = width // self.heads
        self.epsilon = self._value("attention.layer_norm_rms_epsilon")
        self.capacity, self.dtype = capacity, attn_c_type(dtype)
        self.length = 0
        self.attention_seconds = self.seconds = 0.0
        context = attn_c.Context("cpu", thread_count=threads)
        # GGUF has the rows of queries and keys so that partners of the rotation are neighbours.
        op = context.op("com.microsoft", "GroupQueryAttention", num_heads=self.heads,
                        kv_num_heads=self.kv_heads, do_rotary=1, rotary_interleaved=1)
        session = context.session()
        tables = self._tables()
        shape = (2, 1, self.kv_heads, capacity, self.size)
        self._attention = [_Layer(op, session, np.zeros(shape, self.dtype), tables)
                           for _ in range(self.layers)]

    def _value(self, name: str):
        return self.metadata[f"llama.{name}"]

    def _tables(self):
        pairs = np.arange(self.size // 2, dtype=np.float64)
        angles = np.outer(np.arange(self.capacity), self._value("rope.freq_base")
                          ** (-2 * pairs / self.size))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def restart(self) -> None:
        """Forgets the sequence. What the caches hold is beyond every length from now on."""
        self.length = 0

    def read(self, tokens) -> np.ndarray:
        """Logits of what follows these tokens, which are appended to the sequence."""
        begin = time.perf_counter()
        weights, count = self.weights, len(tokens)
        if self.length + count > self.capacity:
            raise ValueError(f"the sequence has room for {self.capacity} tokens")
        x = weights["token_embd.weight"][np.asarray(tokens)]
        lengths = np.array([self.length + count - 1], np.int32)
        total = np.array(self.length + count, np.int32)
        for number, layer in enumerate(self._attention):
            name = f"blk.{number}."
            normed = _rms_norm(x, weights[name + "attn_norm.weight"], self.epsilon)
            query, key, value = (
                np.ascontiguousarray((normed @ weights[f"{name}attn_{which}.weight"].T)[None],
                                     dtype=self.dtype) for which in "qkv")
            before = time.perf_counter()
            output = layer.attend(query, key, value, lengths, total)
            self.attention_seconds += time.perf_counter() - before
            x = x + output[0].astype(np.float32) @ weights[name + "attn_output.weight"].T
            normed = _rms_norm(x, weights[name + "ffn_norm.weight"], self.epsilon)
            gate = normed @ weights[name + "ffn_gate.weight"].T
            up = normed @ weights[name + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[name + "ffn_down.weight"].T
        self.length += count
        last = _rms_norm(x[-1], weights["output_norm.weight"], self.epsilon)
        logits = last @ weights["token_embd.weight"].T  # input and output share their weights
        self.seconds += time.perf_counter() - begin
        return logits


def attn_c_type(name) -> np.dtype:
    """numpy's type of float32, float16 or bfloat16 (which the package ml_dtypes has)."""
    if str(name) == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
