#!/usr/bin/env python3
"""kernel_times.py MODEL --forge PROGRAM --folder F --output FILE: where the time of a step goes, kernel by kernel, by Nsight Compute's counters:
two layers of a model of tests/benchmark/models.py, one step, each kernel alone on the device. FILE gets lines "microseconds, launches,
GB/s of device memory, kernel", tab-separated, the longest first. Ends with 77 where there is no ncu, or where it may not read counters."""

import argparse
import collections
import csv
import glob
import os
import re
import shutil
import subprocess
import sys

from steps import GpuForge

METRICS = ("gpu__time_duration.sum", "dram__bytes.sum")
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "byte": 1}


def find_ncu():
    places = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu") + glob.glob("/usr/local/cuda*/bin/ncu"))
    return shutil.which("ncu") or (places[-1] if places else None)


def short(name):
    """A kernel's name without its arguments; of one made of a lambda, the function that has it."""
    within = re.search(r"forge::(?:\(anonymous namespace\)::)?([A-Za-z_0-9:]+)[^;]*?::\{?lambda", name) or re.search(r"(\w+)<?.*lambda", name)
    return (within.group(1) + ", lambda" if within and "lambda" in name else name.split("(")[0])[:110]


def sums(path):
    totals = collections.defaultdict(lambda: [0.0, 0, 0.0])
    with open(path) as file:
        lines = [line for line in file if line.startswith('"')]
    for row in csv.DictReader(lines):
        if row["Metric Name"] not in METRICS:
            continue
        value = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
        total = totals[short(row["Kernel Name"])]
        if row["Metric Name"] == METRICS[0]:
            total[0] += value
            total[1] += 1
        else:
            total[2] += value
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for option in ("--forge", "--folder", "--output"):
        parser.add_argument(option, required=True)
    arguments = parser.parse_args()
    ncu = find_ncu()
    if ncu is None:
        print("no ncu on this machine")
        sys.exit(77)
    os.makedirs(arguments.folder, exist_ok=True)
    log = os.path.join(arguments.folder, "ncu.csv")

    class Measured(GpuForge):
        def command(self, deck):
            measured = [ncu, "--clock-control", "none", "--print-units", "base", "--csv", "--log-file", log, "--metrics", ",".join(METRICS)]
            once = ["--set", "model.layers=2", "--set", "train.steps=1", "--set", "output.every_steps=1", "--set", "output.profile=0"]
            return measured + super().command(deck) + once

    program = Measured("forge", arguments.forge, arguments.model, "bf16", min(16, len(os.sched_getaffinity(0))), arguments.folder)
    try:
        program.step_seconds(1)
    except RuntimeError as problem:  # it counts steps, of which there is one
        print(problem)
    if not os.path.exists(log) or "ERR_NVGPUCTRPERM" in open(log).read():
        print("ncu may not read the counters of this machine's GPU")
        sys.exit(77)
    totals = sums(log)
    if not totals:
        sys.exit("ncu saw no kernel: " + open(log).read()[-1000:])
    with open(arguments.output, "w") as out:
        for name, (us, launches, moved) in sorted(totals.items(), key=lambda item: -item[1][0]):
            out.write(f"{us:.1f}\t{launches}\t{moved / us / 1e3:.0f}\t{name}\n")
    print(open(arguments.output).read()[:6000])


if __name__ == "__main__":
    main()
