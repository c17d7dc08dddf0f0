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
  local pp replicate shard cp tp ranks axes small mesh data
  "$forge" show --all --deck "$1" > "$work/shown"
  shrink_deck "$work/shown" exactly "$2"
  [ "$ranks" -eq "$2" ] || fail "the twin of $1 has $ranks ranks, not $2"
  shrink_data "$work/shown" "$work/tokens.bin" "$work/tokens.bin"
  settings=("${small[@]}" "${mesh[@]}" "${data[@]}" --set train.steps=3 --set machine.threads=1)
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

for deck in $(decks 0); do
  run 8 "8 ranks on 4 nodes" "$deck" "$repository/jobscripts/slurm_cpu.sh"
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
