#!/usr/bin/env python3
"""compare_peers.py FORGE kempnerforge|torchtitan [PROGRAM]: tokens per second and GPU that the authors of KempnerForge (H200, four a node) and of
torchtitan (H100 at 500 W with 2.4 TB/s, eight a node; A100) have published, in bf16, against what `forge plan --as PROGRAM` says of
the same layouts. Each row: model, nodes, GPUs, shards, tp, sequences of a microbatch, microbatches, recompute, measured."""
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = {  # width, layers, heads, kv heads, ffn, vocabulary, sequence
    "7B": (4096, 32, 32, 8, 14336, 128256, 4096), "13B": (5120, 40, 40, 8, 17920, 128256, 4096),
    "70B": (8192, 80, 64, 8, 28672, 128256, 4096), "llama3 8B": (4096, 32, 32, 8, 14336, 128256, 8192),
    "llama3 70B": (8192, 80, 64, 8, 28672, 128256, 8192), "llama3 405B": (16384, 126, 128, 8, 53248, 128256, 8192),
    "llama2 13B": (5120, 40, 40, 40, 13824, 32000, 4096), "llama2 70B": (8192, 80, 64, 8, 28672, 32000, 4096)}
RUNS = {
    "kempnerforge": ("h200_4", [  # docs/benchmarks of the project
        ("7B", 1, 1, 1, 1, 2, 4, "full", 10471), ("7B", 1, 2, 2, 1, 2, 4, "full", 9364), ("7B", 1, 2, 1, 2, 4, 2, "full", 6582),
        ("7B", 1, 4, 4, 1, 4, 2, "full", 9746), ("7B", 1, 4, 1, 4, 4, 2, "full", 6284), ("7B", 1, 4, 2, 2, 4, 2, "full", 6495),
        ("7B", 2, 8, 2, 4, 4, 2, "full", 5537), ("13B", 2, 8, 8, 1, 4, 4, "full", 4426), ("13B", 2, 8, 2, 4, 4, 4, "full", 3418),
        ("7B", 4, 16, 4, 4, 4, 2, "full", 5187), ("13B", 4, 16, 4, 4, 4, 4, "full", 3363), ("7B", 8, 32, 8, 4, 4, 2, "full", 4872),
        ("13B", 8, 32, 8, 4, 4, 4, "full", 3260), ("70B", 8, 32, 8, 4, 2, 4, "full", 552)]),
    "torchtitan": ("h100_8", [  # docs/performance and benchmarks/ of the project, December 2024 and June 2025, compiled
        ("llama3 8B", 1, 8, 8, 1, 2, 1, "selective", 6667), ("llama3 8B", 16, 128, 128, 1, 2, 1, "selective", 6514),
        ("llama3 8B", 8, 64, 8, 8, 12, 1, "selective", 4378), ("llama3 70B", 32, 256, 32, 8, 16, 1, "full", 597.3)]),
    "torchtitan_a100": ("a100_8", [  # docs/performance of 2024, not compiled
        ("llama3 8B", 8, 64, 64, 1, 1, 1, "selective", 2973), ("llama3 70B", 8, 64, 64, 1, 1, 1, "full", 331),
        ("llama2 13B", 8, 64, 64, 1, 2, 1, "none", 2162), ("llama2 13B", 8, 64, 64, 1, 2, 1, "selective", 1904),
        ("llama2 70B", 8, 64, 64, 1, 1, 1, "selective", 355), ("llama2 70B", 8, 64, 64, 1, 2, 1, "full", 353)])}
# Mixtures, as decks with their measured tokens per second and GPU; no constant is fitted to them.
MIXTURES = {"kempnerforge": [("inputs/moe_ep_32gpu.yaml", 844)]}
DECK = """
model: {family: llama, layers: 32, width: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocabulary: 128256, rope_theta: 5e5}
mesh: {dp_shard: 1}
train: {steps: 1, global_batch_sequences: 8, sequence_tokens: 4096, zero_stage: 3}
optimizer: {learning_rate: 1e-4}
data: {files: [none.bin], dtype: uint32}
output: {directory: none}
"""
COLUMNS = ["model.width", "model.layers", "model.heads", "model.kv_heads", "model.ffn", "model.vocabulary", "train.sequence_tokens", "mesh.dp_shard",
           "mesh.tp", "train.microbatch_sequences", "train.global_batch_sequences", "train.recompute", "train.zero_stage",
           "train.head_chunk_rows"]


def read_runs(source):
    names = ("model", "nodes", "gpus", "shards", "tp", "mbs", "microbatches", "recompute", "measured")
    return [dict(zip(names, row)) for row in RUNS[source][1]]


def layout_of(run):
    sequence = MODELS[run["model"]][-1]
    return [*MODELS[run["model"]], run["shards"], run["tp"], run["mbs"], run["mbs"] * run["microbatches"] * run["shards"], run["recompute"],
            3 if run["shards"] > 1 else 0, run["mbs"] * sequence]


def predict(forge, runs, program, machine):
    with tempfile.TemporaryDirectory() as work:
        deck, asked, told = (os.path.join(work, name) for name in ("deck.yaml", "asked.csv", "told.csv"))
        with open(deck, "w") as file:
            file.write(DECK)
        with open(asked, "w", newline="") as file:
            csv.writer(file).writerows([COLUMNS] + [layout_of(run) for run in runs])
        subprocess.run([forge, "plan", deck, "--machine", machine, "--as", program, "--candidates", asked, "--output", told], check=True,
                       stdout=subprocess.DEVNULL)
        for run, row in zip(runs, csv.DictReader(open(told))):
            run["predicted"] = float(row["tokens_per_second_per_rank"]) if row["legal"] == "true" else None


def compare_mixture(forge, deck, measured, program, machine):
    """What of the measured step the planner accounts for: what isn't there is of no rate of the machine."""
    with tempfile.TemporaryDirectory() as work:
        answer = os.path.join(work, "answer.json")
        subprocess.run([forge, "plan", deck, "--machine", machine, "--as", program, "--json", answer], check=True, stdout=subprocess.DEVNULL)
        told = json.load(open(answer))
    predicted = told["tokens_per_second_per_rank"]
    step = told["step_seconds"] * predicted / measured
    parts = {name: seconds for name, seconds in told["seconds"].items() if seconds > 0.01 * told["step_seconds"]}
    print(f"{deck}: measured {measured}, predicted {predicted:.0f}; of the measured step of {step:.2f} s the planner has "
          + ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
          + "; needs of links " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in told["wire_seconds"].items()))


def main():
    forge, source = sys.argv[1], sys.argv[2]
    program = sys.argv[3] if len(sys.argv) > 3 else source.split("_")[0]
    runs = read_runs(source)
    predict(forge, runs, program, RUNS[source][0])
    print("model        GPUs  shards  tp  microbatch  measured  predicted  error")
    for run in runs:
        print(f"{run['model']:12} {run['gpus']:4}  {run['shards']:6} {run['tp']:3}  {run['mbs']:3} x {run['microbatches']}     {run['measured']:8}   "
              f"{run['predicted']:8.0f} {run['predicted'] / run['measured'] - 1:+7.1%}")
    errors = [abs(run["predicted"] / run["measured"] - 1) for run in runs]
    print(f"{len(runs)} runs: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    for deck, measured in MIXTURES.get(source, []):
        compare_mixture(forge, deck, measured, program, RUNS[source][0])


if __name__ == "__main__":
    main()
