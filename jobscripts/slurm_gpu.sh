#!/usr/bin/env bash
# sbatch jobscripts/slurm_gpu.sh [DECK] [ARGUMENTS for forge]: 8 nodes of 4 GPUs, one rank a GPU. Saves on preemption and before the
# time limit, and goes on by itself when Slurm starts it again (docs/running.md).
#SBATCH --job-name=forge
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@300
set -uo pipefail
[ -n "${SLURM_JOB_ID:-}" ] || { echo "${0##*/} is a job script; legal: sbatch $0 [DECK]" >&2; exit 2; }
# Slurm runs a copy of this script: what it belongs to is FORGE_ROOT, or where sbatch was called, or what holds the original.
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
command=$(squeue -h -j "$SLURM_JOB_ID" -o %o | head -n 1)
[ -e "$root/jobscripts/job.sh" ] || root=$(dirname "${command%" $*"}")/..
. "$root/jobscripts/job.sh" || exit 2
forge=$(find_forge cuda) || exit 2
deck=${1:-$root/inputs/7b_32gpu_fsdp.yaml}
[ $# -eq 0 ] || shift

# Collectives of NCCL: the interface for its start-up (a name as `ip link` shows it), and the InfiniBand adapters it may use. Wrong
# interfaces are the usual cause of a hang in the first step; NCCL_DEBUG=INFO shows what it chose.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^lo,docker}
# export NCCL_IB_HCA=mlx5

# A rank takes the GPU of its number on the node; it must see all of them, so no --gpus-per-task. Cores are bound near it.
run_job --distribution=block:block "$forge" "$deck" --set checkpoint.resume=auto "$@"
