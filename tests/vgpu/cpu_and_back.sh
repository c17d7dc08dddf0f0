#!/usr/bin/env bash
# cpu_and_back.sh FORGE CPU_FORGE: a run that begins with the CPU build, goes on with the CUDA sources on emulated GPUs and ends with
# the CPU build, on three layouts, has the losses and norms of one that never left the CPU; and each build reads the other's model.
set -euo pipefail
forge=$1 cpu=$2
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../app/expect.sh"
if [ ! -x "$cpu" ]; then
  echo "SKIPPED: checkpoints of the CPU build and back: there is no $cpu"
  exit 77
fi

# numbers FOLDER: what a step's losses and norm are.
numbers() { grep '"total_loss"' "$1/metrics.jsonl" | sed -E 's/.*"step": ([0-9]+),.*"loss": ([^,]*), "total_loss": ([^,]*),.*"grad_norm": ([^,]*),.*/\1 \2 \3 \4/'; }
# near ONE OTHER WHAT: lines of numbers that are equal to 1e-9.
near() {
  paste -d ' ' <(echo "$1") <(echo "$2") | awk '{ for (i = 1; i <= NF / 2; ++i) { d = $i - $(i + NF / 2); if (!(d * d <= 1e-18 * $i * $i)) bad = 1 } } END { exit bad || NR == 0 }' ||
    fail "$3: $1 and $2"
}
there_and_back() { # NAME "LAYOUT OF THE CPU" "OF THE GPUS"
  local name=$1 deck=verify/$1/input.yaml common
  local -a first then
  read -ra first <<< "$2"
  read -ra then <<< "$3"
  common=(--set train.steps=6 --set checkpoint.every_steps=2 --set train.global_batch_sequences=4 --set train.microbatch_sequences=1
    --set train.precision=fp64 --set machine.workspace_mib=1 --set machine.peak_tflops=1 --set optimizer.schedule=constant --set optimizer.warmup_steps=2
    --set "checkpoint.directory=$work/$name/saved" --set "output.directory=$work/$name/run")
  rm -rf "${work:?}/$name"
  expect 0 "saved step_00000006" "$cpu" "$deck" "${common[@]}" --set "checkpoint.directory=$work/$name/whole" --set "output.directory=$work/$name/whole.run"
  expect 0 "saved step_00000002" "$cpu" "$deck" "${common[@]}" "${first[@]}" --set train.steps=2
  expect 0 "restarted from $work/$name/saved/step_00000002" "$forge" "$deck" --restart latest "${common[@]}" "${then[@]}" --set train.steps=4
  grep -q "vgpu" "$work/$name/run/job_info" || fail "$name: the second part didn't run on an emulated GPU"
  for build in "$cpu" "$forge"; do
    expect 0 "step_00000004 written" "$build" export "$work/$name/saved" --output "$work/$name/$(basename "$(dirname "$build")")"
    expect 0 "parameters  $work/$name/saved/step_00000004" "$build" evaluate "$deck" "${common[@]}" --checkpoint latest \
      --set "data.validation_files=[verify/$name/tokens.bin]" --set train.validation_sequences=4
    sed -n 's/^loss \([^ ]*\) nats.*/\1/p' "$work/output" > "$work/$name/loss_$(basename "$(dirname "$build")")"
  done
  cmp -s "$work/$name"/*/model.safetensors || fail "$name: the builds export other models"
  near "$(cat "$work/$name/loss_$(basename "$(dirname "$cpu")")")" "$(cat "$work/$name/loss_$(basename "$(dirname "$forge")")")" "$name: evaluate"
  expect 0 "restarted from $work/$name/saved/step_00000004" "$cpu" "$deck" --restart latest "${common[@]}"
  [ "$(numbers "$work/$name/run" | wc -l)" -eq 6 ] || fail "$name: not six steps: $(cat "$work/$name/run/metrics.jsonl")"
  near "$(numbers "$work/$name/whole.run")" "$(numbers "$work/$name/run")" "$name"
}
there_and_back llama "--ranks 2 --set mesh.pp=2" "--ranks 4 --set mesh.tp=2 --set train.zero_stage=3"
there_and_back deepseek_v3 "--ranks 2 --set mesh.tp=2 --set mesh.ep=2 --set mesh.etp=1" "--ranks 2 --set mesh.ep=2 --set train.zero_stage=1"
finish
