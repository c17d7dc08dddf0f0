#!/usr/bin/env bash
# errors.sh FORGE: what fails on one rank is told once, at once, and ends the job with its code, wherever the others wait for that
# rank, and whatever its own destructors would wait for. FORGE_LONG=1: at every place, on each rank in turn.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/cases.sh"

head -c 4000 docs/running.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 6, global_batch_sequences: 12, sequence_tokens: 16, precision: fp32, zero_stage: 1, validate_every_steps: 3}
optimizer: {learning_rate: 1e-3}
data: {files: [$work/tokens.bin], validation_files: [$work/tokens.bin], dtype: uint16}
checkpoint: {directory: $work/saved, every_steps: 2}
output: {directory: $work/run, sample_tokens: 4, save_hf: true}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
deck=$work/deck.yaml
ranks=3 # of a job
job() { # FAULT VERB… : as processes, from nothing
  local fault=$1
  shift
  rm -rf "$work/saved" "$work/run"
  timeout -s KILL 90 mpirun -n $ranks -x "FORGE_FAULT=$fault" "$forge" "$@" < /dev/null
}
# How long the job takes here and now when nothing is wrong: machines under load are slow.
start=$SECONDS
expect 0 "model written" job slow:0:1:0 "$deck"
usual=$((SECONDS - start + 1))

# CODE RANK FAULT VERB…: one message, of that rank, in time.
ends_with() {
  local code=$1 rank=$2 start=$SECONDS who=""
  shift 2
  [ "$rank" = 0 ] || who=" (rank $rank)"
  expect "$code" "forge: error$who: fails on purpose (FORGE_FAULT)" job "$@"
  note_time $((SECONDS - start))
  [ "$(grep -c "forge: error" "$work/output")" -eq 1 ] || fail "$* says it more than once: $(cat "$work/output")"
}
cases=0

train_places="init start mesh gradients save validation sampling export end finalize 1 4"
expected=0
while read -r rank place; do
  code=$((1 + (cases + rank) % 6))
  ends_with "$code" "$rank" "throw:$rank:$place:$code" "$deck"
  cases=$((cases + 1))
done < <(for place in $train_places; do for rank in 0 1 2; do echo "$rank $place"; done; done | drawn train 3)
if is_long; then expected=36; else expected=3; fi
[ $cases -eq $expected ] || fail "$cases cases of training, not $expected"

# Other verbs.
while read -r rank place verb; do
  # shellcheck disable=SC2086
  ends_with 6 "$rank" "throw:$rank:$place:6" ${verb//DECK/$deck}
  [ ! -e "$work/g.st" ] || fail "$verb leaves a file"
done < <(for rank in 0 1 2; do
  for case in "mesh gradients DECK --output $work/g.st" "gradients gradients DECK --output $work/g.st" "export gradients DECK --output $work/g.st" \
    "evaluation evaluate DECK --initial" "end evaluate DECK --initial"; do
    echo "$rank $case"
  done
done | drawn verbs 1)
ranks=2 ends_with 6 1 throw:1:gradients:6 verify verify/llama --set mesh.pp=2

# A checkpoint is written behind the steps, by another rank for five minutes, and this rank's thread waits for that one: its error
# doesn't.
while read -r rank; do
  ends_with 3 "$rank" "slow:$(((rank + 1) % ranks)):write:4,throw:$rank:4:3" "$deck" --set checkpoint.asynchronous=true
done < <(seq 0 2 | drawn saver 1)
# It fails itself, while the steps take their time. The next save would hear of it.
while read -r rank; do
  start=$SECONDS
  expect 5 "checkpoint: " job "fail:$rank:2:5,slow:0:4:300" "$deck" --set checkpoint.asynchronous=true
  grep -q "fails on purpose (FORGE_FAULT) (rank $rank)" "$work/output" || fail "no word of rank $rank: $(cat "$work/output")"
  note_time $((SECONDS - start))
done < <(seq 0 2 | drawn behind 1)

# Ranks that are threads.
if has_thread_ranks; then
  for fault in throw:2:gradients:6 throw:0:save:2; do
    expect "${fault##*:}" "fails on purpose (FORGE_FAULT)" env "FORGE_FAULT=$fault" timeout -s KILL 60 "$forge" "$deck" --ranks 3 --fresh
    [ "$(grep -c "forge: error" "$work/output")" -eq 1 ] || fail "$fault is told more than once: $(cat "$work/output")"
  done
fi

# Without a device the library fails, not forge.
if ! has_thread_ranks; then
  expect 6 "forge: error: cuda" env CUDA_VISIBLE_DEVICES= "$forge" evaluate "$deck" --initial
fi

# What every rank finds wrong is told once.
expect 2 "train.steps" job slow:0:1:0 "$deck" --set train.steps=-1
[ "$(grep -c "forge: error" "$work/output")" -eq 1 ] || fail "a wrong deck is told more than once: $(cat "$work/output")"
expect 2 "--nonsense" job slow:0:1:0 "$deck" --nonsense
[ "$(grep -c "forge: error" "$work/output")" -eq 1 ] || fail "a wrong option is told more than once: $(cat "$work/output")"

# Nothing half-written stays where writing itself fails.
mkdir "$work/small"
code=0
(trap '' XFSZ && ulimit -f 8 && exec "$forge" gradients "$deck" --output "$work/small/g.st") > "$work/output" 2>&1 || code=$?
[ $code -eq 5 ] || fail "exit code $code where the file may not grow: $(cat "$work/output")"
[ -z "$(ls -A "$work/small")" ] || fail "a failed write leaves $(ls -A "$work/small")"
check_times $((5 + usual))
finish
