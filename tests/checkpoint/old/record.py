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


sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "docs"))
import read_checkpoint  # noqa: E402


def stored_bytes(values, bf16):
    """h5py widens floats of 16 bits that aren't IEEE's; the upper half of bf16 stands in the file."""
    return ((values.view(numpy.uint32) >> 16).astype(numpy.uint16) if bf16 else values).tobytes()


def tensors_of(checkpoint):
    """(name, bytes) of each, in the order of names. Above 64 ranks (format 2) pieces of the manifest have their parts."""
    with h5py.File(checkpoint / "manifest.h5", "r") as manifest:
        names = read_checkpoint.names_of(manifest)
        for name in sorted(names):
            bf16 = manifest["placement/tensors"][names.index(name), 0] == 2
            values = manifest[name][()] if manifest.attrs["format"] == 1 else None
            for tables in read_checkpoint.files_of(h5py, checkpoint, manifest) if values is None else []:
                values = read_checkpoint.add_parts(h5py, checkpoint, tables, name, values)
            yield name, stored_bytes(values, bf16)


def main(metrics, folder):
    folder = pathlib.Path(folder)
    steps = [json.loads(line) for line in open(metrics)]
    precision = yaml.safe_load((folder / "deck.yaml").read_text())["train"]["precision"]
    keys = ("loss", "total_loss", "grad_norm", "learning_rate")
    series = [f"  {key}: [{', '.join(repr(step[key]) for step in steps)}]" for key in keys]
    (folder / "reference.yaml").write_text(f"{precision}:\n" + "\n".join(series) + "\n")
    (checkpoint,) = folder.glob("step_*")
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in tensors_of(checkpoint)]
    (folder / "tensors.sha256").write_text("".join(sums))
    print(f"{folder}: {len(steps)} steps, {len(sums)} tensors")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
