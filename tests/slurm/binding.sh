#!/usr/bin/env bash
# binding.sh: inside `cluster.sh --real-cpus`: each rank of a job script runs on as many CPUs as the script asks for, as Slurm binds it.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"
cpus=$(nproc --all)
[ "$cpus" -gt 1 ] || { echo "SKIPPED: one CPU leaves nothing to bind"; exit 77; }

# In the place of forge, a program that tells its CPUs (nproc believes OMP_NUM_THREADS).
rm "$FORGE_ROOT/build/cpu/forge"
printf '#!/bin/sh\necho "$(env -u OMP_NUM_THREADS nproc) CPUs, $OMP_NUM_THREADS threads"\n' > "$FORGE_ROOT/build/cpu/forge"
chmod +x "$FORGE_ROOT/build/cpu/forge"
expect 0 "Submitted" sbatch --wait --nodes=2 --ntasks-per-node=1 --cpus-per-task="$cpus" --output="$work/binding.out" \
  "$repository/jobscripts/slurm_cpu.sh" "$work/none.yaml"
[ "$(grep -cx "$cpus CPUs, $cpus threads" "$work/binding.out")" = 2 ] || fail "other than $cpus CPUs: $(cat "$work/binding.out")"
finish
