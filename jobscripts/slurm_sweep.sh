#!/usr/bin/env bash
# sbatch --array=0-5 jobscripts/slurm_sweep.sh DECK [ARGUMENTS for forge]: one job for each line of the table below, each with its own
# directories.
#SBATCH --job-name=forge-sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
set -uo pipefail
[ -n "${SLURM_JOB_ID:-}" ] || { echo "${0##*/} is a job script; legal: sbatch --array=0-5 $0 DECK" >&2; exit 2; }
# Slurm runs a copy of this script: what it belongs to is FORGE_ROOT, or where sbatch was called, or what holds the original.
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
command=$(squeue -h -j "$SLURM_JOB_ID" -o %o | head -n 1)
[ -e "$root/jobscripts/job.sh" ] || root=$(dirname "${command%" $*"}")/..
. "$root/jobscripts/job.sh" || exit 2
forge=$(find_forge cuda) || exit 2
[ $# -ge 1 ] || { echo "${0##*/}: the deck is missing" >&2; exit 2; }
deck=$1
shift

sweep=(
  "optimizer.learning_rate=1e-4"
  "optimizer.learning_rate=3e-4"
  "optimizer.learning_rate=1e-3"
  "optimizer.learning_rate=1e-4 optimizer.weight_decay=0"
  "optimizer.learning_rate=3e-4 optimizer.weight_decay=0"
  "optimizer.learning_rate=1e-3 optimizer.weight_decay=0"
)
options=()
for setting in ${sweep[${SLURM_ARRAY_TASK_ID:?this script is for sbatch --array=0-5}]:?the table has no such line}; do
  options+=(--set "$setting")
done
run=runs/sweep_$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID

run_job --distribution=block:block "$forge" "$deck" --set checkpoint.resume=auto "$@" "${options[@]}" \
  --set "output.directory=$run" --set "checkpoint.directory=$run/checkpoints"
