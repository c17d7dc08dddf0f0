#!/usr/bin/env python3
"""Random models through a checkpoint and `forge export`: transformers loads what it writes, with equal logits.

    python3 verify/export_check.py --forge build/cpu/forge --seed 1 --cases 8 [-n 4 --set mesh.tp=2 --set mesh.pp=2]

A case (random_case.py) is trained from a Hugging Face directory twice, each time with a checkpoint that is exported:
with the learning rate 0, where the exported model must give the very logits of the one that went in, in fp32 and in bf16;
and with its own rate in fp32, where the loss that forge reports for the step behind the checkpoint must be that of the
exported model. Files are cut at 1 MiB. The bound of the latter: four times the class's own distance between fp32 and
fp64, at least 16 eps. Exit code 1 if any case fails.
"""

import argparse
import json
import os
import shutil
import sys

import torch
from transformers import AutoConfig
from transformers.utils import logging

import random_case
import reference

STEPS = 10  # of random_case.py


def load(directory, dtype, activation_of=None):
    """What a user writes; no tensor may be missing, and none left over but modules of multi-token prediction."""
    # The class's own loop over experts: torch's grouped product wants rows of multiples of 16 bytes.
    config = AutoConfig.from_pretrained(directory)
    # GPT-2's tanh form has two names in transformers, which differ by rounding.
    if activation_of and config.model_type == "gpt2":
        config.activation_function = AutoConfig.from_pretrained(activation_of).activation_function
    experts = {"experts_implementation": "eager"} if hasattr(config.get_text_config(), "num_experts_per_tok") else {}
    model, report = reference.auto_class(config).from_pretrained(
        directory, config=config, dtype=dtype, attn_implementation="eager", output_loading_info=True, **experts
    )
    wrong = {key: report[key] for key in ("missing_keys", "mismatched_keys") if report[key]}
    further = tuple(f"model.layers.{model.config.get_text_config().num_hidden_layers + depth}." for depth in range(2))
    extra = [key for key in report["unexpected_keys"] if not key.startswith(further)]
    if wrong or extra:
        raise RuntimeError(f"{directory}: {wrong or extra}")
    return model.eval()


def logits(directory, dtype, inputs, activation_of=None):
    model = load(directory, dtype, activation_of)
    # The class cannot balance the load of a model in which every layer is dense.
    more = {"output_router_logits": False} if hasattr(model.config, "output_router_logits") else {}
    with torch.no_grad():
        return model(input_ids=inputs, use_cache=False, **more).logits


def export(arguments, folder, step, kind):
    output = os.path.join(folder, f"{kind}_{step}")
    checkpoint = os.path.join(folder, "saved", f"step_{step:08d}")
    command = ["export", checkpoint, "--output", output, "--type", kind, "--file-mib", "1"]
    random_case.run([arguments.forge, *command])
    return output


def train(arguments, folder, settings):
    """A run with checkpoints in folder/saved; returns its metrics."""
    for name in ("saved", "run"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    more = ["--set", f"checkpoint.directory={folder}/saved"]
    for setting in settings:
        more += ["--set", setting]
    random_case.run_forge(arguments, "train", folder, more)
    with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
        return [line for line in map(json.loads, file) if "loss" in line]


def unchanged(arguments, folder, model, inputs):
    """"" or what differs between the model that went in and the exported one."""
    settings = ["optimizer.learning_rate=0"]
    if model.get("router_bias_rate"):
        settings += ["model.router_bias_rate=0"]
    train(arguments, folder, settings)
    for kind, dtype in ("fp32", torch.float32), ("bf16", torch.bfloat16):
        exported = export(arguments, folder, STEPS, kind)
        if not torch.equal(
            logits(exported, dtype, inputs), logits(os.path.join(folder, "model"), dtype, inputs, exported)
        ):
            return f"{kind} logits differ"
    return ""


def trained(arguments, folder, inputs):
    """Relative distance of forge's loss from the exported model's in fp64, and its bound."""
    mine = train(arguments, folder, ["train.precision=fp32", f"checkpoint.every_steps={STEPS - 1}"])[-1]["loss"]
    data, options, end_token = inputs
    batch = reference.batch_of_step(data, STEPS, options["sequence_tokens"], options["global_batch_sequences"])
    directory, losses = export(arguments, folder, STEPS - 1, "fp32"), {}
    for precision in "fp64", "fp32":
        model = reference.load_model(directory, precision)
        with torch.no_grad(), reference.arithmetic(precision):
            loss, _, count, _ = reference.loss_sums(model, *batch, end_token)
        losses[precision] = loss.item() / count
    exact = losses["fp64"]
    bound = max(4 * abs(losses["fp32"] - exact) / exact, 16 * torch.finfo(torch.float32).eps)
    return abs(mine - exact) / exact, bound


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    random_case.add_arguments(parser)
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    arguments.forge = os.path.abspath(arguments.forge)
    failures = 0
    print(f"{'seed':>5s} {'unchanged':>9s} {'loss':>8s} {'bound':>8s}  case")
    for seed, folder in random_case.case_folders(arguments):
        data, options, _, end_token, _, model, text = random_case.make_case(
            folder, seed, arguments.n, arguments.families, multi_token=("deepseek_v3",)
        )
        try:
            inputs, _ = reference.batch_of_step(data, 1, options["sequence_tokens"], 2)
            differs = unchanged(arguments, folder, model, inputs)
            error, bound = trained(arguments, folder, (data, options, end_token))
        except (RuntimeError, OSError) as problem:
            failures += 1
            print(f"{seed:5d} FAILED {text}\n{problem}", flush=True)
            continue
        good = not differs and error <= bound
        failures += not good
        print(
            f"{seed:5d} {differs or 'equal':>9s} {error:8.1e} {bound:8.1e}  {text}" + ("" if good else "  FAILED"),
            flush=True,
        )
    print(f"{arguments.cases - failures} of {arguments.cases} cases agree")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
