#!/usr/bin/env python3
"""A run of forge that PyTorch goes on with, and forge again behind it.

    python3 verify/continue_in_torch.py --forge build/cpu/forge

For adamw, sgd, muon and adafactor: forge trains a small model whose every step sees the same samples. `forge export
--optimizer` of step 2 goes into torch.optim's optimizer by its own names, which makes step 3 from the gradients that
forge gives for it; its parameters must be those of forge's step 3. Then PyTorch's parameters and state go back
(model.hf, checkpoint.optimizer_from), and forge's next step must be its own step 4. Largest difference, as a share of
the largest change of that step: at most 1e-3, which fp32 leaves of changes of 1e-3. Exit code 1 if any is more.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file

from optimizers import bf16_is, is_matrix

RATE, DECAY = 1e-3, 0.1
BOUND = 1e-3
DECK = """
model: {{family: llama, layers: 2, width: 32, heads: 4, kv_heads: 2, head_dim: 8, ffn: 48, vocabulary: 96, initial_std: 0.2}}
train: {{steps: 4, global_batch_sequences: 4, microbatch_sequences: 2, sequence_tokens: 16, precision: fp32, seed: 3}}
optimizer: {{name: {name}, learning_rate: {rate}, weight_decay: {decay}, schedule: constant, warmup_steps: 0, clip_norm: 0}}
data: {{files: [{tokens}], dtype: uint16, order: sequential}}
checkpoint: {{directory: {saved}, every_steps: 1}}
output: {{directory: {run}}}
machine: {{workspace_mib: 1, peak_tflops: 1}}
"""


def torch_optimizers(name, parameters):
    """Of the parameters by name; decay follows the rank, as forge's does."""

    def groups(chosen):
        return [
            {"params": [p for p in chosen if p.dim() >= 2], "weight_decay": DECAY},
            {"params": [p for p in chosen if p.dim() < 2], "weight_decay": 0.0},
        ]

    values = list(parameters.values())
    if name == "adamw":
        return [torch.optim.AdamW(groups(values), lr=RATE, betas=(0.9, 0.95), eps=1e-8)]
    if name == "adafactor":
        return [torch.optim.Adafactor(groups(values), lr=RATE)]
    if name == "sgd":  # PyTorch's decay is not decoupled: see step()
        return [torch.optim.SGD(values, lr=RATE, momentum=0.9)]
    matrices = [p for n, p in parameters.items() if is_matrix(n, p)]
    others = [p for n, p in parameters.items() if not is_matrix(n, p)]
    muon = torch.optim.Muon(matrices, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(groups(others), lr=RATE, betas=(0.9, 0.95), eps=1e-8)]


def put_state(optimizers, parameters, tensors):
    names = {id(p): name for name, p in parameters.items()}
    used = set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for p in group["params"]:
                prefix = f"state.{names[id(p)]}."
                state = {key[len(prefix) :]: value.clone() for key, value in tensors.items() if key.startswith(prefix)}
                used.update(prefix + key for key in state)
                optimizer.state[p] = state
    if used != set(tensors):
        raise RuntimeError(f"nobody takes {sorted(set(tensors) - used)[:4]}")


def state_of(optimizers, parameters):
    names = {id(p): name for name, p in parameters.items()}
    return {
        f"state.{names[id(p)]}.{key}": value.contiguous().float()
        for optimizer in optimizers
        for p, state in optimizer.state.items()
        for key, value in state.items()
    }


def step(name, optimizers, parameters):
    if name == "sgd":
        for p in parameters.values():
            if p.dim() >= 2:
                p.data.mul_(1 - RATE * DECAY)
    with bf16_is(torch.float32):
        for optimizer in optimizers:
            optimizer.step()


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(" ".join(arguments) + "\n" + done.stdout + done.stderr)


def difference(result, expected, before):
    change = max((expected[n] - before[n]).abs().max().item() for n in expected)
    return max((result[n] - expected[n]).abs().max().item() for n in expected) / change


def check(forge, name, folder):
    deck = f"{folder}/deck.yaml"
    tokens = numpy.random.default_rng(1).integers(0, 96, 4 * 16 + 1).astype("<u2")
    tokens.tofile(f"{folder}/tokens.bin")
    with open(deck, "w") as file:
        file.write(
            DECK.format(
                name=name, rate=RATE, decay=DECAY, tokens=f"{folder}/tokens.bin", saved=f"{folder}/saved", run=f"{folder}/run"
            )
        )
    run(forge, deck)
    models = {}
    for at in (2, 3, 4):
        target = f"{folder}/{at}"
        run(forge, "export", f"{folder}/saved/step_0000000{at}", "--output", target, "--optimizer")
        models[at] = load_file(f"{target}/model.safetensors")
    run(
        forge, "gradients", deck, "--set", f"checkpoint.model_from={folder}/saved/step_00000002", "--output", f"{folder}/g"
    )
    gradients = load_file(f"{folder}/g")
    parameters = {n: torch.nn.Parameter(value.clone()) for n, value in models[2].items()}
    optimizers = torch_optimizers(name, parameters)
    put_state(optimizers, parameters, load_file(f"{folder}/2/optimizer.safetensors"))
    for n, p in parameters.items():
        p.grad = gradients[n]
    step(name, optimizers, parameters)
    third = {n: p.detach() for n, p in parameters.items()}
    there = difference(third, models[3], models[2])

    shutil.copytree(f"{folder}/3", f"{folder}/torch")
    save_file(third, f"{folder}/torch/model.safetensors", {"format": "pt"})
    save_file(state_of(optimizers, parameters), f"{folder}/torch/optimizer.safetensors")
    settings = [
        f"model.hf={folder}/torch",
        "model.load_weights=true",
        f"checkpoint.optimizer_from={folder}/torch",
        f"checkpoint.directory={folder}/back",
        "train.steps=1",
    ]
    with open(deck) as file:
        text = [line for line in file if not line.startswith("model:")]
    with open(f"{folder}/back.yaml", "w") as file:
        file.write("".join(text))
    run(forge, f"{folder}/back.yaml", *[word for s in settings for word in ("--set", s)])
    run(forge, "export", f"{folder}/back", "--output", f"{folder}/fourth")
    back = difference(load_file(f"{folder}/fourth/model.safetensors"), models[4], models[3])
    good = there <= BOUND and back <= BOUND
    print(f"{name:<10} PyTorch's step {there:.1e}   forge's behind it {back:.1e}   {'ok' if good else 'FAILED'}")
    return good


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--forge", required=True)
    forge = os.path.abspath(arguments.parse_args().forge)
    good = True
    for name in ("adamw", "sgd", "muon", "adafactor"):
        with tempfile.TemporaryDirectory() as folder:
            good = check(forge, name, folder) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
