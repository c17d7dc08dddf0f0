#!/usr/bin/env bash
# locks.sh FORGE SHIM: one writer at a time for each checkpoint.directory and output.directory. A second start waits for half a minute and
# is refused with the holder's name, a killed job is no obstacle, and no start removes what isn't its own. Where flock is missing (SHIM),
# too. FORGE_LONG=1: more pairs of writers.
set -euo pipefail
forge=$1
shim=$2
. "$(dirname "$0")/expect.sh"
rounds=$(is_long && echo 20 || echo 3)

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 60, global_batch_sequences: 4, sequence_tokens: 16, precision: fp32}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {directory: $work/saved, every_steps: 1, keep_last: 1, resume: auto}
output: {directory: $work/run, every_steps: 1}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 300}
YAML
deck=$work/deck.yaml
in_directories() { printf '%s\n' --set "checkpoint.directory=$work/$1" --set "output.directory=$work/$2"; } # for "$(…)" of arrays
newest() { (cd "$1" 2> /dev/null && ls -d step_* 2> /dev/null | tail -1) || true; }
trains() { [ -n "$(newest "$work/$1")" ]; }
wait_for() { # PID COMMAND…: while that process runs
  local pid=$1
  shift
  until "$@" > /dev/null 2>&1; do
    kill -0 "$pid" 2> /dev/null || { fail "process $pid ended before: $*"; return; }
    sleep 0.05
  done
}
# start NAME COMMAND…: in the background, its output in NAME.out, its number in `started`.
start() {
  local name=$1
  shift
  "$@" > "$work/$name.out" 2>&1 &
  started=$!
}
ends() { # PID NAME CODE TEXT
  local code=0
  wait "$1" || code=$?
  [ $code -eq "$3" ] || fail "$2 ends with $code, not $3: $(cat "$work/$2.out")"
  grep -qF -- "$4" "$work/$2.out" || fail "no '$4' from $2: $(cat "$work/$2.out")"
}
without_flock=(env "LD_PRELOAD=$shim" "FORGE_IO_DIRECTORY=$work" FORGE_IO_FAULT=flock:1:38:more)
long=(--set train.steps=1000000)
refused() { # NAME KEY PID LOCK: the refusal names node, process and start
  grep -qE "$2 .* is in use by another forge job \($(hostname), process $3, since 20[0-9-]+ [0-9:]+ UTC\), which holds $4; wait for it to end" \
    "$work/$1.out" || fail "$1 doesn't name the holder: $(cat "$work/$1.out")"
}

