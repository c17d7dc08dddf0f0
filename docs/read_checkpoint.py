#!/usr/bin/env python3
"""read_checkpoint.py DIRECTORY [TENSOR ...]: lists a checkpoint's tensors, or prints some. Needs h5py: pip install -r jobscripts/requirements.txt."""
import os
import sys


def refuse(text):
    print(f"read_checkpoint.py: {text}", file=sys.stderr)
    sys.exit(2)


def names_of(tables):
    return bytes(tables["placement/tensor_names"][:, 0]).decode().splitlines()


def shape_of(tables, row):
    dimensions = tables["placement/tensors"][row, 1]
    return tuple(int(extent) for extent in tables["placement/tensors"][row, 2:2 + dimensions])


def check_shards(directory, tables):
    """HDF5 reads zeros where a virtual dataset's file is missing."""
    for number, size in tables["placement/shards"][:]:
        path = os.path.join(directory, f"shard_{number:05d}.h5")
        if not os.path.exists(path) or os.path.getsize(path) != size:
            refuse(f"{path} is missing or has not {size} bytes")


def files_of(h5py, directory, manifest):
    """Which have the placement of the shards: manifest.h5 itself (format 1), or its pieces (format 2)."""
    if manifest.attrs["format"] == 1:
        yield manifest
        return
    for number in manifest["placement/files"][:, 0]:
        path = os.path.join(directory, f"manifest_{number:05d}.h5")
        if not os.path.exists(path):
            refuse(f"{path} is missing")
        with h5py.File(path, "r") as tables:
            yield tables


def add_parts(h5py, directory, tables, name, whole):
    """Puts the parts of a tensor that a file's shards hold into `whole`; returns it."""
    names = names_of(tables)
    if name not in names:
        return whole
    row, first = names.index(name), 0
    shards, pieces = tables["placement/shards"], tables["placement/pieces"]
    shape = shape_of(tables, row)
    for tensor, shard, _, _, count, _ in tables["placement/datasets"][:]:
        if tensor == row:
            path = os.path.join(directory, f"shard_{shards[shard, 0]:05d}.h5")
            with h5py.File(path, "r") as file:
                values = file[name][:]
            if whole is None:
                whole = values.__class__(shape, dtype=values.dtype)
            for piece in pieces[first:first + count]:
                offset, extent = piece[1:1 + len(shape)], piece[5:5 + len(shape)]
                box = tuple(slice(o, o + e) for o, e in zip(offset, extent))
                size = whole[box].size
                whole[box] = values[piece[0]:piece[0] + size].reshape(extent)
        first += count
    return whole


def main():
    if len(sys.argv) < 2:
        refuse(__doc__)
    try:
        import h5py
    except ImportError as error:
        refuse(f"the package {error.name} is missing: pip install -r jobscripts/requirements.txt")
    directory = sys.argv[1]
    if not os.path.exists(os.path.join(directory, "manifest.h5")):
        refuse(f"{directory} has no manifest.h5; legal: the directory of one checkpoint, such as checkpoints/quickstart/step_00001800")
    with h5py.File(os.path.join(directory, "manifest.h5"), "r") as manifest:
        names, whole = names_of(manifest), manifest.attrs["format"] == 1
        if len(sys.argv) == 2:
            print("step", manifest.attrs["step"], "tokens", manifest.attrs["tokens"])
        for tables in files_of(h5py, directory, manifest):
            check_shards(directory, tables)
        for row, name in enumerate(names if len(sys.argv) == 2 else []):
            print(name, shape_of(manifest, row), ("float64", "float32", "bfloat16")[manifest["placement/tensors"][row, 0]])
        for name in sys.argv[2:]:
            if name not in names:
                refuse(f"{directory} has no tensor {name}; without a name all are listed")
            values = manifest[name][:] if whole else None
            for tables in files_of(h5py, directory, manifest) if not whole else []:
                values = add_parts(h5py, directory, tables, name, values)
            print(values)


if __name__ == "__main__":
    main()
