#!/usr/bin/env bash
# device_memory.sh FORGE: what a job takes of a GPU is what it said (emulated GPUs): one allocation of the planned size, refused
# where it doesn't fit, with a change that does; gathering, exporting and measuring take nothing more.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

deck=verify/llama/input.yaml
small=(--set machine.workspace_mib=1 --set "output.directory=$work/run" --set optimizer.warmup_steps=0)
of_all_devices() { sed -n 's/.*"'"$1"'": \([0-9]*\).*/\1/p' "$work/report"; }

# Ranks that gather whole tensors allocate their arenas, once each, and nothing else.
export FORGE_VGPU_SEED=1 FORGE_VGPU_REPORT="$work/report"
for ranks in 1 2; do
  expect 0 "written" mpirun -n $ranks "$forge" gradients "$deck" "${small[@]}" --set mesh.dp_shard=$ranks \
    --set train.microbatch_sequences=1 --set train.zero_stage=3 --output "$work/gradients.safetensors"
  [ "$(of_all_devices allocations)" = "$(yes 1 | head -n $ranks)" ] || fail "$ranks ranks allocate: $(cat "$work/report")"
  rm -f "$work/report"
done
# So does training that measures what the device reaches: once for that, once for the run, both of the planned size.
expect 0 "written" "$forge" "$deck" "${small[@]}" --set train.steps=1 --set output.save_hf=true \
  --set "checkpoint.directory=$work/saved"
grep -q "peak .*measured" "$work/output" || fail "the training run measures no peak: $(cat "$work/output")"
planned() { "$forge" show --all --deck "$deck" "${small[@]}" "$@" | awk '$1 == "peak" && $3 == "B" { print $2 }'; }
grep -q 'planned \([0-9.]* [KMG]iB\), high-water mark \1;' "$work/output" || fail "no planned memory that is the mark: $(cat "$work/output")"
planned=$(planned --set train.steps=1 --set output.save_hf=true)
[ "$(of_all_devices allocations)" = 2 ] || fail "training allocates $(of_all_devices allocations) times"
[ "$(of_all_devices 'allocated bytes')" = $((2 * planned)) ] || fail "training allocates other than twice the planned $planned B: $(cat "$work/report")"
# Export needs no device: a node without any is one whose settings are refused at the first call.
FORGE_VGPU_DEVICES=0 expect 0 "written to" "$forge" export "$work/saved" --output "$work/hf"
[ -s "$work/hf/model.safetensors" ] || fail "export wrote no model"
unset FORGE_VGPU_REPORT

# A device with less than the deck plans, and more than it plans with selective recompute. 256 MiB are left to libraries.
none=$(planned) selective=$(planned --set train.recompute=selective)
[ "$selective" -lt "$none" ] || fail "selective recompute takes $selective B, none $none B"
between=$(awk -v a="$none" -v b="$selective" 'BEGIN { printf "%.9f", ((a + b) / 2 + 256 * 2^20) / 2^30 }')
rm -rf "$work/run"
FORGE_VGPU_MEMORY_GIB=$between expect 2 "nearest change that fits: train.recompute=selective (" "$forge" "$deck" "${small[@]}"
grep -qF "the deck doesn't fit: " "$work/output" || fail "no word of what doesn't fit: $(cat "$work/output")"
[ ! -e "$work/run" ] || fail "a job that doesn't fit made its run directory"
FORGE_VGPU_MEMORY_GIB=$between expect 0 "step" "$forge" "$deck" "${small[@]}" --set train.steps=1 --set train.recompute=selective
# NCCL's buffers count before there are any, and all ranks say the same.
FORGE_VGPU_MEMORY_GIB=0.8 expect 2 "928.00 MiB for libraries are " "$forge" gradients "$deck" "${small[@]}" --ranks 2 --set mesh.pp=2 \
  --set train.microbatch_sequences=1 --output "$work/refused.safetensors"
[ "$(grep -c "forge: error" "$work/output")" -eq 1 ] || fail "two ranks don't give one message: $(cat "$work/output")"
FORGE_VGPU_MEMORY_GIB=0.251 expect 2 "makes it fit (least: " "$forge" "$deck" "${small[@]}"

finish
