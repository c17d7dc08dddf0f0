#!/usr/bin/env bash
# scripts.sh FORGE: the job scripts as they are, with the CPU build in the place of the CUDA build, and the decks of inputs/ as they are:
# with other settings behind them alone, which make the model small and the axes as many ranks as the script starts. Each script takes
# a deck that is drawn by commit; with FORGE_LONG=1 all of them.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"
. "$repository/tests/app/deck_values.sh"
. "$repository/tests/app/shrink_deck.sh"
install_forge

# settings DECK RANKS: into the variable `settings`.
settings() {
  local pp replicate shard cp tp ranks axes small mesh
  "$forge" show --all --deck "$1" > "$work/shown"
  shrink_deck "$work/shown" exactly "$2"
  [ "$ranks" -eq "$2" ] || fail "the twin of $1 has $ranks ranks, not $2"
  settings=("${small[@]}" "${mesh[@]}" --set train.steps=3 --set "data.files=[$work/tokens.bin]" --set data.dtype=uint16
    --set machine.threads=1)
  [ "$(value "$work/shown" data validation_files)" = "[]" ] || settings+=(--set "data.validation_files=[$work/tokens.bin]")
}

# decks NUMBER: what the script of this number takes.
decks() {
  if is_long; then
    printf '%s\n' "$repository"/inputs/*.yaml
  else
    draw_deck "$1"
  fi
}

# run RANKS TEXT DECK SBATCH-ARGUMENTS…: a job in a directory of its own that prints TEXT, ends well, and leaves its last checkpoint where
# the deck says.
runs=0
run() {
  local ranks=$1 text=$2 deck=$3 name settings job
  shift 3
  name=$(basename "$deck" .yaml)
  runs=$((runs + 1))
  echo "$ranks ranks: $name"
  settings "$deck" "$ranks"
  mkdir -p "$work/place"
  cd "$work/place"
  job=$(sbatch --parsable --output="$work/$runs.out" "$@" "$deck" "${settings[@]}")
  ends_as "$job" COMPLETED 900 "$work/$runs.out"
  grep -qF -- "$text" "$work/$runs.out" || fail "no '$text' from $* $deck: $(cat "$work/$runs.out")"
  [ -e "checkpoints/$name/step_00000003/manifest.sha256" ] || fail "$* $deck: no checkpoint in checkpoints/$name: $(cat "$work/$runs.out")"
  [ -s "runs/$name/metrics.jsonl" ] || fail "$* $deck: no metrics in runs/$name"
  [ -z "$(ls runs/jobs)" ] || fail "$* $deck: a job that is done leaves $(ls runs/jobs)"
  cd "$work"
  rm -rf "$work/place"
}

# Two lines of the sweep, side by side, submitted where the checkout is; one of them is told to leave in step 12, and goes on.
submit_sweep() { # DECK
  local settings
  echo "4 ranks: $(basename "$1")"
  settings "$1" 4
  settings+=(--set train.steps=30 --set optimizer.schedule=constant --set optimizer.warmup_steps=0)
  cd "$FORGE_ROOT"
  array=$(FORGE_ROOT='' FORGE_FAULT=slow:0:12:3 sbatch --parsable --array=1,3 --output="$work/sweep.%a.out" jobscripts/slurm_sweep.sh \
    "inputs/$(basename "$1")" "${settings[@]}")
  cd "$work"
  sweep=$FORGE_ROOT/runs/sweep_$array
  in_step_12() { grep -q '"step": 11,' "$sweep/3/metrics.jsonl"; }
  wait_until 180 in_step_12
  scancel --signal=USR1 "${array}_3"
}
look_at_sweep() {
  local line
  for line in 1 3; do
    wait_until 180 grep -q "saved step_00000030" "$work/sweep.$line.out"
  done
  wait_until 180 sh -c '[ -z "$(squeue -h)" ]'
  grep -q "stopped: saved step_00000012 and left: SIGUSR1" "$work/sweep.3.out" || fail "no word of the signal: $(cat "$work/sweep.3.out")"
  grep -q "restarted from runs/sweep_$array/3/checkpoints/step_00000012" "$work/sweep.3.out" ||
    fail "line 3 of the sweep did not go on: $(cat "$work/sweep.3.out")"
  ! grep -q "stopped\|restarted" "$work/sweep.1.out" || fail "line 1 of the sweep was disturbed: $(cat "$work/sweep.1.out")"
  rates() { grep '"loss"' "$sweep/$1/metrics.jsonl" | sed 's/.*"learning_rate": \([^,]*\),.*/\1/' | uniq -c | tr -s ' '; }
  [ "$(rates 1)" = " 30 3e-04" ] || fail "line 1 of the sweep trained with $(rates 1)"
  [ "$(rates 3)" = " 30 1e-04" ] || fail "line 3 of the sweep trained with $(rates 3)"
  grep -q "weight_decay: 0$" "$sweep/3/deck.yaml" || fail "line 3 of the sweep has $(grep weight_decay "$sweep/3/deck.yaml")"
  rm -rf "$sweep" "$work"/sweep.*.out
}

# A job of slurm_cpu.sh while the sweep runs, and waits to be started again.
mapfile -t cpu < <(decks 0)
mapfile -t swept < <(decks 3)
for i in "${!cpu[@]}"; do
  submit_sweep "${swept[i]}"
  run 8 "8 ranks on 4 nodes" "${cpu[i]}" "$repository/jobscripts/slurm_cpu.sh"
  look_at_sweep
done

# Of an installation, which nothing in the environment tells.
for deck in $(decks 1); do
  FORGE_ROOT='' run 32 "32 ranks on 8 nodes" "$installed/share/forge/inputs/$(basename "$deck")" "$installed/share/forge/jobscripts/slurm_gpu.sh"
done

# In place of Apptainer: what it is called with, and the program that the image would have.
mkdir "$CLUSTER/bin"
cat > "$CLUSTER/bin/apptainer" << 'STANDIN'
#!/bin/sh
[ "$1 $2 $3 $5" = "exec --nv --bind image.sif" ] && [ "$4" = "$PWD" ] || { echo "apptainer: unexpected $*"; exit 1; }
shift 5
[ "$1" = /opt/forge/bin/forge ] && shift || { echo "apptainer: no $1 in the image"; exit 1; }
exec "$FORGE_ROOT/build/cuda/forge" "$@"
STANDIN
chmod +x "$CLUSTER/bin/apptainer"
for deck in $(decks 2); do
  PATH=$CLUSTER/bin:$PATH run 32 "32 ranks on 8 nodes" "$deck" "$repository/jobscripts/slurm_container.sh" image.sif
done

if is_long; then least=$((3 * 62)); else least=3; fi
[ $runs -ge $least ] || fail "only $runs jobs"
nothing_left
finish
