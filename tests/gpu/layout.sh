#!/usr/bin/env bash
# layout.sh FORGE DECK FOLDER [OPTIONS…]: loss and every gradient of four ranks in fp64, with the options, against one rank
# without them. Ranks share a GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
forge=$1 deck=$2 folder=$3
shift 3
mkdir -p "$folder"
common=(--set machine.peak_tflops=1 --set machine.workspace_mib=4 --set train.precision=fp64)
"$forge" gradients "$deck" "${common[@]}" --output "$folder/one.safetensors"
"$here/../mpirun.sh" 4 "$here/shared_gpu.sh" "$forge" gradients "$deck" "${common[@]}" "$@" --output "$folder/four.safetensors"
"${PYTHON:-python3}" "$here/compare_gradients.py" "$folder/four.safetensors" "$folder/one.safetensors" --bound 1e-11
