#!/usr/bin/env python3
"""Makes the files of scores that tests/app/score.py holds forge score to: PROBLEM/scores.jsonl.

    python3 verify/make_scores.py            write them
    python3 verify/make_scores.py --check    compare them with what is written

Each line is a line for forge score, with what it must answer: log_likelihoods of all tokens, greedy, left_out. The numbers are
plain_model.py's, in 80 bits, of each line by itself. Half of the continuations are the model's own choices.
"""

import argparse
import json
import os
import random
import re
import sys

import numpy

from plain_model import Routing, gpt2_logits, llama_logits, read_directory

HERE = os.path.dirname(os.path.abspath(__file__))
PROBLEMS = ("llama", "gpt2", "mistral", "qwen3_moe", "deepseek_v3", "olmo3", "gemma3", "ministral3", "gpt_oss", "qwen3_5")


def logits_of(config, weights, tokens):
    inputs = numpy.array([tokens])
    forward = gpt2_logits if config["model_type"] == "gpt2" else llama_logits
    return forward(config, weights, inputs, [[0] * len(tokens)], Routing())[0][0]


def scores_of(config, weights, tokens, labels):
    """Log-likelihoods of the last labels, and whether each is the likeliest."""
    logits = logits_of(config, weights, tokens[:-1])[-labels:]
    wanted = tokens[-labels:]
    top = logits.max(-1)
    sums = top + numpy.log(numpy.exp(logits - top[:, None]).sum(-1))
    return [float(row[t] - lse) for row, lse, t in zip(logits, sums, wanted)], [
        int(row.argmax()) == t for row, t in zip(logits, wanted)
    ]


def continued(config, weights, context, count):
    tokens = list(context)
    for _ in range(count):
        tokens.append(int(logits_of(config, weights, tokens)[-1].argmax()))
    return tokens[len(context) :]


def questions(config, weights, length, before):
    """Lines without scores."""
    draw = random.Random(config["model_type"])

    def ids(count):
        return [draw.randrange(config["vocab_size"]) for _ in range(count)]

    yield {"context": [], "continuation": ids(3)}
    yield {"context": [], "continuation": [before, *ids(2)]}
    yield {"continuation": ids(2)}
    yield {"continuation": ids(2 * length + 7)}  # three windows
    yield {"context": ids(length + 5), "continuation": ids(4)}  # longer than a sequence
    yield {"context": ids(1), "continuation": ids(length)}
    for count in (1, 2, 3, 5, 8, 11, 4):
        context = ids(count + 1)
        yield {"context": context, "continuation": ids(1 + count % 3)}
        yield {"context": context, "continuation": continued(config, weights, context, 1 + count % 4)}


def pieces_of(line, length, before):
    """(tokens, labels) of a line, and how many tokens of its context have no room."""
    context, continuation = line.get("context"), line["continuation"]
    if context is None:
        tokens = [before, *continuation]
        ends = [*range(length, len(continuation), length), len(continuation)]
        return [(tokens[max(0, end - length) : end + 1], end - (end - 1) // length * length) for end in ends], 0
    if not context:
        context, continuation = [before], continuation[1:] if continuation[0] == before else continuation
    tokens = [*context, *continuation]
    return [(tokens[-length - 1 :], len(continuation))], max(0, len(tokens) - length - 1)


def lines_of(problem):
    config, weights = read_directory(os.path.join(HERE, problem, "model"))
    with open(os.path.join(HERE, problem, "input.yaml")) as file:
        length = int(re.search("sequence_tokens: (.*)", file.read())[1])
    before = config["bos_token_id"]
    for line in questions(config, weights, length, before):
        values, greedy = [], True
        pieces, left_out = pieces_of(line, length, before)
        for tokens, labels in pieces:
            scores, chosen = scores_of(config, weights, tokens, labels)
            values += scores
            greedy = greedy and all(chosen)
        yield {**line, "log_likelihoods": values, "greedy": greedy, "left_out": left_out}


def same_scores(written, lines):
    return len(written) == len(lines) and all(
        {**a, "log_likelihoods": 0} == {**b, "log_likelihoods": 0}
        and numpy.allclose(a["log_likelihoods"], b["log_likelihoods"], rtol=1e-14, atol=0)
        for a, b in zip(written, lines)
    )


def write_or_check(name, lines_of, same):
    """Writes PROBLEM/name of each problem; with --check compares, and ends with 1 where one isn't the same as written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check, wrong = parser.parse_args().check, 0
    for problem in PROBLEMS:
        path, lines = os.path.join(HERE, problem, name), list(lines_of(problem))
        if not check:
            with open(path, "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            continue
        with open(path) as file:
            right = same([json.loads(line) for line in file], lines)
        print(f"{problem}: {len(lines)} lines, {'as written' if right else 'NOT as written'}")
        wrong += not right
    sys.exit(wrong > 0)


if __name__ == "__main__":
    write_or_check("scores.jsonl", lines_of, same_scores)
