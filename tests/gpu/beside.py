#!/usr/bin/env python3
"""beside.py ALONE BESIDE: how fast kernels are beside one that moves bytes as a collective does, from two files of kernel_bench. Prints the speed
of each, as a fraction of that alone, and one line with their median (overlap_speed of machine files)."""

import statistics
import sys


def seconds(path):
    with open(path) as file:
        fields = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return {(f[0], f[1], f[2]): float(f[3]) for f in fields}


def main():
    alone, beside = map(seconds, sys.argv[1:])
    if not alone or alone.keys() != beside.keys():
        sys.exit(f"{sys.argv[1]} and {sys.argv[2]} don't have the same kernels")
    speeds = {key: alone[key] / beside[key] for key in alone}
    for (group, kernel, sizes), speed in speeds.items():
        print(f"{speed:6.3f}  {group}: {kernel}, {sizes}")
    values = speeds.values()
    print(f"summary: {statistics.median(values):.3f} of their speed alone, {min(values):.3f} to {max(values):.3f}, {len(values)} kernels")


if __name__ == "__main__":
    main()
