#!/usr/bin/env bash
# io_errors.sh FORGE SHIM: a call of a save fails, in one rank of two, as an operating system fails it. No rank hangs, what was
# committed before is whole, nothing is lost in silence, and the job ends with 5, or goes on where the deck says so. Then disks that are
# really full, where a file system may be mounted. FORGE_LONG=1: every call of a save, and twenty sizes of the disk; else a few, drawn by
# commit.
set -euo pipefail
forge=$1
shim=$2
. "$(dirname "$0")/expect.sh"
seed=$(git rev-parse --short=6 HEAD 2> /dev/null || echo 1)
RANDOM=$((16#$seed % 32768))

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 4, global_batch_sequences: 4, sequence_tokens: 16, precision: fp32, zero_stage: 1}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {directory: $work/saved, every_steps: 2, keep_last: 1}
output: {directory: $work/run}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 60}
YAML
deck=$work/deck.yaml
newest() { (cd "$1" && ls -d step_* 2> /dev/null | tail -1); }
left_over() { find "$1" -mindepth 1 -maxdepth 1 -name '.*' ! -name '*lock' 2> /dev/null; } # a lock's file may stay, it locks nothing
numbers() { sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$1"; }

expect 0 "saved step_00000004" mpirun -n 2 "$forge" "$deck"
[ "$(ls -A "$work/saved" "$work/run" | tr '\n' ' ')" = "$work/run: deck.yaml job_info job_info.json log.txt metrics.jsonl  $work/saved: latest step_00000004 " ] ||
  fail "a run leaves $(ls -A "$work/saved" "$work/run")"
cp -r "$work/saved" "$work/good"

# one call of one rank, from the moment that the save of step 6 begins
faulty() { # RANK FAULT OPTIONS…: steps 5 and 6 on top of the good checkpoints
  local rank=$1 fault=$2
  shift 2
  rm -rf "$work/saved" "$work/hit" && cp -r "$work/good" "$work/saved"
  local of_one="LD_PRELOAD=$shim FORGE_IO_DIRECTORY=$work/saved FORGE_IO_AFTER=.partial FORGE_IO_REPORT=$work/hit FORGE_IO_FAULT=$fault"
  # (Open MPI 5.0.7's mpirun ends with SIGSEGV where it is given two programs.)
  # shellcheck disable=SC2016
  mpirun -n 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" -ne "$1" ] || export $2; shift 2; exec "$@"' rank "$rank" "$of_one" \
    "$forge" "$deck" --restart latest --set train.steps=6 "$@"
}
declare -A hits=() stops=()
# One run with a fault; false: the save has fewer such calls.
one_call() { # RANK CALL N ERRNO
  local what="$1 $2:$3:$4" code=0 last
  faulty "$1" "$2:$3:$4" > "$work/output" 2>&1 || code=$?
  last=$(newest "$work/saved")
  expect_whole "$what"
  if [ $code -eq 0 ]; then
    [ "$last" = step_00000006 ] || fail "$what: no word of it, but $last is the newest"
  else
    [ $code -eq 5 ] && grep -q "checkpoint: " "$work/output" || fail "$what ends with $code: $(cat "$work/output")"
    [ "$last" = step_00000004 ] || [ "$last" = step_00000006 ] || fail "$what leaves $last"
  fi
  # What could not be removed goes with the next start.
  if [ -n "$(left_over "$work/saved")" ]; then
    expect 0 "nothing to train" mpirun -n 2 "$forge" "$deck" --restart latest --set "train.steps=$((10#${last#step_}))"
    [ -z "$(left_over "$work/saved")" ] || fail "$what leaves $(left_over "$work/saved")"
  fi
  [ -e "$work/hit" ] || return 1
  hits[$2]=$((${hits[$2]:-0} + 1))
  [ $code -eq 0 ] || stops[$2]=$((${stops[$2]:-0} + 1))
}
expect_whole() { # WHAT
  "$forge" verify-checkpoint "$work/saved" > "$work/verify" 2>&1 || fail "$1 leaves damage: $(cat "$work/verify")"
}
# So many of each the first rank makes at least, and the second one.
for calls in open:24:22:5 write:28:30:20 fsync:5:8:1 close:5:16:4 rename:5:3:0 unlink:5:4:0 mkdir:28:1:0; do
  IFS=: read -r call error first second <<< "$calls"
  if is_long; then
    for rank in 0 1; do
      n=1
      while one_call $rank "$call" $n "$error"; do n=$((n + 1)); done
      least=$([ $rank -eq 0 ] && echo "$first" || echo "$second")
      [ $n -gt "$least" ] || fail "rank $rank makes only $((n - 1)) calls of $call"
      echo "rank $rank, $call: $((n - 1)) calls"
    done
  else
    one_call 0 "$call" $((1 + RANDOM % first)) "$error" || fail "rank 0 makes fewer than $first calls of $call"
    [ "$second" -eq 0 ] || one_call 1 "$call" $((1 + RANDOM % second)) "$error" || fail "rank 1 makes fewer than $second calls of $call"
  fi
done
for call in write fsync rename mkdir; do
  [ "${hits[$call]}" -eq "${stops[$call]:-0}" ] || fail "of ${hits[$call]} failing calls of $call ${stops[$call]:-0} stop the save"
done
echo "calls that failed: $(for call in "${!hits[@]}"; do printf '%s %s (%s stop the save) ' "$call" "${hits[$call]}" "${stops[$call]:-0}"; done)"

# a short write is no error: the rest follows
expect 0 "saved step_00000006" faulty 0 write:2:0:more
expect 0 "step_00000006: whole" "$forge" verify-checkpoint "$work/saved/step_00000006"
# going on without the checkpoint that failed, but not past the last one
for asynchronous in false true; do
  expect 0 "saving failed, the job goes on" faulty 1 fsync:1:5 --set checkpoint.stop_on_failure=false --set checkpoint.every_steps=1 \
    --set "checkpoint.asynchronous=$asynchronous"
  [ "$(newest "$work/saved")" = step_00000006 ] || fail "the save behind the one that failed is missing"
  expect 5 "checkpoint: " faulty 1 fsync:1:5 --set checkpoint.stop_on_failure=false --set "checkpoint.asynchronous=$asynchronous"
done

# What can't be read is no damage: an error that passes is tried again, one that stays ends the job with 5, and nothing is moved aside.
rm -rf "$work/saved" "$work/run"
expect 0 "saved step_00000004" "$forge" "$deck" --set checkpoint.keep_last=0
cp -r "$work/saved" "$work/both"
errors=(4 5 11 24 116) # EINTR EIO EAGAIN EMFILE ESTALE
unreadable() { # DIRECTORY FAULT COMMAND…
  local directory=$1 fault=$2
  shift 2
  rm -rf "$work/saved" "$work/hit" && cp -r "$work/both" "$work/saved"
  env "LD_PRELOAD=$shim" "FORGE_IO_DIRECTORY=$directory" "FORGE_IO_REPORT=$work/hit" "FORGE_IO_FAULT=$fault" "$forge" "$@"
}
untouched() { # WHAT
  [ -e "$work/hit" ] || fail "$1: no call failed"
  diff -rq "$work/both" "$work/saved" > /dev/null || fail "$1 changes $work/saved: $(ls -A "$work/saved")"
}
for call in open read stat; do
  error=${errors[RANDOM % ${#errors[@]}]}
  newest=$work/saved/step_00000004/
  expect 0 "restarted from $work/saved/step_00000004," unreadable "$newest" $call:$((1 + RANDOM % 3)):$error "$deck" --restart latest
  untouched "$call:$error once"
  expect 5 "nothing was moved aside" unreadable "$newest" $call:$((1 + RANDOM % 3)):$error:more "$deck" --restart latest
  untouched "$call:$error"
  expect 5 "$work/saved/step_00000004/" unreadable "$newest" $call:1:$error:more verify-checkpoint "$work/saved"
  expect 0 "nothing to train" unreadable "$work/tokens.bin" $call:1:$error "$deck" --restart latest
  expect 5 "$work/tokens.bin: " unreadable "$work/tokens.bin" $call:1:$error:more "$deck" --restart latest
done
expect 5 "Input/output error" unreadable "$work/gradients" stat:1:5:more gradients "$deck" --output "$work/gradients"

# A directory that is removed or replaced while a job runs: it saves once more, and ends with 5.
ends_when() { # TEXT COMMAND…
  local text=$1 job code=0
  shift
  rm -rf "$work/saved" "$work/run"
  "$forge" "$deck" --set train.steps=1000000 --set checkpoint.every_steps=200 > "$work/screen" 2>&1 &
  job=$!
  until [ -e "$work/saved/latest" ]; do kill -0 $job 2> /dev/null || { fail "the job ended before: $*: $(cat "$work/screen")"; return; }; sleep 0.05; done
  "$@"
  wait $job || code=$?
  [ $code -eq 5 ] && grep -qF "$text" "$work/screen" || fail "$* ends with $code: $(tail -5 "$work/screen")"
  expect_whole "$*"
}
ends_when "metrics.jsonl in it, was removed or replaced while the job ran" mv "$work/run" "$work/moved"
ends_when "checkpoint.directory $work/saved was removed or replaced while the job ran; step_" mv "$work/saved" "$work/moved2"

# full disks
if ! { mkdir "$work/disk" && mount -t tmpfs -o size=64m forge_full "$work/disk"; } 2> /dev/null; then
  echo "SKIPPED: full disks are not tested: no file system may be mounted here"
  [ "${CI:-}" != true ] || fail "full disks are not tested, and CI=true"
  finish
  exit 0
fi
trap 'umount "$work/disk"; rm -rf "$work"' EXIT
larger=(--set model.width=64 --set model.ffn=256 --set checkpoint.every_steps=1 --set "checkpoint.directory=$work/disk/saved"
  --set "output.directory=$work/disk/run")
rm -rf "$work/run"
expect 0 "saved step_00000004" mpirun -n 2 "$forge" "$deck" "${larger[@]}"
numbers "$work/disk/run/metrics.jsonl" > "$work/numbers"
cp -r "$work/disk/saved/step_00000004" "$work/last"
one=$(du -k -s "$work/disk/saved/step_00000004" | cut -f 1) around=$(du -k -s "$work/disk/run" | cut -f 1)
enough=$((2 * one + around + 96))

# A disk of so many KiB holds the run directory and the checkpoints of a run; then it grows, and the run goes on to the same end.
full=0 complete=0
disk_of() { # KIB STOP_ON_FAILURE
  local what="a disk of $1 KiB, stop_on_failure $2" code=0 options=(--restart latest)
  umount "$work/disk" && mount -t tmpfs -o "size=$1k" forge_full "$work/disk"
  mpirun -n 2 "$forge" "$deck" "${larger[@]}" --set "checkpoint.stop_on_failure=$2" > "$work/output" 2>&1 || code=$?
  case $code in
    0) complete=$((complete + 1)) ;;
    5)
      full=$((full + 1))
      grep -q "No space left on device" "$work/output" || fail "$what: not the cause: $(cat "$work/output")"
      ! grep -q "error message = \|18446744073709551615" "$work/output" || fail "$what: libhdf5's words: $(cat "$work/output")"
      ! grep -q "checkpoint: " "$work/output" || grep -q "disk full: the checkpoint needs .* had .* free: " "$work/output" ||
        fail "$what: without figures: $(cat "$work/output")"
      ;;
    *) fail "$what ends with $code: $(cat "$work/output")" ;;
  esac
  if [ "$2" = false ] && grep -q "^ *1/4" "$work/output"; then
    grep -q "^ *4/4" "$work/output" || fail "$what: it doesn't go on: $(cat "$work/output")"
  fi
  [ -z "$(left_over "$work/disk/saved")$(left_over "$work/disk/run")" ] || fail "$what leaves $(ls -A "$work/disk/saved" "$work/disk/run")"
  mount -o remount,size=64m "$work/disk"
  if [ -n "$(newest "$work/disk/saved" 2> /dev/null)" ]; then
    expect 0 "whole" "$forge" verify-checkpoint "$work/disk/saved"
  else
    options=()
  fi
  expect 0 "" mpirun -n 2 "$forge" "$deck" "${larger[@]}" "${options[@]}"
  for shard in 0 1; do
    cmp -s "$work/last/shard_0000$shard.h5" "$work/disk/saved/step_00000004/shard_0000$shard.h5" || fail "$what: another end"
  done
  # With lines that found no room no run goes on, but where it didn't stop.
  if [ "$2" = true ]; then
    numbers "$work/disk/run/metrics.jsonl" | cmp -s - "$work/numbers" || fail "$what: other metrics: $(cat "$work/disk/run/metrics.jsonl")"
  fi
}
sizes=()
for i in $(seq 0 19); do sizes+=($((64 + i * (enough - 64) / 19 / 4 * 4))); done
if is_long; then
  for stop in true false; do for size in "${sizes[@]}"; do disk_of "$size" $stop; done; done
else # one of each fifth
  goes_on=(true false)
  for part in 0 1 2 3 4; do disk_of "${sizes[part * 4 + RANDOM % 4]}" "${goes_on[RANDOM % 2]}"; done
fi
[ $full -gt 0 ] || fail "no disk was full"
# All of them fit on the largest one.
disk_of $((enough + 64)) true
[ $complete -gt 0 ] || fail "no disk was large enough: $enough KiB"
echo "full disks: $full, large enough: $complete"

# A disk that is full for a while, with log and metrics on it, too: the job says so, goes on, and writes them when there is room again.
# Nothing here depends on time: each waits for the other.
umount "$work/disk" && mount -t tmpfs -o size=16m forge_full "$work/disk"
run=$work/disk/run
wait_for() { # COMMAND…: while the job runs
  until "$@" > /dev/null 2>&1; do
    kill -0 "$job" 2> /dev/null || { fail "the job ended before: $*: $(cat "$work/screen")"; return 1; }
    sleep 0.05
  done
}
fill() { dd if=/dev/zero of="$work/disk/filler" oflag=append conv=notrunc bs=4k status=none 2> /dev/null || true; }
# A save that fails gives back what it took: the disk is filled again and again until nothing can be written.
all_fail() {
  local text
  fill
  for text in "saving failed, the job goes on" "writing $run/metrics.jsonl failed, the job goes on and tries again: No space left" \
    "writing $run/log.txt failed, the job goes on and tries again: No space left" \
    "writing $run/tensorboard/events.out.tfevents."; do
    grep -qF "$text" "$work/screen" || return 1
  done
}
start_long_run() { # OPTIONS…
  rm -rf "$work"/disk/*
  "$forge" "$deck" "${larger[@]}" --set train.steps=1000000 --set checkpoint.every_steps=50 --set output.every_steps=1 \
    --set checkpoint.stop_on_failure=false --set output.tensorboard=true "$@" > "$work/screen" 2>&1 &
  job=$!
  wait_for test -e "$work/disk/saved/latest" && wait_for all_fail && kill -STOP $job
}
ends_with() { # CODE: of the long run, told to leave
  local code=0
  kill -USR1 $job && kill -CONT $job
  wait $job || code=$?
  [ $code -eq "$1" ] || fail "exit code $code, not $1, of a run whose disk was full: $(tail -20 "$work/screen")"
}
for asynchronous in false true; do
  start_long_run --set "checkpoint.asynchronous=$asynchronous"
  rm "$work/disk/filler"
  kill -CONT $job
  wait_for grep -q "$run/metrics.jsonl is written again" "$work/screen"
  wait_for grep -q "$run/log.txt is written again" "$work/screen"
  wait_for grep -q "$run/tensorboard/events.* is written again" "$work/screen"
  ends_with 75
  last=$(newest "$work/disk/saved")
  expect 0 "whole" "$forge" verify-checkpoint "$work/disk/saved"
  cmp -s <(grep -oE '^\{"step": [0-9]+' "$run/metrics.jsonl" | grep -oE '[0-9]+') <(seq 1 $((10#${last#step_}))) ||
    fail "metrics.jsonl hasn't one line for each step up to $last"
  ! grep -v '}$' "$run/metrics.jsonl" || fail "metrics.jsonl has a torn line"
  grep -vE "failed, the job goes on and tries again|is written again|^forge: stopped" "$work/screen" | cmp -s - <(grep -v "^stopped: " "$run/log.txt") ||
    fail "log.txt is not what the screen shows"
done
# Still full when it is told to leave: it can't save, and says so.
start_long_run
ends_with 5
expect 0 "whole" "$forge" verify-checkpoint "$work/disk/saved"
finish
