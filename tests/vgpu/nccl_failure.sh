#!/usr/bin/env bash
# nccl_failure.sh FORGE: an error of NCCL's that comes up by itself ends the job with what NCCL says, and no deadline is waited for.
set -euo pipefail
forge=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../app/expect.sh"

run=("$forge" verify/llama/input.yaml --set machine.workspace_mib=1 --set machine.peak_tflops=1 --set train.microbatch_sequences=1
  --set "output.directory=$work/run" --set machine.first_deadline_seconds=0)
failed="forge: error: NCCL failed behind its operations: "
for fault in 1:7 0:12; do
  export FORGE_VGPU_NCCL_FAULT=$fault
  expect 6 "$failed" "${run[@]}" --ranks 2 --set mesh.tp=2
  expect 6 "$failed" mpirun -n 2 "${run[@]}" --set mesh.dp_shard=2 --set train.zero_stage=3
done
finish
