"""The reader of GGUF files on files that the test writes: block types against their definitions."""

import struct
from pathlib import Path

import models  # noqa: F401: where the examples are
import numpy as np
import pytest

import gguf_file

RNG = np.random.default_rng(5)


def half(value) -> bytes:
    return np.float16(value).tobytes()


def q4(block: bytes, start: int):
    """The 32 nibbles of a block: the low ones first."""
    packed = block[start:start + 16]
    return [byte & 15 for byte in packed] + [byte >> 4 for byte in packed]


def make_q4_0():
    block = half(0.25) + RNG.bytes(16)
    return block, [0.25 * (n - 8) for n in q4(block, 2)]


def make_q4_1():
    block = half(0.5) + half(-3) + RNG.bytes(16)
    return block, [0.5 * n - 3 for n in q4(block, 4)]


def make_q5_0():
    fifth, packed = RNG.bytes(4), RNG.bytes(16)
    bits = int.from_bytes(fifth, "little")
    values = [0.5 * ((n | (bits >> i & 1) << 4) - 16) for i, n in enumerate(q4(packed, 0))]
    return half(0.5) + fifth + packed, values


def make_q4_k():
    packed, nibbles = RNG.bytes(12), RNG.bytes(128)
    values = []
    for group in range(8):
        if group < 4:
            scale, offset = packed[group] & 63, packed[group + 4] & 63
        else:
            scale = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            offset = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        for i in range(32):
            byte = nibbles[32 * (group // 2) + i]
            number = byte >> 4 if group % 2 else byte & 15
            values.append(0.25 * scale * number - 0.5 * offset)
    return half(0.25) + half(0.5) + packed + nibbles, values


def make_q8_0():
    numbers = RNG.integers(-128, 128, 32).astype(np.int8)
    return half(0.125) + numbers.tobytes(), [0.125 * int(n) for n in numbers]


def make_q6_k():
    low, high = RNG.bytes(128), RNG.bytes(64)
    scales = RNG.integers(-128, 128, 16).astype(np.int8)
    values = []
    for part in range(2):  # of 128 numbers
        for quarter in range(4):
            for i in range(32):
                byte = low[64 * part + 32 * (quarter % 2) + i]
                nibble = byte & 15 if quarter < 2 else byte >> 4
                pair = high[32 * part + i] >> 2 * quarter & 3
                scale = int(scales[8 * part + 2 * quarter + i // 16])
                values.append(0.0625 * scale * ((nibble | pair << 4) - 32))
    return low + high + scales.tobytes() + half(0.0625), values


def make_f16():
    numbers = RNG.standard_normal(4).astype(np.float16)
    return numbers.tobytes(), numbers.astype(np.float64).tolist()


def make_f32():
    numbers = RNG.standard_normal(4).astype(np.float32)
    return numbers.tobytes(), numbers.astype(np.float64).tolist()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write_file(path: Path, kind: int, blocks, elements: int, rows: int) -> None:
    """A file with three values of metadata and one tensor."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 3)
    head += text("name") + struct.pack("<I", 8) + text("a model")
    head += text("count") + struct.pack("<II", 4, 7)
    head += text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    head += text("weight") + struct.pack("<IQQIQ", 2, elements // rows, rows, kind, 0)
    head += b"\0" * (-len(head) % 32)
    path.write_bytes(head + b"".join(blocks))


@pytest.mark.parametrize("kind, make", [
    (0, make_f32), (1, make_f16), (2, make_q4_0), (3, make_q4_1), (6, make_q5_0), (8, make_q8_0),
    (12, make_q4_k), (14, make_q6_k)])
def test_blocks(tmp_path, kind, make):
    made = [make() for _ in range(6)]
    want = np.array([value for _, values in made for value in values])
    write_file(tmp_path / "model.gguf", kind, [block for block, _ in made], want.size, 3)
    metadata, tensors = gguf_file.read(tmp_path / "model.gguf")
    assert metadata == {"name": "a model", "count": 7, "words": ["a", "b"]}
    got = tensors["weight"]
    assert got.shape == (3, want.size // 3) and got.dtype == np.float32
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-6)


def test_a_file_in_pieces(tmp_path):
    block, values = make_f32()
    write_file(tmp_path / "model.gguf", 0, [block], 4, 1)
    whole = (tmp_path / "model.gguf").read_bytes()
    pieces = [tmp_path / name for name in "abc"]
    for path, begin, end in zip(pieces, (0, 5, 90), (5, 90, len(whole))):
        path.write_bytes(whole[begin:end])
    _, tensors = gguf_file.read(*pieces)
    np.testing.assert_allclose(tensors["weight"].ravel(), values, rtol=1e-6)


def test_unknown_types_are_named(tmp_path):
    write_file(tmp_path / "model.gguf", 99, [b"\0" * 32], 32, 1)
    with pytest.raises(ValueError, match="weight has the GGUF type 99"):
        gguf_file.read(tmp_path / "model.gguf")
