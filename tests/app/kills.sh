#!/usr/bin/env bash
# kills.sh FORGE [KILLS]: a job of two ranks is killed again and again, a rank or its launcher, at any moment: while it trains,
# saves, renames or removes. No committed checkpoint is lost, and the run ends as one that was never killed.
set -euo pipefail
forge=$1
kills=${2:-20}
. "$(dirname "$0")/expect.sh"
RANDOM=7

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 64, heads: 2, ffn: 96, vocabulary: 256}
train: {steps: 60, global_batch_sequences: 4, sequence_tokens: 32, precision: fp32, zero_stage: 1}
optimizer: {learning_rate: 1e-2}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {every_steps: 2, keep_last: 3, resume: auto}
output: {every_steps: 20}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
job() { # NAME OPTIONS…
  local name=$1
  shift
  exec mpirun -n 2 "$forge" "$work/deck.yaml" --set "checkpoint.directory=$work/$name" --set "output.directory=$work/$name.run" "$@"
}
newest() { (cd "$1" 2> /dev/null && ls -d step_* 2> /dev/null | tail -1) || true; }
numbers() { sed -E 's/"(step_seconds|tokens_per_second|mfu)": [^,]*, //g' "$1"; }
same_end() { # of a run that is done
  for shard in 0 1; do
    cmp -s "$work/whole/step_00000060/shard_0000$shard.h5" "$work/killed/step_00000060/shard_0000$shard.h5" ||
      fail "the run ends with another state"
  done
  cmp -s <(numbers "$work/whole.run/metrics.jsonl") <(numbers "$work/killed.run/metrics.jsonl") ||
    fail "the run has other metrics: $(diff <(numbers "$work/whole.run/metrics.jsonl") <(numbers "$work/killed.run/metrics.jsonl"))"
}

start=$(date +%s%N)
(job whole) > "$work/output" 2>&1 || fail "the undisturbed run fails: $(cat "$work/output")"
milliseconds=$((($(date +%s%N) - start) / 1000000))

done_kills=0 ends=0
options=()
while [ $done_kills -lt "$kills" ]; do
  [ "$failures" -lt 3 ] || finish
  before=$(newest "$work/killed")
  # A fresh start moves what a finished run has left aside.
  [[ " ${options[*]-} " != *" --fresh "* ]] || before=
  [ $((done_kills % 3)) -ne 1 ] || options+=(--set checkpoint.asynchronous=true)
  (job killed "${options[@]}") > "$work/output" 2>&1 &
  launcher=$!
  options=()
  # Anywhere in the run, its start included.
  wait_ms=$((RANDOM * 32768 + RANDOM)) && wait_ms=$((wait_ms % (milliseconds + 1)))
  sleep "$((wait_ms / 1000)).$(printf %03d $((wait_ms % 1000)))"
  mapfile -t ranks < <(pgrep -P $launcher -x forge || true)
  target=$launcher
  [ ${#ranks[@]} -eq 0 ] || [ $((RANDOM % 2)) -eq 0 ] || target=${ranks[$((RANDOM % ${#ranks[@]}))]}
  if kill -KILL "$target" 2> /dev/null; then done_kills=$((done_kills + 1)); fi
  code=0
  wait $launcher || code=$?
  after=$(newest "$work/killed")
  [ -z "$before" ] || [ "$after" = "$before" ] || [ "$after" \> "$before" ] || fail "$before was lost, $after is left"
  if [ -n "$after" ]; then
    "$forge" verify-checkpoint "$work/killed/$after" > "$work/verify" 2>&1 || fail "$after is damaged: $(cat "$work/verify")"
  fi
  if [ $code -eq 0 ]; then # it was done before the kill
    same_end
    ends=$((ends + 1))
    options=(--fresh)
  elif [ $code -ne 137 ] && ! grep -qE "signal 9|Killed" "$work/output"; then
    fail "a killed job ends with $code: $(cat "$work/output")"
  fi
done
(job killed "${options[@]}") > "$work/output" 2>&1 || fail "the last run fails: $(cat "$work/output")"
same_end
[ ! -e "$(ls -d "$work"/killed/.step_* 2> /dev/null | head -1)" ] || fail "left over: $(ls -A "$work/killed")"
echo "$done_kills kills, $ends runs that were done before"
finish
