#!/usr/bin/env python3
"""fit_products.py FILE.csv[.gz]: the constants of forge's model of matrix products on a GPU (src/predict/machine.hpp, WaveRates), fitted
to measured forward products, as they stand in inputs/machines. Needs numpy and scipy. Columns: gpu, type, m, n, k, ms_median;
aiconfigurator's collections (Apache-2.0) have them."""
import csv
import gzip
import sys

import numpy as np
from scipy.optimize import minimize

UNITS = {"a100_sxm": 108, "h100_sxm": 132, "h200_sxm": 132, "b200_sxm": 148, "gb200": 152}
PEAK = {"a100_sxm": 312e12, "h100_sxm": 989.4e12, "h200_sxm": 989.4e12, "b200_sxm": 2250e12, "gb200": 2500e12}
BANDWIDTH = {"a100_sxm": 2.039e12, "h100_sxm": 3.35e12, "h200_sxm": 4.8e12, "b200_sxm": 8e12, "gb200": 8e12}
TILES = [(256, 128, 0), (128, 256, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2)]
NAMES = ["launch_us", "wave_us", "large", "medium", "small", "memory_share"]


def seconds(constants, gpu, m, n, k):
    launch, wave, *shares, memory = constants
    best = np.full(len(m), np.inf)
    for rows, columns, kind in TILES:
        waves = np.ceil(np.ceil(m / rows) * np.ceil(n / columns) / UNITS[gpu])
        best = np.minimum(best, waves * (2 * rows * columns * k / (PEAK[gpu] / UNITS[gpu] * shares[kind]) + wave))
    return launch + np.maximum(best, 2 * (m * k + k * n + m * n) / (BANDWIDTH[gpu] * min(memory, 1)))


def fit(gpu, m, n, k, measured):
    def error(logarithms):
        return np.mean(np.abs(np.log(seconds(np.exp(logarithms), gpu, m, n, k) / measured)))

    start = np.log([3e-6, 1e-6, 0.7, 0.7, 0.6, 0.7])
    draws = [start + np.random.default_rng(seed).normal(0, 0.2, len(start)) for seed in range(4)]
    found = [minimize(error, x, method="Nelder-Mead", options={"maxiter": 4000, "maxfev": 4000}) for x in draws]
    return np.exp(min(found, key=lambda f: f.fun).x)


def main():
    name = sys.argv[1]
    with (gzip.open(name, "rt") if name.endswith(".gz") else open(name)) as file:
        rows = [row for row in csv.DictReader(file) if row["type"] == "bfloat16"]
    for gpu in UNITS:
        table = np.array([[float(row[c]) for c in ("m", "n", "k", "ms_median")] for row in rows if row["gpu"] == gpu])
        m, n, k, measured = table[:, 0], table[:, 1], table[:, 2], table[:, 3] * 1e-3
        constants = fit(gpu, m, n, k, measured)
        errors = np.abs(seconds(constants, gpu, m, n, k) / measured - 1)
        shown = constants * np.array([1e6, 1e6, 1, 1, 1, 1])
        print(gpu, *(f"{name} {value:.3f}" for name, value in zip(NAMES, shown)),
              f"median error {np.median(errors):.1%}, 90th percentile {np.quantile(errors, 0.9):.0%}")


if __name__ == "__main__":
    main()
