#!/usr/bin/env python3
"""kernel_times.py MODEL --forge PROGRAM --folder F --output FILE [--set KEY=VALUE …]: where the time of a step goes, kernel by kernel: a training
of a model of tests/benchmark/models.py with libkernel_times.so (kernel_times.cpp) of forge's build. FILE gets lines "microseconds a
step, launches a step, kernel", tab-separated, the longest first, with its start's kernels spread over the steps. Ends with 77 where there
is no such library or CUPTI records nothing."""

import argparse
import collections
import os
import re
import sys

from steps import WARM_UP, GpuForge


def short(name):
    """A kernel's name without its arguments; of one made of a lambda, the function that has it."""
    within = re.search(r"&(?:forge::)?(?:\(anonymous namespace\)::)?([\w:]+)", name) or re.search(r"forge::([\w:]+)<[^;]*lambda", name)
    if "nv_dl" in name and within:
        return within.group(1).removeprefix("forge::")
    return re.sub(r"^void |\(anonymous namespace\)::", "", name).split("(")[0].replace("forge::", "")[:120]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--set", action="append", default=[])
    for option in ("--forge", "--folder", "--output"):
        parser.add_argument(option, required=True)
    arguments = parser.parse_args()
    library = os.path.join(os.path.dirname(os.path.abspath(arguments.forge)), "libkernel_times.so")
    if not os.path.exists(library):
        print(f"no {library}, which is built where the CUDA toolkit has CUPTI")
        sys.exit(77)
    os.makedirs(arguments.folder, exist_ok=True)
    raw = os.path.join(arguments.folder, "kernels.tsv")

    class Traced(GpuForge):
        def environment(self):
            return super().environment() | {"CUDA_INJECTION64_PATH": library, "FORGE_KERNEL_TIMES": raw}

    program = Traced("forge", arguments.forge, arguments.model, "bf16", min(16, len(os.sched_getaffinity(0))), arguments.folder)
    program.choices += arguments.set
    steps = program.model.steps
    seconds = program.step_seconds(steps)
    if not os.path.exists(raw):
        print("CUPTI records no kernels here")
        sys.exit(77)
    totals = collections.defaultdict(lambda: [0.0, 0])
    with open(raw) as file:
        for line in file:
            us, launches, name = line.rstrip("\n").split("\t", 2)
            total = totals[short(name)]
            total[0] += float(us)
            total[1] += int(launches)
    with open(arguments.output, "w") as out:
        for name, (us, launches) in sorted(totals.items(), key=lambda item: -item[1][0]):
            out.write(f"{us / (WARM_UP + steps):.1f}\t{launches / (WARM_UP + steps):.1f}\t{name}\n")
    print(f"{1e3 * seconds:.1f} ms a step, kernels {sum(us for us, _ in totals.values()) / (WARM_UP + steps) / 1e3:.1f} ms")


if __name__ == "__main__":
    main()
