#!/usr/bin/env python3
"""fit_collectives.py FILE.csv: latencies and bandwidths of three protocols for each collective inside a node (src/predict/machine.hpp,
ProtocolRates), fitted to measured times, as they stand in inputs/machines. Needs numpy and scipy. Columns: system, op_name,
num_gpus, bytes, ms; aiconfigurator's collections (Apache-2.0) have them."""
import collections
import csv
import sys

import numpy as np
from scipy.optimize import minimize

NAMES = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all"}


def seconds(constants, ranks, sent, own):
    """The third protocol, of large calls, also copies the rank's own part."""
    protocols = constants[:9].reshape(3, 3)
    times = [latency + per_rank * ranks + sent / bandwidth for latency, per_rank, bandwidth in protocols]
    times[2] += own / constants[9]
    return np.min(times, axis=0)


def fit(ranks, sent, own, measured):
    def error(logarithms):
        return np.mean(np.abs(np.log(seconds(np.exp(logarithms), ranks, sent, own) / measured)))

    start = np.log([6e-6, 0.5e-6, 20e9, 10e-6, 1e-6, 150e9, 20e-6, 1e-6, 350e9, 900e9])
    draws = [start + np.random.default_rng(seed).normal(0, 0.3, 10) for seed in range(8)]
    found = [minimize(error, x, method="Nelder-Mead", options={"maxiter": 8000, "maxfev": 8000}) for x in draws]
    return np.exp(min(found, key=lambda f: f.fun).x)


def main():
    measured = collections.defaultdict(list)
    for row in csv.DictReader(open(sys.argv[1])):
        measured[row["system"], row["op_name"], int(row["num_gpus"]), int(row["bytes"])].append(float(row["ms"]) * 1e-3)
    for system in sorted({key[0] for key in measured}):
        print(system)
        for operation, name in NAMES.items():
            keys = sorted(key for key in measured if key[:2] == (system, operation))
            ranks, size = np.array([key[2] for key in keys], float), np.array([key[3] for key in keys], float)
            times = np.array([np.median(measured[key]) for key in keys])
            sent = size * (ranks - 1) / ranks * (2 if operation == "all_reduce" else 1)
            constants = fit(ranks, sent, size / ranks, times)
            errors, large = np.abs(seconds(constants, ranks, sent, size / ranks) / times - 1), size > 4e6
            print(f"  {name}:  # median {np.median(errors):.1%}, 90th percentile {np.quantile(errors, 0.9):.0%}; above 4 MB {np.median(errors[large]):.1%}")
            for number, (latency, per_rank, bandwidth) in enumerate(constants[:9].reshape(3, 3)):
                own = f", own_gb_s: {constants[9] / 1e9:.0f}" if number == 2 else ""
                print(f"    - {{latency_us: {latency * 1e6:.2f}, rank_us: {per_rank * 1e6:.2f}, gb_s: {bandwidth / 1e9:.1f}{own}}}", flush=True)


if __name__ == "__main__":
    main()