# What waits for seconds by itself runs at once.
# 1. A job; a second start with its checkpoint.directory, one with its output.directory.
mapfile -t first < <(in_directories first first.run)
start first "$forge" "$deck" "${long[@]}" "${first[@]}"
holder=$started
wait_for $holder trains first
mapfile -t options < <(in_directories first second.run)
start second "$forge" "$deck" "${options[@]}"
second=$started
mapfile -t options < <(in_directories third first.run)
start third "$forge" "$deck" "${options[@]}"
third=$started
# 2. The same without flock, where only the text of the lock's file counts; and a job that is killed there.
mapfile -t texts < <(in_directories texts texts.run)
start texts "${without_flock[@]}" "$forge" "$deck" "${long[@]}" "${texts[@]}"
text_holder=$started
wait_for $text_holder trains texts
mapfile -t options < <(in_directories texts texts2.run)
start texts2 "${without_flock[@]}" "$forge" "$deck" "${options[@]}"
texts2=$started
mapfile -t killed < <(in_directories killed killed.run)
start killed "${without_flock[@]}" "$forge" "$deck" "${long[@]}" "${killed[@]}"
wait_for $started trains killed
kill -KILL $started
wait $started 2> /dev/null || true
# Unfinished steps of other jobs, one that may be alive and one that has not been written to for hours; files of a person's.
other=$work/killed/.step_00000007.0123456789abcdef.partial old=$work/killed/.step_00000008.fedcba9876543210.partial
mkdir "$other" "$old"
touch "$other/shard_00001.h5" "$work/killed/notes.tmp" "$work/killed.run/notes.tmp" "$work/killed.run/.0123456789abcdef.tmp"
touch -d '2 hours ago' "$old/shard_00001.h5" "$old"
start killed "${without_flock[@]}" "$forge" "$deck" --set train.steps=$((10#$(newest "$work/killed" | cut -c 6-) + 5)) "${killed[@]}"
killed_again=$started

# Who only reads needs no lock.
expect 0 "deck" "$forge" show --all --deck "$deck" "${first[@]}"
kill -STOP $holder # a step that is being removed can't be read
step=$work/first/$(newest "$work/first")
expect 0 "whole" "$forge" verify-checkpoint "$step"
expect 0 "written" "$forge" export "$step" --output "$work/hf"
mapfile -t options < <(in_directories fourth fourth.run)
expect 0 "parameters  $work/first/step_" "$forge" "$deck" "${options[@]}" --set train.steps=1 --set "checkpoint.model_from=$work/first"
kill -CONT $holder

ends $killed_again killed 0 "only the text of $work/killed/.checkpoints.lock keeps other jobs from writing there"
grep -q "output.directory $work/killed.run: this file system has no locks; only the text of" "$work/killed.out" || fail "no warning of output.directory"
grep -q "restarted from $work/killed/step_" "$work/killed.out" || fail "it doesn't go on: $(cat "$work/killed.out")"
grep -q "$other may be of another job that runs still, and stays" "$work/killed.out" || fail "no word of what stays: $(cat "$work/killed.out")"
for file in "$other/shard_00001.h5" "$work/killed/notes.tmp" "$work/killed.run/notes.tmp" "$work/killed.run/.0123456789abcdef.tmp"; do
  [ -e "$file" ] || fail "a start removes $file, which is not its own"
done
[ ! -e "$old" ] || fail "an old left-over stays"
! ls "$work"/killed/.*lock "$work"/killed.run/.*lock 2> /dev/null || fail "a run that is done leaves its locks"
# With flock it is certain that nobody writes there.
expect 0 "nothing to train" "$forge" "$deck" --set train.steps=1 "${killed[@]}"
[ ! -e "$other" ] && [ ! -e "$work/killed.run/.0123456789abcdef.tmp" ] || fail "left-overs of a dead job stay"
[ -e "$work/killed/notes.tmp" ] && [ -e "$work/killed.run/notes.tmp" ] || fail "a start removes a person's files"

ends $second second 2 "checkpoint.directory $work/first is in use by another forge job"
refused second checkpoint.directory $holder "$work/first/.checkpoints.lock"
head -n 1 "$work/second.out" | grep -q "^forge: waiting: checkpoint.directory $work/first is in use by another forge job (.*); this start waits for it, up to 30 s" ||
  fail "it doesn't say at once that it waits: $(cat "$work/second.out")"
[ ! -e "$work/second.run" ] || fail "a start that is refused leaves $(ls -A "$work/second.run")"
ends $third third 2 "output.directory $work/first.run is in use by another forge job"
refused third output.directory $holder "$work/first.run/.lock"
ends $texts2 texts2 2 "checkpoint.directory $work/texts is in use by another forge job"
refused texts2 checkpoint.directory $text_holder "$work/texts/.checkpoints.lock"
# The holders have noticed nothing.
for pair in "$holder first" "$text_holder texts"; do
  read -r pid name <<< "$pair"
  kill -USR1 "$pid"
  ends "$pid" "$name" 75 "stopped: saved step_"
  expect 0 "whole" "$forge" verify-checkpoint "$work/$name"
  [ "$(ls "$work/$name" | wc -l)" -le 3 ] || fail "$name holds $(ls "$work/$name")"
done

# A start that is refused behind the locks leaves nothing: no file, and no directory that wasn't there.
leaves_nothing() { # CODE TEXT COMMAND…
  mkdir -p "$work/there"
  expect "$@" --set "checkpoint.directory=$work/there/a/saved" --set "output.directory=$work/new/b/run"
  [ -z "$(ls -A "$work/there")" ] || fail "'$2' leaves $(cd "$work/there" && find . -mindepth 1 | tr '\n' ' ')"
  [ ! -e "$work/new" ] || fail "'$2' leaves $(cd "$work/new" && find . | tr '\n' ' ')"
  rm -rf "$work/there" "$work/new"
}
for ranks in "" "--ranks 2"; do
  # shellcheck disable=SC2086 # two words
  leaves_nothing 2 "model.width = 32, the checkpoint has 16" "$forge" "$deck" $ranks --restart "$work/first" --set model.width=32
done
leaves_nothing 2 "model.width = 32, the checkpoint has 16" \
  mpirun -n 2 "$forge" "$deck" --set "checkpoint.model_from=$work/first" --set model.width=32
leaves_nothing 3 "neither a checkpoint" "$forge" "$deck" --set "checkpoint.model_from=$work/new"
leaves_nothing 3 "holds no checkpoint" "$forge" "$deck" --restart latest
leaves_nothing 2 "No such file" "$forge" "$deck" --set "data.files=[$work/no.bin]"
# Nor where the second of its directories can't be made.
touch "$work/file"
expect 2 "a part of it is a file" "$forge" "$deck" --set "checkpoint.directory=$work/file/saved" --set "output.directory=$work/new/b/run"
[ ! -e "$work/new" ] || fail "a checkpoint.directory that can't be made leaves $(cd "$work/new" && find . | tr '\n' ' ')"

# Two starts at once, with one checkpoint.directory: one after the other, and the end is that of one job. In every other round the one
# that trains is killed, and the other goes on.
numbers() { sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$1"; }
mapfile -t options < <(in_directories alone alone.run)
expect 0 "saved step_00000060" "$forge" "$deck" "${options[@]}"
took_over=0
for round in $(seq "$rounds"); do
  rm -rf "$work"/pair "$work"/pair?.run
  pids=()
  for name in a b; do
    mapfile -t options < <(in_directories pair pair$name.run)
    start pair$name "$forge" "$deck" "${options[@]}"
    pids+=($started)
  done
  if [ $((round % 2)) -eq 1 ]; then
    wait_for "${pids[0]}" trains pair
    killed=$(sed -nE '1s/.*, process ([0-9]+),.*/\1/p' "$work/pair/.checkpoints.lock" 2> /dev/null || true)
    [ -z "$killed" ] || ! kill -KILL "$killed" 2> /dev/null || took_over=$((took_over + 1))
  else
    killed=
  fi
  for i in 0 1; do
    name=pair$([ $i -eq 0 ] && echo a || echo b)
    if [ "${pids[i]}" = "$killed" ]; then wait "${pids[i]}" 2> /dev/null || true; else ends "${pids[i]}" $name 0 "memory of rank 0"; fi
  done
  expect 0 "step_00000060: whole" "$forge" verify-checkpoint "$work/pair"
  cmp -s "$work/alone/step_00000060/shard_00000.h5" "$work/pair/step_00000060/shard_00000.h5" || fail "two writers end with another state"
  [ "$(ls -A "$work/pair" | tr '\n' ' ')" = "latest step_00000060 " ] || fail "two writers leave $(ls -A "$work/pair")"
done
[ $took_over -gt 0 ] || fail "no writer was killed"

# Output and checkpoints in one directory.
mapfile -t options < <(in_directories both both)
expect 0 "saved step_00000060" "$forge" "$deck" "${options[@]}"
expect 0 "nothing to train" "$forge" "$deck" "${options[@]}"
echo "$rounds pairs of writers, $took_over of which one was killed"
finish
