#!/usr/bin/env python3
"""record.py METRICS FOLDER: what old_test.cpp compares with, written once, when a checkpoint is added.

reference.yaml: losses and norms of the run that wrote the checkpoint, from its metrics.jsonl.
tensors.sha256: SHA-256 of every whole tensor of FOLDER/step_*, as h5py and libhdf5 read it (little-endian, row-major).
"""
import hashlib
import json
import pathlib
import sys

import h5py
import numpy
import yaml


def stored_bytes(dataset):
    """h5py widens floats of 16 bits that aren't IEEE's; of bf16, the upper half is what the file has."""
    values = dataset[()]
    if dataset.id.get_type().get_size() == 2:
        values = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
    return values.tobytes()


def main(metrics, folder):
    folder = pathlib.Path(folder)
    steps = [json.loads(line) for line in open(metrics)]
    precision = yaml.safe_load((folder / "deck.yaml").read_text())["train"]["precision"]
    keys = ("loss", "total_loss", "grad_norm", "learning_rate")
    series = [f"  {key}: [{', '.join(repr(step[key]) for step in steps)}]" for key in keys]
    (folder / "reference.yaml").write_text(f"{precision}:\n" + "\n".join(series) + "\n")
    (checkpoint,) = folder.glob("step_*")
    with h5py.File(checkpoint / "manifest.h5", "r") as manifest:
        names = bytes(manifest["placement/tensor_names"][:, 0]).decode().splitlines()
        sums = [f"{hashlib.sha256(stored_bytes(manifest[name])).hexdigest()}  {name}\n" for name in sorted(names)]
    (folder / "tensors.sha256").write_text("".join(sums))
    print(f"{folder}: {len(steps)} steps, {len(sums)} tensors")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
