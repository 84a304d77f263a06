"""Reads GGUF files: metadata, and tensors as float32 arrays."""

import math
import struct
from pathlib import Path

import numpy as np

# Value types of metadata as struct's letters; 8 is a text, 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_TEXT, _ARRAY = 8, 9
_F32, _F16, _Q4_0, _Q4_1, _Q5_0, _Q8_0, _Q4_K, _Q6_K = 0, 1, 2, 3, 6, 8, 12, 14
# (elements, bytes) of a block.
_BLOCKS = {_F32: (1, 4), _F16: (1, 2), _Q4_0: (32, 18), _Q4_1: (32, 20), _Q5_0: (32, 22),
           _Q8_0: (32, 34), _Q4_K: (256, 144), _Q6_K: (256, 210)}


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def scalar(self, letter: str):
        value, = struct.unpack_from("<" + letter, self.data, self.at)
        self.at += struct.calcsize(letter)
        return value

    def text(self) -> str:
        size = self.scalar("Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode("utf-8", "surrogateescape")

    def value(self, kind: int):
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        element, count = self.scalar("I"), self.scalar("Q")
        if element == _TEXT:
            return [self.text() for _ in range(count)]
        array = np.frombuffer(self.data, "<" + _SCALARS[element], count, self.at)
        self.at += array.nbytes
        return array


def _halves(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte `at` of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at:at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Low nibbles first, then high ones, of each block."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _six_bits(blocks: np.ndarray) -> np.ndarray:
    """Q6_K: 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales, one factor."""
    low = blocks[:, :128].reshape(-1, 2, 64)
    high = blocks[:, 128:192].reshape(-1, 2, 32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    pairs = np.stack([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
    numbers = (low | pairs << 4).astype(np.float32) - 32
    numbers = numbers.reshape(-1, 16, 16) * scales[:, :, None]
    return numbers.reshape(-1, 256) * _halves(blocks, 208)


def _five_bits(blocks: np.ndarray) -> np.ndarray:
    """Q5_0: one factor, 32 fifth bits, 16 bytes of nibbles."""
    high = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    numbers = (_nibbles(blocks[:, 6:]) | high << 4).astype(np.float32) - 16
    return numbers * _halves(blocks, 0)


def _six_bit_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q4_K's 12 bytes: eight scales and eight offsets of six bits. Those of the last four lie in
    nibbles of the last four bytes, with their high bits on top of the first eight."""
    low, middle, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, last & 15 | low >> 6 << 4], axis=1)
    offsets = np.concatenate([middle & 63, last >> 4 | middle >> 6 << 4], axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _scaled_nibbles(blocks: np.ndarray) -> np.ndarray:
    """Q4_K: two factors, scales and offsets of eight groups of 32, 128 bytes of nibbles."""
    scales, offsets = _six_bit_scales(blocks[:, 4:16])
    packed = blocks[:, 16:].reshape(-1, 4, 32)
    numbers = np.stack([packed & 15, packed >> 4], axis=2).reshape(-1, 8, 32).astype(np.float32)
    scaled = numbers * (scales * _halves(blocks, 0))[:, :, None]
    return (scaled - (offsets * _halves(blocks, 2))[:, :, None]).reshape(-1, 256)


def _dequantised(kind: int, raw: np.ndarray) -> np.ndarray:
    if kind == _F32:
        return raw.view("<f4")
    if kind == _F16:
        return raw.view("<f2").astype(np.float32)
    blocks = raw.reshape(-1, _BLOCKS[kind][1])
    if kind == _Q6_K:
        return _six_bits(blocks)
    if kind == _Q4_K:
        return _scaled_nibbles(blocks)
    if kind == _Q5_0:
        return _five_bits(blocks)
    if kind == _Q8_0:
        return blocks[:, 2:].view(np.int8).astype(np.float32) * _halves(blocks, 0)
    if kind == _Q4_0:
        return (_nibbles(blocks[:, 2:]).astype(np.float32) - 8) * _halves(blocks, 0)
    return _nibbles(blocks[:, 4:]).astype(np.float32) * _halves(blocks, 0) + _halves(blocks, 2)


def read(*paths: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """(metadata, float32 arrays by name) of a file, which may lie in pieces."""
    data = np.concatenate([np.fromfile(path, np.uint8) for path in paths])
    reader = _Reader(memoryview(data))
    if bytes(data[:4]) != b"GGUF":
        raise ValueError(f"{paths[0]} is no GGUF file")
    reader.at = 8
    tensor_count, value_count = reader.scalar("Q"), reader.scalar("Q")
    metadata = {}
    for _ in range(value_count):
        name = reader.text()
        metadata[name] = reader.value(reader.scalar("I"))
    found = []
    for _ in range(tensor_count):
        name = reader.text()
        sizes = [reader.scalar("Q") for _ in range(reader.scalar("I"))]
        found.append((name, sizes[::-1], reader.scalar("I"), reader.scalar("Q")))
    alignment = metadata.get("general.alignment", 32)
    base = -(-reader.at // alignment) * alignment
    tensors = {}
    for name, shape, kind, offset in found:
        if kind not in _BLOCKS:
            raise ValueError(f"{name} has the GGUF type {kind}, which is not read here")
        elements, size = _BLOCKS[kind]
        begin = base + offset
        raw = data[begin:begin + math.prod(shape) // elements * size]
        tensors[name] = np.ascontiguousarray(
            _dequantised(kind, raw).reshape(shape), dtype=np.float32)
    return metadata, tensors
