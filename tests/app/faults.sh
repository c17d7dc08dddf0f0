#!/usr/bin/env bash
# faults.sh FORGE: faults on purpose (FORGE_FAULT) that a run must survive or end well from: a gradient that is NaN, a bit of a shard
# that flips on the disk, a call of a save that fails.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 8, global_batch_sequences: 4, sequence_tokens: 16, precision: fp32, max_not_finite_steps: 3}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {directory: $work/saved, every_steps: 1}
output: {directory: $work/run}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 60}
YAML
deck=$work/deck.yaml
newest() { (cd "$1" && ls -d step_* 2> /dev/null | tail -1); }
faulty() { # FAULT OPTIONS…: two ranks, anew
  local fault=$1
  shift
  rm -rf "$work/saved" "$work/run"
  mpirun -n 2 -x "FORGE_FAULT=$fault" "$forge" "$deck" "$@"
}

for text in kill:1 kill:0:1:2 nan:0:1:x flip:0:1:-3 fail:0:1 slow:0:1 burn:0:1; do
  expect 2 "FORGE_FAULT=$text: legal are" env "FORGE_FAULT=$text" "$forge" "$deck"
done

# NaN in one rank's gradient: every rank leaves this step's update out, and counts it. After max_not_finite_steps in a row the job ends.
parameters() { # STEP FILE
  "$forge" export "$work/saved/step_0000000$1" --output "$2" > /dev/null
}
for fault in "nan:0:3 --set train.zero_stage=0" "nan:1:3 --set train.zero_stage=1" "nan:1:3:2 --set train.zero_stage=3" \
  "nan:1:3 --set mesh.tp=2" "nan:0:3 --set mesh.pp=2 --set train.precision=bf16"; do
  read -ra words <<< "$fault"
  expect 0 "saved step_00000008" faulty "${words[@]}"
  steps=1
  [[ $fault != nan:1:3:2* ]] || steps=2
  [ "$(grep -c '"updated": false' "$work/run/metrics.jsonl")" -eq $steps ] || fail "$fault: not $steps steps without an update"
  grep '"updated": false' "$work/run/metrics.jsonl" | head -1 | grep -q '"step": 3,' || fail "$fault: another step than 3"
  for step in 2 3 4 5; do parameters $step "$work/hf$step"; done
  cmp -s "$work/hf2/model.safetensors" "$work/hf3/model.safetensors" || fail "$fault: step 3 changes the parameters"
  if [ $steps -eq 2 ]; then
    cmp -s "$work/hf3/model.safetensors" "$work/hf4/model.safetensors" || fail "$fault: step 4 changes the parameters"
  fi
  ! cmp -s "$work/hf4/model.safetensors" "$work/hf5/model.safetensors" || fail "$fault: step 5 changes nothing"
done
for fault in "nan:1:4:3" "nan:0:4:3 --set train.precision=bf16"; do
  read -ra words <<< "$fault"
  expect 4 "stopped at step 6: loss or gradient norm was NaN or Inf in 3 steps in a row" faulty "${words[@]}"
  grep -q "those after update 3" "$work/output" || fail "$fault: another number of updates"
  # A restart counts on: the third in a row is the first that it makes.
  expect 4 "stopped at step 6" mpirun -n 2 -x "FORGE_FAULT=nan:0:6" "$forge" "$deck" --restart latest "${words[@]:1}"
  expect 0 "saved step_00000008" mpirun -n 2 "$forge" "$deck" --restart latest "${words[@]:1}"
done

# A bit of a shard flips on its way to the disk: nobody notices until it is read; then the one before it is taken.
for fault in flip:0:8 flip:1:8:77; do
  expect 0 "saved step_00000008" faulty $fault
  expect 3 "shard_0000${fault:5:1}.h5" "$forge" verify-checkpoint "$work/saved/step_00000008"
  expect 3 "1 of 8 checkpoints are damaged" "$forge" verify-checkpoint "$work/saved"
done
faulty flip:1:8 > /dev/null 2>&1
expect 0 "restarted from $work/saved/step_00000007" mpirun -n 2 "$forge" "$deck" --restart latest
grep -q "step_00000008 is not usable: .*shard_00001.h5" "$work/output" || fail "no word of the damage: $(cat "$work/output")"
expect 3 "no usable checkpoint" mpirun -n 2 "$forge" "$deck" --restart "$work/saved/old.1/step_00000008"

# The n-th call of a rank's save fails (all n: tests/checkpoint/faults_test.cpp).
for fault in "0 1" "0 40" "1 1" "1 40" "0 20 --set checkpoint.asynchronous=true" "1 20 --set checkpoint.asynchronous=true"; do
  read -r rank n options <<< "$fault"
  # shellcheck disable=SC2086
  expect 5 "fails on purpose (FORGE_FAULT) (rank $rank)" faulty fail:$rank:3:$n $options
  # A lock's file may stay, it locks nothing.
  [ "$(ls -A "$work/saved" | grep -v '^[.].*lock$' | tr '\n' ' ')" = "latest step_00000001 step_00000002 " ] || fail "$fault leaves $(ls -A "$work/saved")"
  expect 0 "step_00000002: whole" "$forge" verify-checkpoint "$work/saved"
  # shellcheck disable=SC2086
  expect 0 "saving failed, the job goes on" faulty fail:$rank:3:$n --set checkpoint.stop_on_failure=false $options
  expect 0 "step_00000008: whole" "$forge" verify-checkpoint "$work/saved"
  [ ! -e "$work/saved/step_00000003" ] && [ -e "$work/saved/step_00000004" ] || fail "$fault leaves $(ls -A "$work/saved")"
done

# A rank that computes longer is named with its node, from the third look on; of ranks that are slow alike none is.
expect 0 "            slow ranks: 1 on $(uname -n) (" faulty slow:1:gradients:0.1 --set output.every_steps=1 --set checkpoint.every_steps=0
[ "$(grep -c 'slow ranks: ' "$work/run/log.txt")" -eq 5 ] || fail "not a line for each of steps 4 to 8: $(cat "$work/run/log.txt")"
[ "$(grep -c '"slow": 1, "slow_ranks": \[{"rank": 1, "node": "'"$(uname -n)"'", "of_median": ' "$work/run/metrics.jsonl")" -eq 5 ] ||
  fail "metrics.jsonl names no slow rank: $(cat "$work/run/metrics.jsonl")"
expect 0 "8/8" faulty slow:0:gradients:0.2,slow:1:gradients:0.2 --set output.every_steps=1 --set checkpoint.every_steps=0
! grep -q "slow ranks" "$work/run/log.txt" || fail "even ranks are slow: $(cat "$work/run/log.txt")"
grep -q '"slow": 0, "slow_ranks": \[\]' "$work/run/metrics.jsonl" || fail "metrics.jsonl has no computation"
finish
