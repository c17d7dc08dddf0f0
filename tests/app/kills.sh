#!/usr/bin/env bash
# kills.sh FORGE [KILLS]: a job of two ranks is killed again and again, a rank or its launcher, at any moment: while it trains,
# saves, renames or removes. No committed checkpoint is lost, and the run ends as one that was never killed. FORGE_KILLS_SEED in the
# environment: other moments.
set -euo pipefail
forge=$1
kills=${2:-20}
. "$(dirname "$0")/expect.sh"
seed=${FORGE_KILLS_SEED:-7}
RANDOM=$seed

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 4, width: 128, heads: 2, ffn: 256, vocabulary: 256}
train: {steps: 60, global_batch_sequences: 4, sequence_tokens: 32, precision: fp32, zero_stage: 1}
optimizer: {learning_rate: 1e-2}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {every_steps: 1, keep_last: 2, resume: auto}
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

(job whole) > "$work/output" 2>&1 || fail "the undisturbed run fails: $(cat "$work/output")"

runs() { [ -r "/proc/$1/status" ] && ! grep -q "^State:.Z" "/proc/$1/status" 2> /dev/null; } # PID
step_of_newest() { # into the variable `step`; without a process: it is asked often
  local all=("$work"/killed/step_*)
  step=${all[-1]##*_}
  [ -d "${all[-1]}" ] || step=0
  step=$((10#$step))
}

done_kills=0 ends=0 launchers=0
declare -A found=([partial]=0 [removed]=0 [replaced]=0 [started]=0) # kills that left such a directory; that hit running ranks
options=() ending=()
while [ $done_kills -lt "$kills" ]; do
  [ "$failures" -lt 3 ] || finish
  before=$(newest "$work/killed")
  # A fresh start moves what a finished run has left aside.
  fresh=false
  [[ " ${options[*]-} " != *" --fresh "* ]] || fresh=true
  ! $fresh || before=
  from=${before#step_}
  from=$((10#${from:-0}))
  [ $((done_kills % 3)) -ne 1 ] || options+=(--set checkpoint.asynchronous=true)
  (job killed "${options[@]}") > "$work/output" 2>&1 &
  launcher=$!
  options=()
  # A few steps on, and at any moment of one: each saves, and removes an older one. Sometimes while the job starts.
  target=$((from + 1 + RANDOM % 7))
  if [ $((RANDOM % 8)) -eq 0 ]; then
    pause=$((RANDOM % 1500))
  else
    pause=$((RANDOM % 100))
    while kill -0 $launcher 2> /dev/null; do
      step_of_newest
      # A fresh start moves the finished run aside first.
      if [ $step -ge $target ] && [ $step -lt 60 ]; then break; fi
      sleep 0.01
    done
  fi
  sleep "$((pause / 1000)).$(printf %03d $((pause % 1000)))"
  mapfile -t ranks < <(pgrep -P $launcher -x "$(basename "$forge")" || true)
  target=$launcher
  [ ${#ranks[@]} -eq 0 ] || [ $((RANDOM % 2)) -eq 0 ] || target=${ranks[$((RANDOM % ${#ranks[@]}))]}
  if kill -KILL "$target" 2> /dev/null; then
    done_kills=$((done_kills + 1))
    [ "$target" -ne "$launcher" ] || launchers=$((launchers + 1))
    [ ${#ranks[@]} -eq 0 ] || found[started]=$((found[started] + 1))
  fi
  code=0
  wait $launcher || code=$?
  for kind in partial removed replaced; do
    ! compgen -G "$work/killed/.step_*.$kind" > /dev/null || found[$kind]=$((found[$kind] + 1))
  done
  after=$(newest "$work/killed")
  [ -z "$before" ] || [ "$after" = "$before" ] || [ "$after" \> "$before" ] || fail "$before was lost, $after is left"
  # Half of the next starts follow at once, while ranks may still be ending; half of them when these are gone, and those behind
  # a fresh start, whose ranks may still move the finished run aside.
  all=$after
  ending+=("${ranks[@]}")
  if [ $((RANDOM % 2)) -eq 0 ] || $fresh; then
    for rank in "${ending[@]}"; do while runs "$rank"; do sleep 0.05; done; done
    ending=()
    all=
  fi
  if [ -n "$after" ]; then
    "$forge" verify-checkpoint "$work/killed/$all" > "$work/verify" 2>&1 || fail "$after is damaged: $(cat "$work/verify")"
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
[ $((found[started] * 2)) -ge "$kills" ] || fail "only ${found[started]} kills hit running ranks"
echo "seed $seed: $done_kills kills, $launchers of the launcher, ${found[started]} of ranks that ran; ${found[partial]} left an unfinished" \
  "checkpoint, ${found[removed]} one being removed, ${found[replaced]} one being replaced; $ends runs were done before"
finish
