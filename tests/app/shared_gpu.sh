#!/usr/bin/env bash
# shared_gpu.sh FORGE: a rank has a GPU of its own, or FORGE_SHARE_GPU=1 (emulated GPUs). Sums are repeatable without a word
# of the user's, whose own words for NCCL stand.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

run=("$forge" gradients verify/llama/input.yaml --set machine.workspace_mib=1 --set train.microbatch_sequences=1
  --set mesh.dp_shard=2 --set train.zero_stage=3)
export FORGE_VGPU_SEED=1 FORGE_VGPU_DEVICES=1
algorithm() { # TEXT: of every communicator that the last run made
  [ -s "$work/report" ] || fail "no report of the devices"
  ! grep -v -F "\"communicators of $1\"" "$work/report" || fail "NCCL was told otherwise than $1"
  mv "$work/report" "$work/devices"
}

expect 2 "ranks 0 and 1 on $(hostname) have the same GPU: the node has 2 ranks and 1 GPU" mpirun -n 2 "${run[@]}" \
  --output "$work/refused.safetensors"
grep -qF "srun --ntasks-per-node=1" "$work/output" || fail "the refusal doesn't say how many ranks to start"
grep -qF "FORGE_SHARE_GPU=1" "$work/output" || fail "the refusal doesn't say how to share a GPU"
[ ! -e "$work/refused.safetensors" ] || fail "a refused run has written"
FORGE_VGPU_DEVICES=2 expect 2 "ranks 0 and 2 on $(hostname) have the same GPU: the node has 4 ranks and 2 GPUs" mpirun -n 4 \
  "${run[@]}" --set mesh.dp_shard=4 --set train.global_batch_sequences=4 --output "$work/refused.safetensors"
expect 2 "ranks 0 and 1 have the same GPU" "${run[@]}" --ranks 2 --output "$work/refused.safetensors"
! grep -qF "FORGE_SHARE_GPU" "$work/output" || fail "ranks as threads are told to share a GPU"
expect 0 "written" "${run[@]}" --set mesh.dp_shard=1 --output "$work/one.safetensors"
FORGE_SHARE_GPU=yes expect 2 "FORGE_SHARE_GPU=yes: legal: 1" mpirun -n 2 "${run[@]}" --output "$work/refused.safetensors"

# Two GPUs, and one that is shared: the same bits, and one algorithm of NCCL's.
export FORGE_VGPU_REPORT="$work/report"
ours="NCCL_ALGO=allreduce:ring;reducescatter:ring, NCCL_PROTO unset, NCCL_LAUNCH_ORDER_IMPLICIT=1, CUDA_DEVICE_MAX_CONNECTIONS=32"
FORGE_VGPU_DEVICES=2 expect 0 "written" mpirun -n 2 "${run[@]}" --output "$work/two.safetensors"
algorithm "$ours"
FORGE_SHARE_GPU=1 expect 0 "written" mpirun -n 2 "${run[@]}" --output "$work/shared.safetensors"
algorithm "$ours"
# One communicator is joined; all others are split off: under ZeRO 3 those of gradients and parameters, which leave products room.
counted() { grep -oE "\"communicators of $1\": [0-9]+" "$work/devices" | grep -oE '[0-9]+$' | sort -u; }
[ "$(counted 'NCCL_ALGO[^"]*')" = 3 ] || fail "a rank has other communicators than three: $(cat "$work/devices")"
[ "$(counted "at most 16 blocks")" = 2 ] || fail "communicators beside computation have other limits: $(cat "$work/devices")"
cmp "$work/two.safetensors" "$work/shared.safetensors" || fail "a shared GPU changes the gradients"
NCCL_ALGO=Tree NCCL_PROTO=LL CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_LAUNCH_ORDER_IMPLICIT=0 FORGE_VGPU_DEVICES=2 expect 0 "written" mpirun -n 2 "${run[@]}" --output "$work/two.safetensors"
algorithm "NCCL_ALGO=Tree, NCCL_PROTO=LL, NCCL_LAUNCH_ORDER_IMPLICIT=0, CUDA_DEVICE_MAX_CONNECTIONS=1"

finish
