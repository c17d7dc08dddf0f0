#!/usr/bin/env python3
"""Draws the loss of a run: each step, a running mean, and the validation losses if there are any.

    python3 docs/plot_loss.py runs/quickstart/metrics.jsonl docs/quickstart_loss.png

Several metrics.jsonl may be given before the picture; each is one curve, named after its run directory. Needs
matplotlib.
"""

import argparse
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")  # no display is needed
from matplotlib import pyplot  # noqa: E402


def entries(path):
    """The objects of a metrics.jsonl. A torn last line, of a run that was killed, is left out."""
    with open(path) as file:
        lines = file.readlines()
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            if number == len(lines):
                return
            sys.exit(f"{path}:{number}: not a JSON object")


def read_metrics(path):
    """[(step, loss)] and [(step, validation_loss)]."""
    losses, validation = [], []
    for entry in entries(path):
        if "loss" in entry:
            losses.append((entry["step"], entry["loss"]))
        if "validation_loss" in entry:
            validation.append((entry["step"], entry["validation_loss"]))
    if not losses:
        sys.exit(f"{path}: no line has a loss")
    return losses, validation


def running_mean(values, width):
    """Means of the last `width` values, of fewer at the beginning."""
    means, total = [], 0.0
    for i, value in enumerate(values):
        total += value - (values[i - width] if i >= width else 0.0)
        means.append(total / min(i + 1, width))
    return means


def name_of(path):
    return os.path.basename(os.path.dirname(os.path.abspath(path)))


def draw(axes, path, width, several):
    losses, validation = read_metrics(path)
    steps, values = zip(*losses)
    name = f"{name_of(path)}: " if several else ""
    (faint,) = axes.plot(steps, values, linewidth=0.6, alpha=0.35, label=None if several else "each step")
    axes.plot(
        steps, running_mean(values, width), linewidth=1.6, color=faint.get_color(), label=f"{name}mean of {width} steps"
    )
    if validation:
        axes.plot(
            *zip(*validation),
            "o",
            markersize=4,
            color="black" if not several else faint.get_color(),
            markeredgecolor="black",
            label=f"{name}validation",
        )
    # The first steps fall from ln V: what follows should fill the picture.
    kept = sorted(values[len(values) // 20 :])
    return kept[0], max(kept[int(0.995 * (len(kept) - 1))], 1.25 * kept[len(kept) // 2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics", nargs="+", help="metrics.jsonl of one run or more")
    parser.add_argument("picture", help="the file to write (.png, .svg)")
    parser.add_argument("--mean", type=int, default=50, help="steps of the running mean")
    parser.add_argument("--unit", default="nats per byte", help="what the loss is measured in")
    arguments = parser.parse_args()
    if arguments.mean < 1:
        parser.error("--mean must be at least 1")
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120, layout="constrained")
    ranges = [draw(axes, path, arguments.mean, len(arguments.metrics) > 1) for path in arguments.metrics]
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    axes.set_ylim(low - 0.05 * (high - low), high)
    axes.set_xlim(left=0)
    axes.set_xlabel("step")
    axes.set_ylabel(f"loss ({arguments.unit})")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(arguments.picture)


if __name__ == "__main__":
    main()
