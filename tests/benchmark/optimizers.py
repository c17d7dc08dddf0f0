#!/usr/bin/env python3
"""The quickstart with other optimizers and rates: the loss on held-out text behind equal numbers of tokens.

    python3 tests/benchmark/optimizers.py --forge build/cpu/forge --output runs/optimizers \\
        --runs adamw:1.25e-3,2.5e-3,5e-3 muon:2.5e-3,5e-3,1e-2 [--steps 1800] [--seeds 1,2] [--set KEY=VALUE ...]

Needs data/quickstart (jobscripts/prepare_quickstart.sh). Trains each optimizer with each rate and seed, one run at a
time, and goes on with what an interrupted call left. Prints each run's last validation loss, over all held-out
sequences of the quickstart's, and of each optimizer the best rate.
"""

import argparse

import quickstart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forge", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--runs", nargs="+", required=True, metavar="NAME:RATE,RATE,…")
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    print(f"{'optimizer':<14} {'rate':>9} {'seed':>5} {'validation loss':>16}", flush=True)
    for run in arguments.runs:
        name, _, rates = run.partition(":")
        means = {}
        for rate in rates.split(","):
            losses = []
            for seed in arguments.seeds.split(","):
                directory = f"{arguments.output}/{name}_{rate}_{seed}_{arguments.steps}"
                settings = [f"optimizer.name={name}", f"optimizer.learning_rate={rate}", f"train.seed={seed}"]
                done = quickstart.train(arguments.forge, directory, settings + arguments.set, arguments.steps)
                loss = done[-1][1]
                losses.append(loss)
                print(f"{name:<14} {rate:>9} {seed:>5} {loss:16.4f}", flush=True)
            means[rate] = sum(losses) / len(losses)
        best = min(means, key=means.get)
        print(f"{name:<14} best: {best}, {means[best]:.4f}\n", flush=True)


if __name__ == "__main__":
    main()
