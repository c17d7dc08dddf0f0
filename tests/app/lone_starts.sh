#!/usr/bin/env bash
# lone_starts.sh FORGE: a run of one rank without a launcher depends on no directory of other jobs, and leaves nothing behind; FORGE_LONG=1:
# 24 runs beside 4 of mpirun that end, 50 times.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
one=("$forge" gradients verify/llama/input.yaml)

# Where Open MPI has the directory that all jobs of a user share, there is something else.
mkdir "$work/tmp"
shared=$work/tmp/ompi.$(hostname).$(id -u)
touch "$shared"
TMPDIR=$work/tmp expect 0 "written" "${one[@]}" --output "$work/alone.safetensors"
[ "$(find "$work/tmp" -mindepth 1)" = "$shared" ] || fail "left behind: $(find "$work/tmp" -mindepth 1)"
# Nor does a failure leave anything.
TMPDIR=$work/tmp expect 2 "cannot open the deck" "$forge" gradients "$work/none.yaml" --output "$work/none.safetensors"
[ "$(find "$work/tmp" -mindepth 1)" = "$shared" ] || fail "left behind: $(find "$work/tmp" -mindepth 1)"

if is_long; then
  for round in $(seq 50); do
    for launch in 1 2 3 4; do
      (sleep 0.$((RANDOM % 100)) && mpirun -n 2 "${one[@]}" --output "$work/pair_$launch.safetensors" > /dev/null 2>&1) &
    done
    runs=()
    for run in $(seq 24); do
      (sleep 1.$((RANDOM % 100)) && "${one[@]}" --output "$work/run_$run.safetensors" > "$work/run_$run" 2>&1) &
      runs+=($!)
    done
    for run in "${runs[@]}"; do wait "$run" || fail "round $round: a run beside mpirun's that end fails: $(grep -h -A3 'unable\|error' "$work"/run_* | head -5)"; done
    wait
  done
fi
finish
