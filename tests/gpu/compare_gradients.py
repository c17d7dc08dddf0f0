#!/usr/bin/env python3
"""compare_gradients.py FILE REFERENCE [--bound B] [--twice OTHER]: gradients that `forge gradients` wrote, and their losses.

--bound: max|g - r| of each tensor over the largest entry of r, or over a thousandth of the largest of all, if that is more,
as `forge verify` has it; the loss relative to its size. --twice: the root mean square of g - r over all tensors, and over each,
or all experts of a layer together (but not below a tenth of that over all), is at most twice that of OTHER,
and of few numbers what chance adds to that. Needs no library.
"""

import argparse
import array
import json
import math
import re
import struct
import sys


def read(path):
    """Name to values, and the metadata."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, tensor in header.items():
        begin, end = (8 + length + at for at in tensor["data_offsets"])
        raw = data[begin:end]
        if tensor["dtype"] == "BF16":
            widened = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
            tensors[name] = array.array("f", widened)
        else:
            tensors[name] = array.array({"F64": "d", "F32": "f"}[tensor["dtype"]], raw)
    return tensors, metadata


def relative_loss(one, other):
    return abs(float(one["loss"]) - float(other["loss"])) / abs(float(other["loss"]))


def largest_error(tensors, reference):
    """The largest relative error, and its tensor."""
    largest = {name: max(map(abs, values)) for name, values in reference.items()}
    floor = 1e-3 * max(largest.values())
    worst = (0.0, "")
    for name, values in reference.items():
        error = max(abs(a - b) for a, b in zip(tensors[name], values)) / max(largest[name], floor)
        if not error <= worst[0]:  # NaN too
            worst = (error, name)
            if math.isnan(error):
                break
    return worst


def rms(values, reference):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(values, reference)) / len(reference))


def groups_of(reference):
    """Name to tensors that are compared together: a token whose router rounds to another expert moves from one of a layer's
    experts to another."""
    groups = {}
    for name in reference:
        groups.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.*.", name), []).append(name)
    return groups


def compare_bf16(tensors, other, reference):
    """Problems: what is more than twice as far from the reference as `other`."""
    count = sum(map(len, reference.values()))

    def whole(some):
        return math.sqrt(sum(rms(some[n], r) ** 2 * len(r) for n, r in reference.items()) / count)

    ours, theirs = whole(tensors), whole(other)
    size = math.sqrt(sum(sum(v * v for v in r) for r in reference.values()) / count)
    print(f"all tensors: {ours / size:.3e} of their size, the other {theirs / size:.3e}")
    if not ours <= 2 * theirs:
        yield f"all tensors are {ours / theirs:.2f} times as far from the reference"
    for group, names in groups_of(reference).items():
        mine, its = (math.sqrt(sum(rms(some[n], reference[n]) ** 2 for n in names) / len(names)) for some in (tensors, other))
        chance = 1 + 3 / math.sqrt(sum(len(reference[n]) for n in names))  # of few numbers two such sizes differ by that
        if not mine <= 2 * chance * max(its, 0.1 * theirs):
            yield f"{group} is {mine:.3e} from the reference, the other {its:.3e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("reference")
    parser.add_argument("--bound", type=float)
    parser.add_argument("--twice", metavar="OTHER")
    arguments = parser.parse_args()
    if (arguments.bound is None) == (arguments.twice is None):
        parser.error("one of --bound and --twice")
    (tensors, said), (reference, expected) = read(arguments.file), read(arguments.reference)
    if not reference or set(tensors) != set(reference):
        sys.exit(f"other tensors: {sorted(set(tensors) ^ set(reference))[:5]}")
    if any(len(tensors[name]) != len(values) for name, values in reference.items()):
        sys.exit("tensors of other sizes")
    if arguments.twice:
        problems = list(compare_bf16(tensors, read(arguments.twice)[0], reference))
    else:
        error, name = largest_error(tensors, reference)
        loss = relative_loss(said, expected)
        print(f"{len(reference)} tensors: largest error {error:.3e} in {name or 'none'}, loss {loss:.3e}, bound {arguments.bound:.0e}")
        problems = [] if error <= arguments.bound and loss <= arguments.bound else ["beyond the bound"]
    for problem in problems:
        print("FAILED:", problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
