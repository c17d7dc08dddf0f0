#!/usr/bin/env python3
"""steps.py CONTENDER MODEL --device D --forge PROGRAM --folder F --output FILE: whole training steps of a model of
tests/benchmark/models.py in bf16 with fp32 masters: forward, backward, clipping, AdamW. CONTENDER: forge or forge_again
(`forge train` as it is by default), forge_fp8 (in FP8), forge_cudnn (attention by cuDNN, and a workspace that holds its backward at once), forge_own_experts (routed experts by forge's tensor cores, where the default takes CUTLASS), forge_cuda_cores (attention by CUDA cores, experts one by one), or pytorch (tests/benchmark/peer.py, compiled where torch.compile can). Writes a
JSON object with the median of the steps after three others, and forge's timeline of its last step beside it (.trace.json). Ends with 77 where there is no PyTorch."""

import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benchmark"))
from compare import WARM_UP, Forge
from models import GPU_MODELS, MODELS


# What a contender sets beside the deck.
SETTINGS = {"forge_cudnn": ["machine.workspace_mib=2560"], "forge_fp8": ["train.precision=fp8"]}
# And in the environment.
VARIABLES = {
    "forge_cuda_cores": {"FORGE_ATTENTION": "cuda_cores", "FORGE_GROUPED": "library"},
    "forge_cudnn": {"FORGE_ATTENTION": "cudnn"},
    "forge_own_experts": {"FORGE_GROUPED": "tensor_cores"},
}
LABELS = {"forge_cudnn": "forge, attention by cuDNN", "forge_own_experts": "forge, experts by its own kernels", "forge_fp8": "forge, FP8", "forge_cuda_cores": "forge, attention by CUDA cores"}


class GpuForge(Forge):
    def __init__(self, contender, *arguments):
        super().__init__(*arguments)
        self.settings, self.variables = SETTINGS.get(contender, []), VARIABLES.get(contender, {})
        version = subprocess.run([self.program, "version"], env=self.environment(), capture_output=True, text=True).stdout
        if contender == "forge_cudnn" and ", cuDNN" not in version:
            print("the build has no cuDNN")
            sys.exit(77)
        if contender == "forge_own_experts" and (", CUTLASS" not in version or not self.model.experts):
            print("the build has no CUTLASS, or the model no experts")
            sys.exit(77)
        self.profile = [f"output.profile={WARM_UP + self.model.steps}"]

    def environment(self):
        return super().environment() | self.variables

    def command(self, deck):
        options = ["machine.peak_tflops=989.4", *self.settings, *self.profile]
        return super().command(deck) + [word for option in options for word in ("--set", option)]


def forge(arguments, model):
    threads = min(16, len(os.sched_getaffinity(0)))
    program = GpuForge(arguments.contender, arguments.forge, arguments.model, "bf16", threads, arguments.folder)
    seconds = program.step_seconds(model.steps)
    for trace in glob.glob(os.path.join(arguments.folder, "run", "profile", "*.json")):
        shutil.copy(trace, arguments.output.removesuffix(".json") + ".trace.json")
    return {"label": LABELS.get(arguments.contender, "forge"), "seconds": seconds, "start_seconds": start_seconds(arguments.folder)}


def start_seconds(folder):
    """The parts of forge's start (docs/running.md), and all of it."""
    with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
        return next(line["start_seconds"] for line in map(json.loads, file) if "start_seconds" in line)


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
    parser.add_argument("contender", choices=["forge", "forge_again", *LABELS, "pytorch"])
    parser.add_argument("model", choices=MODELS | GPU_MODELS)
    for option in ("--device", "--forge", "--folder", "--output"):
        parser.add_argument(option, required=True)
    arguments = parser.parse_args()
    model = (MODELS | GPU_MODELS)[arguments.model]
    os.makedirs(arguments.folder, exist_ok=True)
    result = (pytorch if arguments.contender == "pytorch" else forge)(arguments, model)
    result |= {"model": arguments.model, "contender": arguments.contender, "step_tokens": model.step_tokens}
    result |= {"flops_per_token": model.flops_per_token(), "batch": model.batch, "tokens": model.tokens}
    with open(arguments.output, "w") as file:
        json.dump(result, file)
    print(json.dumps(result))
    speed = result["step_tokens"] / result["seconds"]
    start = f"; {sum(result['start_seconds'].values()):.1f} s to the first step" if "start_seconds" in result else ""
    print(f"summary: {1e3 * result['seconds']:.1f} ms a step, {speed:.0f} tokens/s, {speed * result['flops_per_token'] / 989.4e10:.1f} % of 989.4 TFLOP/s{start}")


if __name__ == "__main__":
    main()
