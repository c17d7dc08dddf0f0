#!/usr/bin/env python3
"""steps.py CONTENDER MODEL --device D --forge PROGRAM --folder F --output FILE: whole training steps of a model of
tests/benchmark/models.py in bf16 with fp32 masters: forward, backward, clipping, AdamW. CONTENDER: forge or forge_again
(`forge train`), forge_tuned (with the algorithms of `forge tune`), or pytorch (tests/benchmark/peer.py, compiled where torch.compile can). Writes a JSON object with the median
of the steps after three others. Ends with 77 where there is no PyTorch."""

import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benchmark"))
from compare import WARM_UP, Forge
from models import GPU_MODELS


class GpuForge(Forge):
    def command(self, deck):
        return super().command(deck) + ["--set", "machine.peak_tflops=989.4"]


class TunedForge(GpuForge):
    def command(self, deck):
        table = os.path.join(self.folder, "products.txt")
        print(subprocess.run([self.program, "tune", deck, "--output", table], env=self.environment(), check=True, capture_output=True, text=True).stdout)
        return super().command(deck) + ["--set", f"machine.product_algorithms={table}"]


def forge(arguments, model):
    threads = min(16, len(os.sched_getaffinity(0)))
    tuned = arguments.contender == "forge_tuned"
    program = (TunedForge if tuned else GpuForge)(arguments.forge, arguments.model, "bf16", threads, arguments.folder)
    return {"label": "forge, tuned" if tuned else "forge", "seconds": program.step_seconds(model.steps)}


def pytorch(arguments, model):
    try:
        import torch
    except ImportError as error:
        print(f"no PyTorch: {error}")
        sys.exit(77)
    from peer import Trainer

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        sys.exit(77)
    grouped = bool(model.experts) and hasattr(torch, "_grouped_mm")
    label = f"PyTorch {torch.__version__}" + (", grouped products" if grouped else "")
    for compiled in (True, False):
        try:
            trainer = Trainer(model, "bf16", compiled, arguments.device, grouped)
            for _ in range(WARM_UP):
                trainer.step()
            break
        except Exception as error:  # whatever torch.compile refuses
            if not compiled:
                raise
            print(f"not compiled: {type(error).__name__}: {error}", flush=True)
            trainer = None
            if arguments.device == "cuda":
                torch.cuda.empty_cache()
    seconds = [trainer.step()[0] for _ in range(model.steps)]
    result = {"label": label + (", compiled" if compiled else ", eager"), "seconds": statistics.median(seconds)}
    if arguments.device == "cuda":
        result["bytes"] = torch.cuda.max_memory_allocated()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contender", choices=["forge", "forge_again", "forge_tuned", "pytorch"])
    parser.add_argument("model", choices=GPU_MODELS)
    for option in ("--device", "--forge", "--folder", "--output"):
        parser.add_argument(option, required=True)
    arguments = parser.parse_args()
    model = GPU_MODELS[arguments.model]
    os.makedirs(arguments.folder, exist_ok=True)
    result = (pytorch if arguments.contender == "pytorch" else forge)(arguments, model)
    result |= {"model": arguments.model, "contender": arguments.contender, "step_tokens": model.step_tokens}
    result |= {"flops_per_token": model.flops_per_token(), "batch": model.batch, "tokens": model.tokens}
    with open(arguments.output, "w") as file:
        json.dump(result, file)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
