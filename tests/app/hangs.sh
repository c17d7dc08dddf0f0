#!/usr/bin/env bash
# hangs.sh FORGE: a rank that is killed, stops or computes without end, at whatever place, ends the job in time, with the code and a
# line that names exactly it; a long checkpoint doesn't. FORGE_LONG=1: at every place, each rank in turn.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/cases.sh"

first=8 later=5 # deadlines
head -c 4000 docs/running.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 6, global_batch_sequences: 6, sequence_tokens: 16, precision: fp32, validate_every_steps: 3}
optimizer: {learning_rate: 1e-3}
data: {files: [$work/tokens.bin], validation_files: [$work/tokens.bin], dtype: uint16}
checkpoint: {directory: $work/saved, every_steps: 2}
output: {directory: $work/run, sample_tokens: 4, save_hf: true}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: $first, deadline_seconds: $later}
YAML
deck=$work/deck.yaml
expect 2 "FORGE_FAULT=kill:1" env FORGE_FAULT=kill:1 "$forge" "$deck"
expect 0 "6/6" env FORGE_FAULT=slow:0:3:0.5 "$forge" "$deck"

job() { # FAULT VERB… : three ranks, from nothing
  local fault=$1
  shift
  rm -rf "$work/saved" "$work/run"
  timeout -s KILL 280 mpirun -n 3 -x "FORGE_FAULT=$fault" "$forge" "$@" < /dev/null
}
# How long the job takes here and now when nothing is wrong: machines under load are slow.
start=$SECONDS
expect 0 "6/6" job slow:0:1:0 "$deck"
usual=$((SECONDS - start + 1))

# Whether a try says nothing: a machine under load may miss a deadline before the fault comes, in MPI_Init say, and the mpirun of PMIx
# 4.2 has been seen to crash in its own end, behind all that forge had said.
says_nothing() { # CODE TEXT
  if [ "$1" -eq 86 ]; then
    ! grep -qF -- "$2" "$work/output" && ! grep -q "no answer" "$work/output"
  else
    [ "$1" -eq 139 ] && grep -q "PMIx_server_finalize" "$work/output"
  fi
}
# CODE TEXT FAULT VERB…: as expect; a try that says nothing is made once more.
expect_job() {
  local code=$1 text=$2 try got
  shift 2
  for try in 1 2 3; do
    got=0 started=$SECONDS
    job "$@" > "$work/output" 2>&1 || got=$?
    says_nothing $got "$text" || break
  done
  [ $got -eq "$code" ] && grep -qF -- "$text" "$work/output" || fail "exit code $got, not $code and '$text': $* (try $try): $(cat "$work/output")"
}
# CODE TEXT DEADLINE FAULT VERB…: the job ends at the deadline and five seconds, its steps until then aside.
ends_with() {
  local code=$1 text=$2 deadline=$3
  shift 3
  expect_job "$code" "$text" "$@"
  note_time $((SECONDS - started - deadline))
}
others() { # RANK: "0, 2"
  case $1 in 0) echo "1 to 2" ;; 1) echo "0, 2" ;; *) echo "0 to 1" ;; esac
}

# A rank that stops is named, and nobody else; the others say what they do. Of MPI's own start and end a rank knows its own part only.
stops() { # RANK PLACE WHAT VERB…
  local rank=$1 place=$2 what=$3 silent report
  shift 3
  silent="rank $rank: no answer from $(uname -n), stopped or lost"
  report="rank $(others "$rank"): $what"
  if [ "$rank" = 0 ]; then report="$silent; $report"; else report="$report; $silent"; fi
  [[ $place != init && $place != finalize ]] || report=" on $(uname -n): $what"
  ends_with 86 "$report" $first "stop:$rank:$place" "$@"
}
places=("start|start" "mesh|communicators" "save|step 2, checkpoint" "validation|step 3, validation" "sampling|sampling" "export|export" "end|end")
cases=0
while IFS='|' read -r rank place what verb; do
  # shellcheck disable=SC2086
  stops "$rank" "$place" "$what" ${verb//DECK/$deck}
  cases=$((cases + 1))
done < <(for rank in 0 1 2; do
  for place in "${places[@]}"; do echo "$rank|$place|DECK"; done
  echo "$rank|gradients|step 1, gradients|gradients DECK --output $work/g.st"
  echo "$rank|evaluation|evaluation|evaluate DECK --initial"
  echo "$rank|init|MPI_Init|DECK"
  echo "$rank|finalize|MPI_Finalize|DECK"
done | drawn stops 1)
while IFS='|' read -r rank place what; do
  ends_with 86 "rank 0 to 2: $what" $first "hang:$rank:$place" "$deck"
  cases=$((cases + 1))
done < <(for rank in 0 1 2; do for place in "${places[@]}"; do echo "$rank|$place"; done; done | drawn hangs 1)
if is_long; then expected=$((3 * 11 + 3 * 7)); else expected=2; fi
[ $cases -eq $expected ] || fail "$cases cases, not $expected"

# In a step.
ends_with 137 "signal 9" 0 kill:1:4 "$deck"
ends_with 86 "rank 0: no answer from $(uname -n), stopped or lost; rank 1 to 2: step 4, labels" $later stop:0:4 "$deck"
ends_with 86 "rank 0, 2: step 4, labels; rank 1: step 4, data" $later hang:1:4 "$deck"
tail -n 1 "$work/run/log.txt" | grep -q "^stopped: a deadline was missed .* rank 1: step 4, data (exit code 86)\$" || fail "the log doesn't say why it stopped: $(tail -n 2 "$work/run/log.txt")"
if is_long; then
  ends_with 86 "rank 0 to 1: step 4, labels; rank 2: no answer" $later stop:2:4 "$deck"
  ends_with 86 "rank 0: step 4, labels; rank 1 to 2: no answer" $later stop:1:4,stop:2:4 "$deck"
  ends_with 86 "rank 0 to 1: no answer from $(uname -n), stopped or lost; rank 2: step 4, labels" $later stop:1:4,stop:0:4 "$deck"
fi
if has_thread_ranks; then
  expect 86 "rank 0 to 1: step 4, labels; rank 2: step 4, data" env FORGE_FAULT=hang:2:4 "$forge" "$deck" --ranks 3 --fresh
fi

# Writing a checkpoint takes longer than the deadline, but goes on.
while read -r rank options; do
  # shellcheck disable=SC2086
  expect_job 0 "model written" "slow:$rank:write:0.15" "$deck" --set checkpoint.every_steps=6 $options
  [ $((SECONDS - started)) -ge $((first + 2)) ] || fail "the checkpoint took less than its deadline: this tests nothing"
done < <(for rank in 0 1 2; do printf '%s\n' "$rank" "$rank --set checkpoint.asynchronous=true"; done | drawn saves 1)
check_times $((5 + usual))
finish
