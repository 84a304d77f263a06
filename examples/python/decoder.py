"""What language models in numpy share, their attention by this library.

Each layer is one call of GroupQueryAttention through a binding: norms of queries and keys, rotary
embedding, append to the cache and attention together. The caches are bound in place and never move;
what changes from step to step are the tensors of the new tokens and the two lengths.
"""

import time

import numpy as np

import attn_c


def numpy_type(name) -> np.dtype:
    """numpy's type of float32, float16 or bfloat16 (which the package ml_dtypes has)."""
    if str(name) == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """Rows over the root of their mean square, times the weight."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def rotary_tables(positions: int, size: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines (positions, size / 2): pair c turns by position * base ** (-2 c / size)."""
    pairs = np.arange(size // 2, dtype=np.float64)
    angles = np.outer(np.arange(positions), base ** (-2 * pairs / size))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Layer:
    """One layer's attention: a binding whose caches stay where they are.

    fixed: what never changes, by the operator's names, such as tables and norms.
    """

    def __init__(self, op, session, caches: np.ndarray, fixed: dict) -> None:
        self._binding = op.bind(
            session, {"past_key": caches[0], "past_value": caches[1], **fixed},
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


class Decoder:
    """One sequence with its caches of `capacity` tokens.

    dtype: the type of queries, keys, values and caches; the rest is float32. A model derives from
    this, makes a layer after the other by `add_layer`, and has

        tokenizer, end             the tokenizer, and the token that ends an answer
        encode(text), decode(ids)  of texts and token ids
        logits(tokens)             a forward pass that calls `attend` once a layer
    """

    def __init__(self, capacity: int, dtype="float32", threads: int = 0) -> None:
        self.capacity, self.dtype = capacity, numpy_type(dtype)
        self.length = 0
        self.attention_seconds = self.seconds = 0.0
        self._context = attn_c.Context("cpu", thread_count=threads)
        self._session = self._context.session()
        self._layers: list[Layer] = []
        self._lengths = self._total = None

    def add_layer(self, attributes: dict, size: int, fixed: dict) -> None:
        """The next layer: the operator's attributes, its head size, and what is bound for good."""
        op = self._context.op("com.microsoft", "GroupQueryAttention", **attributes)
        shape = (2, 1, attributes["kv_num_heads"], self.capacity, size)
        self._layers.append(Layer(op, self._session, np.zeros(shape, self.dtype), fixed))

    def attend(self, number: int, query, key, value) -> np.ndarray:
        """The attention of layer `number` for new tokens: float32 rows in and out."""
        query, key, value = (np.ascontiguousarray(rows[None], dtype=self.dtype)
                             for rows in (query, key, value))
        before = time.perf_counter()
        output = self._layers[number].attend(query, key, value, self._lengths, self._total)
        self.attention_seconds += time.perf_counter() - before
        return output[0].astype(np.float32)

    def restart(self) -> None:
        """Forgets the sequence. What the caches hold is beyond every length from now on."""
        self.length = 0

    def read(self, tokens) -> np.ndarray:
        """Logits of what follows these tokens, which are appended to the sequence."""
        begin = time.perf_counter()
        after = self.length + len(tokens)
        if after > self.capacity:
            raise ValueError(f"the sequence has room for {self.capacity} tokens")
        self._lengths, self._total = np.array([after - 1], np.int32), np.array(after, np.int32)
        logits = self.logits(tokens)
        self.length = after
        self.seconds += time.perf_counter() - begin
        return logits
