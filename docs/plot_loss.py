#!/usr/bin/env python3
"""Draws the loss of a run: each step, a running mean, and the validation losses if there are any.

    python3 docs/plot_loss.py runs/quickstart loss.png [--axis step|tokens|hours]

Several run directories, or metrics.jsonl of them, may be given before the picture; each is one curve, named after its directory. Of `hours` each
step counts as long as it took; time between jobs does not. Needs matplotlib: pip install -r jobscripts/requirements.txt.
"""

import argparse
import json
import os
import re
import sys


def refuse(text):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)
    sys.exit(2)


def pyplot():
    """matplotlib's, without a display."""
    try:
        import matplotlib
    except ImportError as error:
        refuse(f"the package {error.name} is missing: pip install -r jobscripts/requirements.txt")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plots

    return plots


def metrics_of(path):
    """The metrics.jsonl of a run directory, or the file itself."""
    return os.path.join(path, "metrics.jsonl") if os.path.isdir(path) else path


def entries(path):
    """The objects of a metrics.jsonl. A torn line, of a run that was killed, is left out."""
    path = metrics_of(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError as error:
        refuse(f"{path}: {error.strerror}; legal: a run directory (output.directory), or its metrics.jsonl")
    objects, bad = [], []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            objects += [entry] if isinstance(entry, dict) else []
        except json.JSONDecodeError:
            bad.append(number)
    if bad:
        more = f", nor are {len(bad) - 1} more lines, which are" if len(bad) > 1 else ", and is"
        print(f"{path}:{bad[0]}: no JSON object{more} left out", file=sys.stderr)
    return objects


def read_metrics(path, axis):
    """[(place, loss)] and by set [(place, validation_loss)], with places on the axis; set "": without a name."""
    losses, validation, seconds, places = [], {}, 0.0, {0: 0}
    for entry in entries(path):
        if "loss" in entry:
            seconds += entry.get("step_seconds") or 0.0
            places[entry["step"]] = {"step": entry["step"], "tokens": entry.get("tokens", 0), "hours": seconds / 3600}[axis]
            if entry["loss"] is not None:  # NaN
                losses.append((places[entry["step"]], entry["loss"]))
        elif entry.get("validation_loss") is not None and entry["step"] in places:
            validation.setdefault(entry.get("set", ""), []).append((places[entry["step"]], entry["validation_loss"]))
    if not losses:
        refuse(f"{metrics_of(path)}: no line has a loss")
    return losses, validation


def unit_of(path):
    """Nats per byte where the run's deck says that ids are bytes, else per token."""
    try:
        with open(os.path.join(os.path.dirname(os.path.abspath(metrics_of(path))), "deck.yaml"), encoding="utf-8") as file:
            deck = file.read()
    except OSError:
        return "nats per token"
    vocabulary = re.search(r"^ +vocabulary: (\d+)", deck, re.M)
    tokenizer = re.search(r"^ +(?:tokenizer|hf): *(?!\"\")\S", deck, re.M)
    return "nats per byte" if vocabulary and vocabulary[1] in ("256", "257") and not tokenizer else "nats per token"


def running_mean(values, width):
    """Means of the last `width` values, of fewer at the beginning."""
    means, total = [], 0.0
    for i, value in enumerate(values):
        total += value - (values[i - width] if i >= width else 0.0)
        means.append(total / min(i + 1, width))
    return means


def name_of(path):
    return os.path.basename(os.path.dirname(os.path.abspath(metrics_of(path))))


def draw(axes, path, options, several):
    losses, validation = read_metrics(path, options.axis)
    steps, values = zip(*losses)
    width = options.mean
    name = f"{name_of(path)}: " if several else ""
    (faint,) = axes.plot(steps, values, linewidth=0.6, alpha=0.35, label=None if several else "each step")
    axes.plot(
        steps, running_mean(values, width), linewidth=1.6, color=faint.get_color(), label=f"{name}mean of {width} steps"
    )
    for number, (title, points) in enumerate(validation.items()):
        axes.plot(
            *zip(*points),
            "os^Dv<>pP*"[number % 10],
            markersize=4,
            color="black" if not several else faint.get_color(),
            markeredgecolor="black",
            label=f"{name}validation {title}".rstrip(),
        )
    # The first steps fall from ln V: what follows should fill the picture.
    kept = sorted(values[len(values) // 20 :])
    return kept[0], max(kept[int(0.995 * (len(kept) - 1))], 1.25 * kept[len(kept) // 2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run directories, or metrics.jsonl of them")
    parser.add_argument("picture", help="the file to write (.png, .svg, .pdf)")
    parser.add_argument("--mean", type=int, default=50, help="steps of the running mean")
    parser.add_argument("--axis", choices=["step", "tokens", "hours"], default="step")
    parser.add_argument("--unit", help="of the loss (default: as the run has it)")
    arguments = parser.parse_args()
    if arguments.mean < 1:
        parser.error("--mean must be at least 1")
    if os.path.isdir(arguments.picture) or arguments.picture.endswith(".jsonl"):
        parser.error(f"{arguments.picture}: the last argument is the picture to write; legal: a name such as loss.png")
    plots = pyplot()
    figure, axes = plots.subplots(figsize=(7, 4), dpi=120, layout="constrained")
    ranges = [draw(axes, path, arguments, len(arguments.runs) > 1) for path in arguments.runs]
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    if high > low:
        axes.set_ylim(low - 0.05 * (high - low), high)
    axes.set_xlim(left=0)
    axes.set_xlabel({"step": "step", "tokens": "tokens", "hours": "hours of training"}[arguments.axis])
    units = sorted({unit_of(path) for path in arguments.runs})
    axes.set_ylabel(f"loss ({arguments.unit or ' or '.join(units)})")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    try:
        figure.savefig(arguments.picture)
    except (OSError, ValueError) as error:
        refuse(f"{arguments.picture}: {error}")


if __name__ == "__main__":
    main()
