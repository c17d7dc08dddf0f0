#!/usr/bin/env bash
# layout.sh FORGE DECK FOLDER [OPTIONS…]: loss and every gradient of several ranks in fp64, with the options, against one rank
# without them. Four ranks that share a GPU, or, started by LAYOUT_ALL, as LAYOUT_ONE starts one, with LAYOUT_SETTINGS on both sides.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
forge=$1 deck=$2 folder=$3
shift 3
mkdir -p "$folder"
read -ra all <<< "${LAYOUT_ALL:-$here/../mpirun.sh 4 $here/shared_gpu.sh}"
read -ra one <<< "${LAYOUT_ONE:-}"
common=(--set machine.peak_tflops=1 --set machine.workspace_mib=4 --set train.precision=fp64)
for setting in ${LAYOUT_SETTINGS:-}; do common+=(--set "$setting"); done
"${one[@]}" "$forge" gradients "$deck" "${common[@]}" --output "$folder/one.safetensors"
"${all[@]}" "$forge" gradients "$deck" "${common[@]}" "$@" --output "$folder/all.safetensors"
"${PYTHON:-python3}" "$here/compare_gradients.py" "$folder/all.safetensors" "$folder/one.safetensors" --bound 1e-11
