#!/usr/bin/env python3
"""read_checkpoint.py DIRECTORY [TENSOR ...]: lists a checkpoint's tensors, or prints some. Needs h5py: pip install -r jobscripts/requirements.txt."""
import os
import sys


def refuse(text):
    print(f"read_checkpoint.py: {text}", file=sys.stderr)
    sys.exit(2)


def check_shards(directory, manifest):
    """HDF5 reads zeros where a virtual dataset's file is missing."""
    for number, size in manifest["placement/shards"][:]:
        path = os.path.join(directory, f"shard_{number:05d}.h5")
        if not os.path.exists(path) or os.path.getsize(path) != size:
            refuse(f"{path} is missing or has not {size} bytes")


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
        check_shards(directory, manifest)
        if len(sys.argv) == 2:
            print("step", manifest.attrs["step"], "tokens", manifest.attrs["tokens"])
            for name in bytes(manifest["placement/tensor_names"][:, 0]).decode().splitlines():
                print(name, manifest[name].shape, manifest[name].dtype)
        for name in sys.argv[2:]:
            if name not in manifest:
                refuse(f"{directory} has no tensor {name}; without a name all are listed")
            print(manifest[name][:])


if __name__ == "__main__":
    main()
