#!/usr/bin/env bash
# kills.sh FORGE [KILLS]: a job of two ranks is killed again and again, a rank or its launcher: at any moment, and aimed at each of the
# moments in which a directory has a passing name: a step is being written, removed or replaced; and while it starts. Every committed step
# that was seen is there later, or as many newer ones as are kept; and the run ends as one that was never killed. FORGE_KILLS_SEED in the
# environment: other moments. FORGE_LONG=1: 200 kills.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
kills=${2:-$(is_long && echo 200 || { is_third && echo 8 || echo 20; })}
seed=${FORGE_KILLS_SEED:-7}
RANDOM=$seed
last=60 keep=2

cat docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 4, width: 128, heads: 2, ffn: 256, vocabulary: 256}
train: {steps: $last, global_batch_sequences: 4, sequence_tokens: 32, precision: fp32, zero_stage: 1}
optimizer: {learning_rate: 1e-2}
data: {files: [$work/tokens.bin], dtype: uint16}
checkpoint: {every_steps: 1, keep_last: $keep, resume: auto}
output: {every_steps: 20}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
job() { # NAME OPTIONS…
  local name=$1
  shift
  exec mpirun -n 2 "$forge" "$work/deck.yaml" --set "checkpoint.directory=$work/$name" --set "output.directory=$work/$name.run" "$@"
}
numbers() { sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$1"; }
name_of() { printf 'step_%08d' "$1"; }
same_end() { # of a run that is done
  for shard in 0 1; do
    cmp -s "$work/whole/$(name_of $last)/shard_0000$shard.h5" "$work/killed/$(name_of $last)/shard_0000$shard.h5" ||
      fail "the run ends with another state"
  done
  cmp -s <(numbers "$work/whole.run/metrics.jsonl") <(numbers "$work/killed.run/metrics.jsonl") ||
    fail "the run has other metrics: $(diff <(numbers "$work/whole.run/metrics.jsonl") <(numbers "$work/killed.run/metrics.jsonl"))"
}

(job whole) > "$work/output" 2>&1 || fail "the undisturbed run fails: $(cat "$work/output")"

runs() { [ -r "/proc/$1/status" ] && ! grep -q "^State:.Z" "/proc/$1/status" 2> /dev/null; } # PID
# Committed steps now, the oldest first, into `there`, but for the one that this script puts there (which may go between two questions:
# its mark is asked for first). Without a process: it is asked often.
fake=none # a directory that looks like a step
committed() {
  local path
  there=()
  for path in "$work"/killed/step_*; do
    [ -e "$path/fake" ] || [ ! -e "$path" ] || there+=($((10#${path##*_})))
  done
}
declare -A seen=() # committed steps, of the run so far
look() {
  local step
  committed
  for step in "${there[@]}"; do seen[$step]=1; done
}
newest() { committed && if [ ${#there[@]} -eq 0 ]; then echo 0; else echo "${there[-1]}"; fi; }
# Every step that was seen is there, or enough newer ones: at any moment. (Twice: a listing takes a while.)
nothing_lost() {
  local step newer other lost
  for _ in 1 2 3; do
    look
    lost=
    for step in "${!seen[@]}"; do
      newer=0
      for other in "${there[@]}"; do
        [ "$other" -ne "$step" ] || continue 2
        [ "$other" -lt "$step" ] || newer=$((newer + 1))
      done
      [ $newer -ge $keep ] || lost+="$step "
    done
    [ -n "$lost" ] || return 0
    sleep 0.1
  done
  fail "step $lost was seen and is lost; there are ${there[*]}"
}
hidden() { compgen -G "$work/killed/.step_*.$1" > /dev/null; }
# Files that make the removal of a directory take a while; it may go meanwhile.
ballast() { seq -f "$1/ballast.%g" 4000 | xargs touch 2> /dev/null || true; }

# Waits for the moment that is aimed at. `from`: the newest step at the start, `launcher`: the job.
wait_until_trains() {
  while kill -0 "$launcher" 2> /dev/null; do
    look
    [ ${#there[@]} -eq 0 ] || [ "${there[-1]}" -lt $((from + $1)) ] || [ "${there[-1]}" -ge $last ] || return 0
    sleep 0.01
  done
}
wait_for_window() { # KIND
  while kill -0 "$launcher" 2> /dev/null && ! hidden "$1"; do look; done
}
aim_at() {
  case $1 in
    start) sleep "0.$(printf %03d $((100 + RANDOM % 800)))" ;;
    any) # a few steps on, and at any moment of one: each saves, and removes an older one
      wait_until_trains $((1 + RANDOM % 7))
      sleep "0.$(printf %03d $((RANDOM % 100)))"
      ;;
    partial)
      wait_until_trains 1
      wait_for_window partial
      ;;
    removed) wait_for_window removed ;;
    replaced) # a step that will be saved stands there already, as somebody's copy
      wait_until_trains 1
      fake=$work/killed/$(name_of $(($(newest) + 5)))
      mv -nT "$work/fake" "$fake"
      wait_for_window replaced
      ;;
  esac
}

# All steps, or the newest, which ranks that are still ending may have removed behind newer ones meanwhile: then the one that is it now.
verified() { # "" or newest
  local name try
  for try in 1 2 3; do
    name=${1:+/$(name_of "$(newest)")}
    ! "$forge" verify-checkpoint "$work/killed$name" > "$work/verify" 2>&1 || return 0
    [ -n "$name" ] && [ ! -e "$work/killed$name" ] || return 1
  done
  return 1
}

# Waits for the launcher, which ends when its ranks are gone; but for PMIx 4.2, which has been seen to wait for itself when a rank was
# killed while the two were greeting each other: it says so, and this script ends it.
wait_for_launcher() {
  local end=$((SECONDS + 300)) rank
  while runs "$launcher"; do
    if [ $SECONDS -gt $end ]; then
      for rank in "${ranks[@]}"; do ! runs "$rank" || fail "rank $rank of a killed job doesn't end: $(cat "$work/output")"; done
      grep -q "PMIX ERROR: UNREACHABLE" "$work/output" || fail "the launcher of a killed job doesn't end: $(cat "$work/output")"
      kill -KILL "$launcher"
      hung=$((hung + 1))
    fi
    sleep 0.02
  done
  wait "$launcher"
}

done_kills=0 ends=0 launchers=0 started=0 hung=0
declare -A found=([partial]=0 [removed]=0 [replaced]=0 [start]=0) # kills that left such a directory; that hit a start
missed() { # into `aim`: one that no kill has hit
  for aim in "${!found[@]}"; do [ "${found[$aim]}" -gt 0 ] || return 0; done
  return 1
}
aims=(any partial removed start replaced)
options=() ending=()
while [ $done_kills -lt "$kills" ] || { missed && [ $done_kills -lt $((2 * kills)) ]; }; do
  [ "$failures" -lt 3 ] || finish
  from=$(newest)
  # A fresh start moves what a finished run has left aside.
  fresh=false
  [[ " ${options[*]-} " != *" --fresh "* ]] || fresh=true
  ! $fresh || from=0
  [ $done_kills -ge "$kills" ] || aim=${aims[done_kills % ${#aims[@]}]}
  ! $fresh || aim=any
  case $aim in
    removed) # the older one of those that are kept is the next one to go
      committed
      [ ${#there[@]} -lt $keep ] || ballast "$work/killed/$(name_of "${there[0]}")"
      ;;
    replaced)
      rm -rf "$work/fake" && mkdir "$work/fake" && touch "$work/fake/fake"
      ballast "$work/fake"
      ;;
  esac
  [ $((RANDOM % 3)) -ne 1 ] || options+=(--set checkpoint.asynchronous=true)
  (job killed "${options[@]}") > "$work/output" 2>&1 &
  launcher=$!
  options=()
  aim_at $aim
  mapfile -t ranks < <(pgrep -P $launcher -x "$(basename "$forge")" || true)
  target=$launcher
  [ ${#ranks[@]} -eq 0 ] || [ $((RANDOM % 2)) -eq 0 ] || target=${ranks[$((RANDOM % ${#ranks[@]}))]}
  if kill -KILL "$target" 2> /dev/null; then
    done_kills=$((done_kills + 1))
    [ "$target" -ne "$launcher" ] || launchers=$((launchers + 1))
    [ ${#ranks[@]} -eq 0 ] || started=$((started + 1))
    [ ${#ranks[@]} -eq 0 ] || $fresh || [ "$(newest)" -ne "$from" ] || found[start]=$((found[start] + 1))
  fi
  code=0
  wait_for_launcher || code=$?
  for kind in partial removed replaced; do ! hidden $kind || found[$kind]=$((found[$kind] + 1)); done
  # Half of the next starts follow at once, while ranks may still be ending; half of them when these are gone, and those behind
  # a fresh start, whose ranks may still move the finished run aside.
  all=newest
  ending+=("${ranks[@]}")
  if [ $((RANDOM % 2)) -eq 0 ] || $fresh || [ -e "$fake" ]; then
    for rank in "${ending[@]}"; do while runs "$rank"; do sleep 0.05; done; done
    ending=()
    all=
  fi
  [ ! -e "$fake/fake" ] || rm -rf "$fake"
  fake=none
  ! $fresh || seen=()
  nothing_lost
  [ "$(newest)" -eq 0 ] || verified "$all" || fail "${all:-a step} is damaged: $(cat "$work/verify")"
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
[ ! -e "$(ls -d "$work"/killed/.[!.]* 2> /dev/null | head -1)" ] || fail "left over: $(ls -A "$work/killed")"
[ $((started * 2)) -ge "$kills" ] || fail "only $started kills hit running ranks"
for kind in "${!found[@]}"; do [ "${found[$kind]}" -gt 0 ] || fail "no kill hit this moment: $kind"; done
echo "seed $seed: $done_kills kills, $launchers of the launcher, $started of ranks that ran, ${found[start]} before they had saved;" \
  "${found[partial]} left an unfinished checkpoint, ${found[removed]} one being removed, ${found[replaced]} one being replaced;" \
  "$ends runs were done before; $hung times PMIx waited for itself"
finish
