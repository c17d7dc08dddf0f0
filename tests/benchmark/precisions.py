#!/usr/bin/env python3
"""The quickstart in bf16 and in the recipes of FP8, over seeds: the loss on held-out text behind equal numbers of tokens.

    python3 tests/benchmark/precisions.py --forge build/cpu/forge --output runs/precisions \\
        --runs bf16:1,2,3,4,5 current:1,2 block:1,2 [--steps 1800] [--jobs 2] [--set KEY=VALUE ...]

Needs data/quickstart (jobscripts/prepare_quickstart.sh). A name is fp32, bf16, or a recipe of `train.fp8_recipe`; a seed
chooses initial values and the order of samples. Trains --jobs runs at a time, each with its part of the cores as
threads, and goes on with what an interrupted call left. Prints the losses of each run behind a third, two thirds and
all of its steps, and then, of each name, the last one's mean, least and largest over the seeds.
"""

import argparse
import concurrent.futures
import os

import quickstart

PRECISIONS = ("fp32", "bf16")


def settings(name, seed):
    precision = name if name in PRECISIONS else "fp8"
    recipe = [] if name in PRECISIONS else [f"train.fp8_recipe={name}"]
    return [f"train.precision={precision}", f"train.seed={seed}"] + recipe


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forge", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--runs", nargs="+", required=True, metavar="NAME:SEED,SEED,…")
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    threads = max(1, (os.cpu_count() or 1) // arguments.jobs)
    runs = [(name, seed) for name, _, seeds in (run.partition(":") for run in arguments.runs) for seed in seeds.split(",")]

    def train(run):
        name, seed = run
        directory = f"{arguments.output}/{name}_{seed}_{arguments.steps}"
        done = quickstart.train(arguments.forge, directory, settings(name, seed) + arguments.set, arguments.steps, threads)
        losses = [loss for _, loss in done]
        print(f"{name:<10} {seed:>5} " + " ".join(f"{loss:12.4f}" for loss in losses), flush=True)
        return losses

    print(f"{'precision':<10} {'seed':>5} " + " ".join(f"{f'step {arguments.steps * k // 3}':>12}" for k in (1, 2, 3)), flush=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(train, runs))
    print(f"\n{'precision':<10} {'seeds':>5} {'mean':>12} {'least':>12} {'largest':>12}")
    for name in dict.fromkeys(name for name, _ in runs):
        last = [losses[-1] for run, losses in zip(runs, results) if run[0] == name]
        print(f"{name:<10} {len(last):>5} {sum(last) / len(last):12.4f} {min(last):12.4f} {max(last):12.4f}")


if __name__ == "__main__":
    main()
