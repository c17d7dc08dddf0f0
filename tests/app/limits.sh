#!/usr/bin/env bash
# limits.sh FORGE SHIM: jobs that are told to leave while they save, or whose time is nearly over. Nothing is saved twice, and what was
# measured of steps, validations and saves counts for when they leave. SHIM stops a job at a chosen call, so that no moment is missed.
set -euo pipefail
forge=$1
shim=$2
. "$(dirname "$0")/expect.sh"

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 100000000, global_batch_sequences: 4, sequence_tokens: 16, precision: fp32}
optimizer: {learning_rate: 1e-2, schedule: constant, decay_steps: 100}
data: {files: [$work/tokens.bin], validation_files: [$work/tokens.bin], dtype: uint16}
output: {every_steps: 100000}
checkpoint: {end_margin_seconds: 1}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 300}
YAML
deck=$work/deck.yaml
# stopping NAME CALL:N FILE AFTER OPTIONS…: a job that stops itself at the N-th such call on FILE, from the first call on AFTER on; its
# number in `job`.
stopping() {
  local name=$1 fault=$2 file=$3 after=$4
  shift 4
  rm -rf "$work/$name" "$work/$name.run"
  LD_PRELOAD=$shim FORGE_IO_DIRECTORY=$work/$file FORGE_IO_AFTER=$after FORGE_IO_FAULT=$fault:stop "$forge" "$deck" \
    --set "checkpoint.directory=$work/$name" --set "output.directory=$work/$name.run" "$@" > "$work/$name.out" 2>&1 &
  job=$!
}
is_stopped() { grep -q "^State:.T" "/proc/$1/status" 2> /dev/null; }
until_stopped() { # PID NAME
  until is_stopped "$1"; do
    kill -0 "$1" 2> /dev/null || { fail "$2 ended before it stopped: $(cat "$work/$2.out")"; return 1; }
    sleep 0.05
  done
}
steps_of() { grep -c total_loss "$work/$1.run/metrics.jsonl"; }

