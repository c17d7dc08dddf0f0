#!/usr/bin/env python3
"""read_checkpoint.py DIRECTORY [TENSOR ...]: lists a checkpoint's tensors, or prints some; needs h5py."""
import os
import sys

import h5py


def check_shards(directory, manifest):
    """HDF5 reads zeros where a virtual dataset's file is missing."""
    for number, size in manifest["placement/shards"][:]:
        path = os.path.join(directory, f"shard_{number:05d}.h5")
        if not os.path.exists(path) or os.path.getsize(path) != size:
            raise SystemExit(f"{path} is missing or has not {size} bytes")


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    directory = sys.argv[1]
    with h5py.File(os.path.join(directory, "manifest.h5"), "r") as manifest:
        check_shards(directory, manifest)
        if len(sys.argv) == 2:
            print("step", manifest.attrs["step"], "tokens", manifest.attrs["tokens"])
            for name in bytes(manifest["placement/tensor_names"][:, 0]).decode().splitlines():
                print(name, manifest[name].shape, manifest[name].dtype)
        for name in sys.argv[2:]:
            print(manifest[name][:])


if __name__ == "__main__":
    main()
