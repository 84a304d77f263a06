"""Turns recordings of a model's attention layers (.npz) into raw files and one manifest.

    convert_golden.py OUT_DIR FILE.npz...            write the files
    convert_golden.py --check OUT_DIR FILE.npz...    compare with what is there, write nothing

A recording holds query, key and value rows before the rotary embedding (q, k, v), the attention
output (out), the cache's keys after it (present_key), and the node's attributes as JSON text
(attrs). The manifest is made for readers without a JSON library: see tests/data/README.md.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

MANIFEST = "manifest.txt"
HEADER = """\
# Attention layers recorded from SmolLM2-135M-Instruct; written by tests/tools/convert_golden.py.
# tests/data/README.md explains the lines and names the origin and the licence.
"""
NAMES = {"q": "query", "k": "key", "v": "value", "out": "output", "present_key": "present_key"}
INTEGERS = ("num_heads", "kv_num_heads", "do_rotary", "rotary_interleaved")


def expected_shapes(attrs, rows):
    """The shape that each array of a recording must have."""
    heads, kv_heads, size = attrs["num_heads"], attrs["kv_num_heads"], attrs["head_dim"]
    return {
        "q": (rows, heads * size),
        "k": (rows, kv_heads * size),
        "v": (rows, kv_heads * size),
        "out": (rows, heads * size),
        "present_key": (kv_heads, rows, size),
    }


def convert(path):
    """One recording: its manifest lines, and the raw bytes of each file."""
    with np.load(path, allow_pickle=False) as recording:
        attrs = json.loads(str(recording["attrs"]))
        arrays = {name: recording[name] for name in NAMES}
    layer = attrs["layer"]
    lines = [f"layer {layer}"]
    lines += [f"attribute {name} int {attrs[name]}" for name in INTEGERS]
    lines += [f"fact head_size {attrs['head_dim']}", f"fact rope_base {attrs['rope_base']:.17g}"]
    files = {}
    for name, shape in expected_shapes(attrs, len(arrays["q"])).items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float32:
            sys.exit(f"{path}: {name} is {array.dtype} {array.shape}, expected float32 {shape}")
        if not np.isfinite(array).all():
            sys.exit(f"{path}: {name} has values that are not finite")
        file = f"l{layer:02d}_{NAMES[name]}.f32"
        files[file] = array.astype("<f4").tobytes()
        extents = "x".join(str(extent) for extent in shape)
        lines.append(f"tensor {NAMES[name]} float32 {extents} {file}")
    lines.append("end")
    return layer, lines, files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("out_dir", type=pathlib.Path)
    parser.add_argument("recordings", nargs="+", type=pathlib.Path, metavar="FILE.npz")
    options = parser.parse_args()

    layers = sorted(convert(path) for path in options.recordings)
    files = {name: data for _, _, part in layers for name, data in part.items()}
    text = HEADER + "".join("\n" + "\n".join(lines) + "\n" for _, lines, _ in layers)
    files[MANIFEST] = text.encode()

    if options.check:
        stale = [name for name, data in files.items()
                 if not (options.out_dir / name).is_file()
                 or (options.out_dir / name).read_bytes() != data]
        if stale:
            sys.exit("differs: " + ", ".join(sorted(stale)))
    else:
        options.out_dir.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (options.out_dir / name).write_bytes(data)
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
