#!/usr/bin/env bash
# sbatch jobscripts/slurm_cpu.sh DECK [ARGUMENTS for forge]: a CPU partition, two ranks a node (one a socket), threads for the
# rest. As slurm_gpu.sh it saves in time and goes on when it is started again.
#SBATCH --job-name=forge
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
set -uo pipefail
[ -n "${SLURM_JOB_ID:-}" ] || { echo "${0##*/} is a job script; legal: sbatch $0 DECK" >&2; exit 2; }
# Slurm runs a copy of this script: what it belongs to is FORGE_ROOT, or where sbatch was called, or what holds the original.
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
command=$(squeue -h -j "$SLURM_JOB_ID" -o %o | head -n 1)
[ -e "$root/jobscripts/job.sh" ] || root=$(dirname "${command%" $*"}")/..
. "$root/jobscripts/job.sh" || exit 2
forge=$(find_forge cpu) || exit 2
[ $# -ge 1 ] || { echo "${0##*/}: the deck is missing" >&2; exit 2; }
deck=$1
shift

export OMP_PLACES=cores OMP_PROC_BIND=close
run_job --distribution=block:cyclic "$forge" "$deck" --set checkpoint.resume=auto "$@"
