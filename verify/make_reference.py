#!/usr/bin/env python3
"""Makes the verification problems: random weights, tokens, the deck, and the reference, each in its folder.

    python3 verify/make_reference.py [problem ...]

Needs verify/requirements.txt. Everything is seeded; on one version of PyTorch the files come out the same.
"""

import argparse
import os
import textwrap
import zlib

import numpy
import torch
import transformers

import adapters
import files
import reference
from problems import PROBLEMS

HERE = os.path.dirname(os.path.abspath(__file__))

README = """# {name}

{shows}

- `model/`: config.json and random weights ({storage}, {parameters} parameters), made by `verify/make_reference.py`.
- {tokens}: random tokens in which three of four follow from the one before.
- `input.yaml`: the deck, run from the repository's root. `forge verify verify/{name}/input.yaml` compares.
- `reference.yaml`: loss, total_loss, grad_norm and learning_rate of {steps} steps, and each gradient's largest entry in
  step 1, in {precisions}. `gradients.safetensors`: step 1's gradients in fp64, before clipping.

The references were computed by `python3 verify/make_reference.py {name}` with the class
{architecture} of transformers {transformers} on PyTorch {torch}, in one process, the global batch at once. In fp64 the
class's own casts to fp32 were replaced by casts to fp64, and the type of every operation's result was checked
(`verify/reference.py`).
{checked}
"""
CHECKED = """`verify/check_reference.py` compares the loss with an independent implementation in 80-bit arithmetic, and the gradients
with its difference quotients."""
FP8 = """Its linear layers were replaced by products whose operands `verify/fp8.py` rounds, in numpy, with tables of all codes made
from the specification's definition; all else is in fp64. What is rounded has no difference quotients."""
ADAPTER = """`adapter/`: random A and B as the package peft writes them, whose own layers computed the reference."""


def deck(name, problem):
    folder = f"verify/{name}"
    data = {"files": [f"{folder}/{file}" for file in problem.token_files]}
    if not any(file.endswith(".npy") for file in problem.token_files):
        data["dtype"] = problem.token_type
    if problem.end_token is not None:
        data["document_end_token"] = problem.end_token
    return {
        "model": {"hf": f"{folder}/model", "load_weights": True} | problem.model,
        "train": {"precision": "fp64"} | problem.train,
        **({"adapter": {"name": "lora", "load": f"{folder}/adapter"} | problem.adapter} if problem.adapter else {}),
        "optimizer": problem.optimizer,
        "data": data,
        "output": {"directory": f"runs/verify/{name}"},
    }


def make(name, problem, base):
    folder = os.path.join(base, name)
    model = os.path.join(folder, "model")
    seed = zlib.crc32(name.encode())
    depth = problem.model.get("mtp_depth", 0)
    files.write_model(model, problem.config, seed, problem.storage, problem.shards, problem.hub_names, depth)
    adapter = os.path.join(folder, "adapter") if problem.adapter else None
    if adapter:
        adapters.write(reference.load_model(model, "fp32"), adapter, problem.adapter, seed)
    tokens = []
    for i, (file, count) in enumerate(problem.token_files.items()):
        tokens.append(files.random_tokens(count, problem.config["vocab_size"], seed + 1 + i, problem.end_token))
        files.write_tokens(os.path.join(folder, file), tokens[-1], problem.token_type)
    with open(os.path.join(folder, "input.yaml"), "w") as file:
        file.write(files.deck_text(deck(name, problem)))
    records = {
        precision: reference.train(
            model, tokens, problem.train, problem.optimizer, problem.end_token, precision, problem.model, adapter
        )
        for precision in (("fp64",) if problem.in_fp8 else ("fp64", "fp32"))
    }
    with open(os.path.join(folder, "reference.yaml"), "w") as file:
        file.write(files.reference_text(records))
    files.write_gradients(os.path.join(folder, "gradients.safetensors"), records["fp64"][1])
    trained = records["fp64"][1]
    parameters = sum(t.numel() for t in (reference.read_weights(model) if adapter else trained).values())
    with open(os.path.join(folder, "README.md"), "w") as file:
        file.write(
            README.format(
                name=name,
                shows=textwrap.fill(problem.shows, 118),
                precisions="fp64" if problem.in_fp8 else "fp64 and fp32",
                checked=FP8 if problem.in_fp8 else ADAPTER if problem.adapter else CHECKED,
                storage=problem.storage,
                parameters=parameters,
                tokens=", ".join(f"`{f}`" for f in problem.token_files),
                steps=problem.train["steps"],
                architecture=problem.config["architectures"][0],
                transformers=transformers.__version__,
                torch=torch.__version__.split("+")[0],
            )
        )
    return records, parameters


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=[], help=f"default: all of {', '.join(PROBLEMS)}")
    parser.add_argument("--folder", default=HERE, help="where the problems' folders are (default: verify)")
    arguments = parser.parse_args()
    chosen = arguments.problems or list(PROBLEMS)
    unknown = [name for name in chosen if name not in PROBLEMS]
    if unknown:
        parser.error(f"no problem {', '.join(unknown)}; there are {', '.join(PROBLEMS)}")
    print(
        f"{'problem':14s} {'parameters':>10s} {'first loss':>11s} {'last loss':>11s} {'first norm':>11s} "
        f"{'fp32 - fp64':>12s}"
    )
    for name in chosen:
        records, parameters = make(name, PROBLEMS[name], arguments.folder)
        double, single = records["fp64"][0], records.get("fp32", records["fp64"])[0]
        distance = numpy.max(numpy.abs(numpy.subtract(double["loss"], single["loss"])))
        print(
            f"{name:14s} {parameters:10d} {double['loss'][0]:11.6f} {double['loss'][-1]:11.6f} "
            f"{double['grad_norm'][0]:11.6f} {distance:12.2e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