# A signal while a step is being saved, before it is committed: that step is the one that it leaves with.
stopping signal write:5 signal/ .partial --set checkpoint.every_steps=7 --set checkpoint.keep_last=1
if until_stopped $job signal; then
  [ -z "$(ls -d "$work"/signal/step_* 2> /dev/null)" ] || fail "it stopped too late: $(ls "$work/signal")"
  # No thread takes one by a handler, whose frame might come to stand in the heap (train/stop_request.hpp).
  threads=0
  for status in /proc/"$job"/task/*/status; do
    threads=$((threads + 1))
    blocked=$((16#$(awk '/^SigBlk/ {print $2}' "$status")))
    for number in "$(kill -l USR1)" "$(kill -l TERM)"; do
      [ $((blocked >> (number - 1) & 1)) -eq 1 ] || fail "signal $number isn't blocked: $(cat "$status")"
    done
  done
  [ $threads -gt 1 ] || fail "the job has only $threads threads"
  kill -USR1 $job
  kill -CONT $job
  code=0
  wait $job || code=$?
  [ $code -eq 75 ] || fail "exit code $code, not 75: $(cat "$work/signal.out")"
  grep -q "stopped: saved step_00000007 and left: SIGUSR1" "$work/signal.out" || fail "it left otherwise: $(cat "$work/signal.out")"
  [ "$(grep -c "            saved" "$work/signal.out")" -eq 1 ] || fail "it saved again: $(cat "$work/signal.out")"
  [ "$(steps_of signal)" -eq 7 ] || fail "it made $(steps_of signal) steps"
  expect 0 "step_00000007: whole" "$forge" verify-checkpoint "$work/signal"
fi

# The same behind the steps: the step that has just been handed over is written to the end. The job stops at the line of its log that
# says so, before it looks for signals again; which write that is, is tried out.
for n in $(seq 2 12); do
  stopping behind write:$n behind.run/log.txt "" --set checkpoint.every_steps=2 --set checkpoint.asynchronous=true --set output.every_steps=1
  until_stopped $job behind || break
  ! tail -1 "$work/behind.out" | grep -q "step_00000002 is being written behind the next steps" || break
  kill -KILL $job
  wait $job 2> /dev/null || true
  job=
done
[ -n "$job" ] || fail "it doesn't save behind its steps: $(cat "$work/behind.out")"
if [ -n "$job" ] && is_stopped "$job"; then
  kill -USR1 "$job"
  kill -CONT "$job"
  code=0
  wait "$job" || code=$?
  [ $code -eq 75 ] || fail "exit code $code, not 75: $(cat "$work/behind.out")"
  grep -q "stopped: saved step_00000002 and left: SIGUSR1" "$work/behind.out" || fail "it left otherwise: $(cat "$work/behind.out")"
  [ "$(steps_of behind)" -eq 2 ] || fail "it made $(steps_of behind) steps"
  expect 0 "step_00000002: whole" "$forge" verify-checkpoint "$work/behind"
fi

# A job that leaves saves and no more: the older step goes later.
mkdir "$work/leaves" && cp -r "$work/behind"/step_* "$work/leaves"
expect 75 "saved step_00000003 and left: the job's time limit is near" env SLURM_JOB_END_TIME="$(date +%s)" "$forge" "$deck" \
  --restart latest --set "checkpoint.directory=$work/leaves" --set "output.directory=$work/leaves.run" --set checkpoint.keep_last=1
[ "$(ls "$work/leaves" | tr '\n' ' ')" = "latest step_00000002 step_00000003 " ] || fail "a job that leaves prunes: $(ls "$work/leaves")"

# Something that took six seconds once: a step, a validation, a save, one behind the steps. With a second of margin, a job keeps as
# much for the next one, and twice as much for saves. All at once; each has time for it, and for the same again.
lasts=6 limit=35
begin=$(date +%s)
end=$((begin + limit))
export SLURM_JOB_END_TIME=$end
declare -A jobs=() times=([step]=1 [validation]=1 [save]=2 [asynchronous]=2)
FORGE_FAULT=slow:0:3:$lasts "$forge" "$deck" --set "checkpoint.directory=$work/step" --set "output.directory=$work/step.run" \
  > "$work/step.out" 2>&1 &
jobs[step]=$!
stopping validation write:3 validation.run/metrics.jsonl "" --set train.validate_every_steps=2 --set train.validation_sequences=4
jobs[validation]=$job
stopping save write:5 save/ .partial --set checkpoint.every_steps=5000
jobs[save]=$job
stopping asynchronous write:5 asynchronous/ .partial --set checkpoint.every_steps=5000 --set checkpoint.asynchronous=true
jobs[asynchronous]=$job
for name in validation save asynchronous; do until_stopped "${jobs[$name]}" $name; done
sleep $lasts
for name in validation save asynchronous; do kill -CONT "${jobs[$name]}"; done
most=$(($(date +%s) - begin + 1)) # it lasted at most so long
declare -A ended=()
while [ ${#ended[@]} -lt 4 ]; do
  for name in "${!jobs[@]}"; do
    [ -n "${ended[$name]:-}" ] || kill -0 "${jobs[$name]}" 2> /dev/null || ended[$name]=$(date +%s)
  done
  sleep 0.1
done
for name in "${!jobs[@]}"; do
  code=0
  wait "${jobs[$name]}" || code=$?
  left=$((end - ${ended[$name]}))
  [ $code -eq 75 ] || fail "$name: exit code $code, not 75: $(cat "$work/$name.out")"
  grep -q "and left: the job's time limit is near" "$work/$name.out" || fail "$name: no word of the time limit: $(cat "$work/$name.out")"
  # What isn't counted leaves a second, a save behind the steps the time of the step that was stopped with it; what is counted too
  # often leaves far more.
  [ $left -ge $((times[$name] * lasts * 3 / 4 + 1)) ] || fail "a $name of $lasts s: the job leaves only $left s before its end"
  [ $left -le $((times[$name] * most + 8)) ] || fail "a $name of $lasts to $most s: the job leaves $left s before its end"
  echo "a $name of $lasts to $most s: left $left s before the end"
done
finish
