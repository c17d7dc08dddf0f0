#!/usr/bin/env bash
# shared_gpu.sh PROGRAM [ARGS…]: one of several MPI ranks that share a GPU, as forge itself arranges it. For correctness: a
# collective takes ten milliseconds. On a build without CUDA it changes nothing.
set -eu
export FORGE_SHARE_GPU=1
exec "$@"
