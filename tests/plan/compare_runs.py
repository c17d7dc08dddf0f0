#!/usr/bin/env python3
"""compare_runs.py FORGE RUNS.csv [PROGRAM [MACHINE]]: the Ultra-Scale Playbook's published runs against what `forge plan --as PROGRAM` says
of their layouts, by pair of model and nodes. Columns: model, nodes, dp, tp, pp, mbs, grad_acc, zero, tok_s_gpu, status. Left out are
runs that failed, or whose batch isn't 256 sequences. Errors are of the runs that reach half of the best of their pair; the others
carry stalls that no layout explains. `first` and `three`: what the layout that is predicted to be fastest, or the best of the first
three, reached of the pair's best run."""
import collections
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile

DECKS = {"1B": "playbook_1b_8gpu", "3B": "playbook_4b_8gpu", "8B": "playbook_9b_64gpu", "80B": "playbook_80b_256gpu"}
COLUMNS = ["mesh.pp", "mesh.dp_replicate", "mesh.dp_shard", "mesh.tp", "train.microbatch_sequences", "train.zero_stage",
           "train.recompute", "train.accumulate", "schedule.split", "train.head_chunk_rows"]


def read_runs(path):
    runs = []
    for row in csv.DictReader(open(path)):
        if row["status"] == "ok" and int(row["mbs"]) * int(row["grad_acc"]) * int(row["dp"]) == 256:
            runs.append({key: int(row[key]) for key in ("nodes", "dp", "tp", "pp", "mbs", "zero")}
                        | {"model": row["model"], "measured": float(row["tok_s_gpu"])})
    return runs


def split_of(model, stages):
    """nanotron's stages as forge's schedule.split: a rank gets layers until the products so far, counted by parameters, are
    its share of the model's (1B's tie: its two and four stages take the time of 10 and 5 layers, not of 11 and 6). Where its head would not be in the last stage, its loss is in another one; forge has no such stages."""
    if stages == 1:
        return "even"
    text = open(f"inputs/{DECKS[model]}.yaml").read()
    layers, width, ffn, vocabulary = (int(re.search(rf"(?m)^  {key}: (\d+)", text)[1]) for key in ("layers", "width", "ffn", "vocabulary"))
    layer, counts = 4 * width**2 + 3 * width * ffn, [0] * stages
    share, rank = (layers * layer + vocabulary * width) / stages, 0
    for number in range(1, layers + 1):
        counts[rank] += 1
        rank += number * layer >= share * (rank + 1)
    if rank == stages - 2:  # the head alone, and its loss on the last rank: forge has both there
        counts[-1], rank = 0, stages - 1
    if rank != stages - 1:
        return "balanced"
    return "|".join(f"{'E' if r == 0 else ''}{f't*{n}' if n else ''}{'L' if r == rank else ''}" for r, n in enumerate(counts))


def layout_of(run):
    shards = run["zero"] == 1 and run["dp"] > 1
    return [run["pp"], 1 if shards else run["dp"], run["dp"] if shards else 1, run["tp"], run["mbs"], int(shards), "none",
            "unsharded", split_of(run["model"], run["pp"]), run["mbs"] * 4096]


def predict(forge, runs, program, machine):
    with tempfile.TemporaryDirectory() as work:
        asked, told = os.path.join(work, "asked.csv"), os.path.join(work, "told.csv")
        for model, deck in DECKS.items():
            of_model = [run for run in runs if run["model"] == model]
            with open(asked, "w", newline="") as file:
                csv.writer(file).writerows([COLUMNS] + [layout_of(run) for run in of_model])
            subprocess.run([forge, "plan", f"inputs/{deck}.yaml", "--machine", machine, "--as", program, "--candidates", asked,
                            "--output", told], check=True, stdout=subprocess.DEVNULL)
            for run, row in zip(of_model, csv.DictReader(open(told))):
                run["predicted"] = float(row["tokens_per_second_per_rank"]) if row["legal"] == "true" else None
                run["fits"] = row["fits"] == "true"


def errors_of(runs):
    errors = sorted(abs(run["predicted"] / run["measured"] - 1) for run in runs)
    return f"{statistics.median(errors):6.1%} {errors[int(0.9 * (len(errors) - 1))]:6.1%}" if errors else "     -      -"


def reached(of_pair):
    """What the first choice of those that fit, and the best of three, reach of the best run of a pair."""
    best = max(run["measured"] for run in of_pair)
    chosen = sorted((run for run in of_pair if run["predicted"] and run["fits"]), key=lambda run: -run["predicted"])
    return [max((run["measured"] for run in chosen[:n]), default=0) / best for n in (1, 3)]


def main():
    forge, path = sys.argv[1], sys.argv[2]
    runs = read_runs(path)
    predict(forge, runs, sys.argv[3] if len(sys.argv) > 3 else "nanotron", sys.argv[4] if len(sys.argv) > 4 else "h100_8_efa")
    pairs = collections.defaultdict(list)
    for run in runs:
        pairs[run["model"], run["nodes"]].append(run)
    fast, good = [], {1: 0, 3: 0}
    print("model nodes  runs  not legal  fast  median    90 %  first  three")
    for (model, nodes), of_pair in sorted(pairs.items()):
        best = max(run["measured"] for run in of_pair)
        known = [run for run in of_pair if run["predicted"]]
        of_fast = [run for run in known if run["measured"] >= best / 2]
        fast += of_fast
        shares = reached(of_pair)
        for n, share in zip((1, 3), shares):
            good[n] += share >= 0.95
        print(f"{model:5} {nodes:5} {len(of_pair):5} {len(of_pair) - len(known):10} {len(of_fast):5}  {errors_of(of_fast)}  {shares[0]:5.2f}  {shares[1]:5.2f}")
    print(f"all: {len(fast)} fast runs, median and 90th percentile of the error {errors_of(fast)}; the first choice reaches 95 % in "
          f"{good[1]} of {len(pairs)} pairs, the best of three in {good[3]}")


if __name__ == "__main__":
    main()
