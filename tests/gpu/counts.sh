#!/usr/bin/env bash
# counts.sh FORGE DECK FOLDER [OPTIONS…]: loss and every gradient of four ranks in bf16 whose experts' rows travel before the host
# knows how many there are, against the same ranks with counts on the host: to the bit. Ranks share a GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
forge=$1 deck=$2 folder=$3
shift 3
mkdir -p "$folder"
common=(--set machine.peak_tflops=1 --set machine.workspace_mib=4 --set train.precision=bf16 --set machine.grouped=tensor_cores)
for counts in host device; do
  "$here/../mpirun.sh" 4 "$here/shared_gpu.sh" "$forge" gradients "$deck" "${common[@]}" --set "machine.dispatch_counts=$counts" "$@" \
    --output "$folder/$counts.safetensors"
done
"${PYTHON:-python3}" "$here/compare_gradients.py" "$folder/device.safetensors" "$folder/host.safetensors" --bound 0
