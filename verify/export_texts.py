#!/usr/bin/env python3
"""A problem of each family through training, a checkpoint and `forge export`: transformers loads what it writes, and forge reads it back, with
one loss and one greedy text in fp64. Writes verify/exports.json, which docs/families.md quotes.

    python3 verify/export_texts.py --forge build/cpu/forge [FAMILY ...]

The loss is of the deck's first batch; texts are of LENGTH tokens behind PROMPTS random prompts. transformers computes the whole text anew for
every token (reference.py). Of families that forge generates no text with, the loss alone. Exit code 1 if any text differs, a loss by more than
LOSS_BOUND, a tensor is missing, or a choice lies closer to the next one than CLOSEST.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors import safe_open
from transformers.utils import logging

import export_check
import random_case
import reference
from make_scores import HERE
from problems import PROBLEMS

LENGTH, PROMPTS = 10, 6
EXPORTS = os.path.join(HERE, "exports.json")
# Families whose problem has another name.
NAMES = {"gemma3_text": "gemma3", "qwen3_5_text": "qwen3_5_dense", "qwen3_5_moe_text": "qwen3_5"}
CLOSEST, LOSS_BOUND = 1e-9, 1e-12


def families():
    """Those that config/family.hpp lists."""
    with open(os.path.join(HERE, "../src/config/family.hpp")) as file:
        return re.findall(r'"(\w+)"', re.search(r"family_words\{(.*?)\}", file.read(), re.S)[1])


def exported(forge, deck, folder):
    """The directory that forge exports of a checkpoint of the deck's run."""
    saved, model = os.path.join(folder, "saved"), os.path.join(folder, "model")
    places = [f"checkpoint.directory={saved}", f"output.directory={folder}/run"]
    random_case.run([forge, "train", deck, *(word for place in places for word in ("--set", place))])
    random_case.run([forge, "export", saved, "--output", model])
    return model


def greedy_texts(model, prompts):
    """transformers' tokens behind each prompt, and how far the closest choice was from the next one."""
    texts, closest = [], float("inf")
    for prompt in prompts:
        tokens = list(prompt)
        for _ in range(LENGTH):
            with torch.no_grad(), reference.arithmetic("fp64"):
                logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            best = torch.topk(logits, 2)
            closest = min(closest, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
        texts.append(tokens[len(prompt) :])
    return texts, closest


def forge_texts(forge, read_back, prompts, folder):
    """forge's; None where it generates no text with the family."""
    asked, told = os.path.join(folder, "asked.jsonl"), os.path.join(folder, "told.jsonl")
    with open(asked, "w") as file:
        file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    options = ["--initial", "--precision", "fp64", "--temperature", "0", "--length", str(LENGTH), "--ignore-end"]
    try:
        random_case.run([forge, "generate", *read_back, *options, "--prompts", asked, "--output", told])
    except RuntimeError as refused:
        if "generates no text" not in str(refused):
            raise
        return None
    with open(told) as file:
        return [json.loads(line)["ids"] for line in file]


def losses(forge, read_back, model, problem, name, folder):
    """The first batch's loss by transformers and by forge."""
    kinds = {"uint16": numpy.uint16, "uint32": numpy.uint32}
    data = [numpy.fromfile(os.path.join(HERE, name, file), kinds[problem.token_type]) for file in problem.token_files]
    batch = reference.batch_of_step(data, 1, problem.train["sequence_tokens"], problem.train["global_batch_sequences"])
    with torch.no_grad(), reference.arithmetic("fp64"):
        total, _, count, _ = reference.loss_sums(model, *batch, problem.end_token)
    written = os.path.join(folder, "gradients.safetensors")
    random_case.run([forge, "gradients", *read_back, "--output", written])
    with safe_open(written, "pt") as file:
        return total.item() / count, float(file.metadata()["loss"])


def check(forge, family, folder):
    name = NAMES.get(family, family)
    deck, problem, draw = os.path.join(HERE, name, "input.yaml"), PROBLEMS[name], random.Random(family)
    longest = problem.train["sequence_tokens"] - LENGTH
    prompts = [[draw.randrange(problem.config["vocab_size"]) for _ in range(draw.randint(1, longest))] for _ in range(PROMPTS)]
    directory = exported(forge, deck, folder)
    read_back = [deck, "--set", f"model.hf={directory}"]
    export_check.load(directory, torch.float64)
    model = reference.load_model(directory, "fp64", problem.model.get("mtp_depth", 0))
    theirs, mine = losses(forge, read_back, model, problem, name, folder)
    if not abs(mine - theirs) <= LOSS_BOUND * theirs:
        raise RuntimeError(f"{family}: forge's loss {mine}, transformers' {theirs}")
    texts = forge_texts(forge, read_back, prompts, folder)
    if texts is not None:
        expected, closest = greedy_texts(model, prompts)
        if closest < CLOSEST:
            raise RuntimeError(f"{family}: a choice between two tokens, {closest:.1e} apart")
        if texts != expected:
            raise RuntimeError(f"{family}: forge's texts {texts}, transformers' {expected}")
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    return {
        "problem": name,
        "model_type": config["model_type"],
        "architecture": config["architectures"][0],
        "transformers": transformers.__version__,
        "loss": abs(mine - theirs) / theirs,
        "prompts": PROMPTS if texts else 0,
        "tokens": sum(map(len, texts or [])),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forge", default="build/cpu/forge")
    parser.add_argument("families", nargs="*", help="default: all")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.chdir(os.path.join(HERE, ".."))
    known, failures = {}, 0
    if os.path.exists(EXPORTS):
        with open(EXPORTS) as file:
            known = json.load(file)
    for family in arguments.families or families():
        try:
            with tempfile.TemporaryDirectory() as folder:
                known[family] = check(os.path.abspath(arguments.forge), family, folder)
            print("{architecture:24s} loss to {loss:.1e}, {tokens} tokens equal".format(**known[family]), flush=True)
        except RuntimeError as problem:
            failures += 1
            print(f"{family:18s} FAILED {problem}", flush=True)
    with open(EXPORTS, "w") as file:
        json.dump({family: known[family] for family in families() if family in known}, file, indent=2)
        file.write("\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
