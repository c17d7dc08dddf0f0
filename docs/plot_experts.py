#!/usr/bin/env python3
"""Draws how evenly a run's routers load their experts: a heat map over layers and steps.

    python3 docs/plot_experts.py runs/moe experts.png [--value load_max]

Each column is a step, each row a layer with experts. Values: load_max and load_min (of the most and the least loaded
expert, as multiples of the mean), entropy (of the load, over log E: 1 is even), dropped_share, bias_max, balance_loss,
z_loss. Needs matplotlib: pip install -r jobscripts/requirements.txt.
"""

import argparse

from plot_loss import entries, metrics_of, pyplot, refuse

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
        refuse(f"{metrics_of(path)}: no line has experts")
    return steps, layers, [list(row) for row in zip(*columns)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run directory, or its metrics.jsonl")
    parser.add_argument("picture")
    parser.add_argument("--value", choices=VALUES, default="load_max")
    arguments = parser.parse_args()
    steps, layers, rows = read_experts(arguments.run, arguments.value)
    figure, axes = pyplot().subplots(figsize=(9, 1.2 + 0.28 * max(len(layers), 4)))
    image = axes.imshow(rows, aspect="auto", interpolation="nearest", cmap="viridis",
                        extent=(steps[0] - 0.5, steps[-1] + 0.5, len(layers) - 0.5, -0.5))
    axes.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    axes.set_xlabel("step")
    axes.set_ylabel("layer")
    figure.colorbar(image, ax=axes, label=arguments.value.replace("_", " "))
    figure.tight_layout()
    try:
        figure.savefig(arguments.picture, dpi=110)
    except (OSError, ValueError) as error:
        refuse(f"{arguments.picture}: {error}")


if __name__ == "__main__":
    main()
