#!/usr/bin/env bash
# io_errors.sh FORGE SHIM: calls of a save fail one by one, in one rank of two. No rank hangs, the checkpoint of before is whole, the job
# ends with 5, or goes on where the deck says so. Then a disk that is really full, where a file system may be mounted.
set -euo pipefail
forge=$1
shim=$2
. "$(dirname "$0")/expect.sh"

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 4, global_batch_sequences: 4, sequence_tokens: 16, precision: fp32, zero_stage: 1}
optimizer: {learning_rate: 1e-2}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {directory: $work/saved, every_steps: 2}
output: {directory: $work/run}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 60}
YAML
deck=$work/deck.yaml
newest() { (cd "$1" && ls -d step_* 2> /dev/null | tail -1); }

expect 0 "saved step_00000004" mpirun -n 2 "$forge" "$deck"
cp -r "$work/saved" "$work/good"

# one call of one rank: each of the first ones, then some later ones
faulty() { # RANK FAULT OPTIONS…: steps 5 and 6 on top of the good checkpoints
  local rank=$1 fault=$2
  shift 2
  rm -rf "$work/saved" && cp -r "$work/good" "$work/saved"
  local other=(-n 1 "$forge" "$deck" --restart latest --set train.steps=6 "$@")
  local one=(-n 1 -x "LD_PRELOAD=$shim" -x "FORGE_IO_DIRECTORY=$work/saved" -x "FORGE_IO_FAULT=$fault" "${other[@]:2}")
  if [ "$rank" -eq 0 ]; then mpirun "${one[@]}" : "${other[@]}"; else mpirun "${other[@]}" : "${one[@]}"; fi
}
for fault in 0:write:1:5 0:write:2:28:more 1:write:1:28 1:write:7:5:more 0:fsync:1:5 1:fsync:1:5 0:fsync:2:5 0:fsync:4:5 \
  0:rename:1:5 0:rename:2:13; do
  rank=${fault%%:*}
  expect 5 "checkpoint: " faulty "$rank" "${fault#*:}"
  last=$(newest "$work/saved")
  expect 0 "$last: whole" "$forge" verify-checkpoint "$work/saved"
  [ "$last" = step_00000004 ] || [ "$last" = step_00000006 ] || fail "$fault leaves $last"
  [ -z "$(ls -d "$work"/saved/.step_* 2> /dev/null)" ] || fail "$fault leaves $(ls -A "$work/saved")"
done
# a short write is no error: the rest follows
expect 0 "saved step_00000006" faulty 0 write:2:0
expect 0 "step_00000006: whole" "$forge" verify-checkpoint "$work/saved/step_00000006"
# going on without the checkpoint that failed
expect 0 "saving failed, the job goes on" faulty 1 fsync:1:5 --set checkpoint.stop_on_failure=false --set checkpoint.every_steps=1
[ "$(newest "$work/saved")" = step_00000006 ] || fail "the save behind the one that failed is missing"
expect 0 "saving failed, the job goes on" faulty 1 fsync:1:5 --set checkpoint.stop_on_failure=false \
  --set checkpoint.every_steps=1 --set checkpoint.asynchronous=true

# a full disk
mkdir "$work/disk"
if mount -t tmpfs -o size=256k forge_full "$work/disk" 2> /dev/null; then
  trap 'umount "$work/disk"; rm -rf "$work"' EXIT
  rm -rf "$work/run"
  expect 5 "checkpoint: " mpirun -n 2 "$forge" "$deck" --set "checkpoint.directory=$work/disk/saved" --set model.width=64 --set model.ffn=256
  [ -z "$(ls -A "$work/disk/saved" 2> /dev/null)" ] || fail "a full disk leaves $(ls -A "$work/disk/saved")"
else
  echo "no file system may be mounted here: full disks are not tested"
fi
finish
