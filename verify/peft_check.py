#!/usr/bin/env python3
"""Adapters of random models through `forge export`: PEFT reads them beside the base as `--merge` adds them to it.

    python3 verify/peft_check.py --forge build/cpu/forge --seed 1 --cases 8 [--families glm4_moe] [--targets q_proj,up_proj]

A case (random_case.py) is trained with adapters from a Hugging Face directory in fp64. PeftModel.from_pretrained on that
directory must give the logits of the exported merged model: both are written in fp32, so that they differ by 1e-6 of the
largest, or by some times what another rounding of the weights changes. The base's must differ by more. Exit code 1 if any case fails.
"""

import argparse
import os
import sys
import warnings

import torch
from peft import PeftModel
from transformers.utils import logging

import export_check
import random_case
import reference

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gpt2", "smollm3", "phi3", "mixtral", "qwen3_moe", "qwen2_moe"]
FAMILIES += ["glm4_moe", "deepseek_v2", "deepseek_v3", "olmoe", "olmo2", "olmo3", "minimax_m2"]
FAMILIES += ["qwen3_5_text", "qwen3_next"]
SETTINGS = ["adapter.name=lora", "adapter.rank=3", "adapter.alpha=7", "optimizer.learning_rate=0.05"]
SETTINGS += ["model.router_bias_rate=0"]
BOUND = 1e-5
AMPLIFIED = 10  # times what rounding changes: some hybrids amplify it beyond the bound


def logits_of(model, inputs):
    more = {"output_router_logits": False} if hasattr(model.config, "output_router_logits") else {}
    with torch.no_grad():
        return model(input_ids=inputs, use_cache=False, **more).logits


def rounded_again(model):
    """Its weights, which fp32 rounded, moved by as much once more."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype) - 0.5
        parameter.data *= 1 + torch.finfo(torch.float32).eps * noise
    return model


def check(arguments, folder, inputs):
    """Relative distances of PEFT's and of the base's logits from the merged model's, and the change by rounding its weights to fp32."""
    saved, base = os.path.join(folder, "saved"), os.path.join(folder, "model")
    settings = [*SETTINGS, f"checkpoint.directory={saved}", f"adapter.targets=[{arguments.targets}]"]
    settings += [f"adapter.rank_stabilised={str(arguments.stabilised).lower()}"]
    random_case.run_forge(arguments, "train", folder, [word for s in settings for word in ("--set", s)])
    adapter, merged = os.path.join(folder, "adapter"), os.path.join(folder, "merged")
    random_case.run([arguments.forge, "export", saved, "--output", adapter])
    random_case.run([arguments.forge, "export", saved, "--output", merged, "--merge"])
    expected = logits_of(export_check.load(merged, torch.float64), inputs)
    rounded = logits_of(rounded_again(export_check.load(merged, torch.float64)), inputs)
    model = export_check.load(base, torch.float64, merged)
    before = logits_of(model, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine = logits_of(PeftModel.from_pretrained(model, adapter, autocast_adapter_dtype=False).double(), inputs)
    largest = expected.abs().max()
    return [((logits - expected).abs().max() / largest).item() for logits in (mine, before, rounded)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    random_case.add_arguments(parser)
    parser.set_defaults(families=FAMILIES)
    parser.add_argument("--stabilised", action="store_true", help="adapter.rank_stabilised")
    parser.add_argument("--targets", default="", help="adapter.targets, by commas; none: all")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    arguments.forge = os.path.abspath(arguments.forge)
    failures = 0
    print(f"{'seed':>5s} {'PEFT':>8s} {'base':>8s}  case")
    for seed, folder in random_case.case_folders(arguments):
        data, options, *_, text = random_case.make_case(folder, seed, arguments.n, arguments.families, multi_token=())
        inputs, _ = reference.batch_of_step(data, 1, options["sequence_tokens"], 2)
        try:
            mine, before, rounded = check(arguments, folder, inputs)
        except (RuntimeError, OSError, ValueError) as problem:
            failures += 1
            print(f"{seed:5d} FAILED {text}\n{problem}", flush=True)
            continue
        good = mine <= max(BOUND, AMPLIFIED * rounded) and before > BOUND
        failures += not good
        print(f"{seed:5d} {mine:8.1e} {before:8.1e}  {text}" + ("" if good else "  FAILED"), flush=True)
    print(f"{arguments.cases - failures} of {arguments.cases} cases agree")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
