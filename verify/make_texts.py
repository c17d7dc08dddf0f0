#!/usr/bin/env python3
"""Makes the files of texts that tests/app/generate.py holds forge generate to: PROBLEM/texts.jsonl.

    python3 verify/make_texts.py            write them
    python3 verify/make_texts.py --check    compare them with what is written

Each line is a line for forge generate, with the tokens that it must answer in `ids`. Logits are plain_model.py's, in 80 bits, of the whole
text anew for every token; draws are Philox-4x32-10 as docs/notes/design.md has it, keyed by seed, number of the line and position.
"""

import operator
import os
import random
import re
import sys

import numpy

from make_scores import HERE, logits_of, write_or_check
from plain_model import read_directory

LENGTH = 6
MASK = (1 << 64) - 1
SAMPLING = 5  # the purpose of the key


def mix(key, word):
    z = (key + 0x9E3779B97F4A7C15 * (word + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def philox(counter, key):
    c, k0, k1 = list(counter), key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def draw(seed, sample, position):
    """Uniform in (0, 1)."""
    key = mix(mix(mix(mix(0, seed), SAMPLING), 0), 0)
    words = philox((position & 0xFFFFFFFF, position >> 32, sample & 0xFFFFFFFF, sample >> 32), key)
    return (((words[0] << 32 | words[1]) >> 12) + 0.5) / 2**52


def choose(logits, line, sample, position):
    """A token, and how far the draw was from the next one's: of those in the order of their probabilities, as many as top_k and top_p
    leave, the first whose sum exceeds the draw."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if line["temperature"] == 0:
        return order[0], float(logits[order[0]] - logits[order[1]])
    if line.get("top_k"):
        order = order[: line["top_k"]]
    weights = [numpy.exp((logits[token] - logits[order[0]]) / line["temperature"]) for token in order]
    total, sums = sum(weights), numpy.cumsum(weights)
    kept = int(numpy.searchsorted(sums, line.get("top_p", 1) * total)) + 1
    wanted = draw(line["seed"], sample, position) * sums[min(kept, len(order)) - 1]
    at = int(numpy.searchsorted(sums, wanted, side="right"))
    return order[at], float(min(abs(sums[i] - wanted) for i in (at - 1, at) if i >= 0) / total)


def lines_of(problem):
    config, weights = read_directory(os.path.join(HERE, problem, "model"))
    with open(os.path.join(HERE, problem, "input.yaml")) as file:
        length = int(re.search("sequence_tokens: (.*)", file.read())[1])
    numbers = random.Random(config["model_type"])
    ways = [{"temperature": 0}, {"temperature": 1}, {"temperature": 0.7, "top_k": 5}, {"temperature": 1.3, "top_p": 0.8}]
    for sample, count in enumerate((5, 1, 12, 3, 9, length - LENGTH, 2, length)):
        # Some lines ask the same: their keys are by sample.
        prompt = [numbers.randrange(config["vocab_size"]) for _ in range(count)] if sample != 6 else [7, 8]
        line = {"prompt": prompt, "length": LENGTH, "seed": 11, **ways[sample % 4]}
        ids, left_out = [], max(0, count + LENGTH - length)
        for _ in range(LENGTH):
            tokens = [*prompt[left_out:], *ids]
            token, margin = choose(logits_of(config, weights, tokens)[-1], line, sample, len(tokens))
            if margin < 1e-7:
                sys.exit(f"{problem}, line {sample + 1}: a draw between two tokens; another seed")
            ids.append(token)
        yield {**line, "ids": ids, "left_out": left_out}


if __name__ == "__main__":
    write_or_check("texts.jsonl", lines_of, operator.eq)
