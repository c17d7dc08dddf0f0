#!/usr/bin/env python3
"""Draws how evenly a run's routers load their experts: a heat map over layers and steps.

    python3 docs/plot_experts.py runs/moe/metrics.jsonl experts.png [--value load_max]

Each column is a step, each row a layer with experts. Values: load_max and load_min (of the most and the least loaded
expert, as multiples of the mean), entropy (of the load, over log E: 1 is even), dropped_share, bias_max, balance_loss,
z_loss. Needs matplotlib.
"""

import argparse
import sys

import matplotlib

matplotlib.use("Agg")  # no display is needed
from matplotlib import pyplot  # noqa: E402

from plot_loss import entries  # noqa: E402

VALUES = ["load_max", "load_min", "entropy", "dropped_share", "bias_min", "bias_max", "balance_loss", "z_loss"]


def read_experts(path, value):
    """Steps, layers, and rows[layer][step]."""
    steps, columns, layers = [], [], None
    for entry in entries(path):
        if "experts" not in entry:
            continue
        layers = [layer["layer"] for layer in entry["experts"]]
        steps.append(entry["step"])
        columns.append([layer[value] for layer in entry["experts"]])
    if not steps:
        sys.exit(f"{path}: no line has experts")
    return steps, layers, [list(row) for row in zip(*columns)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics")
    parser.add_argument("picture")
    parser.add_argument("--value", choices=VALUES, default="load_max")
    arguments = parser.parse_args()
    steps, layers, rows = read_experts(arguments.metrics, arguments.value)
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.28 * max(len(layers), 4)))
    image = axes.imshow(rows, aspect="auto", interpolation="nearest", cmap="viridis",
                        extent=(steps[0] - 0.5, steps[-1] + 0.5, len(layers) - 0.5, -0.5))
    axes.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    axes.set_xlabel("step")
    axes.set_ylabel("layer")
    figure.colorbar(image, ax=axes, label=arguments.value.replace("_", " "))
    figure.tight_layout()
    figure.savefig(arguments.picture, dpi=110)


if __name__ == "__main__":
    main()
