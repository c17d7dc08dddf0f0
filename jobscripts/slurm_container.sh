#!/usr/bin/env bash
# sbatch jobscripts/slurm_container.sh IMAGE.sif DECK [ARGUMENTS for forge]: forge in an Apptainer image that has it installed in
# /opt/forge, as forge.def makes it. The image's MPI must speak the PMIx of the cluster's Slurm; the host's driver comes in with --nv.
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
[ -n "${SLURM_JOB_ID:-}" ] || { echo "${0##*/} is a job script; legal: sbatch $0 IMAGE.sif DECK" >&2; exit 2; }
# Slurm runs a copy of this script: what it belongs to is FORGE_ROOT, or where sbatch was called, or what holds the original.
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
command=$(squeue -h -j "$SLURM_JOB_ID" -o %o | head -n 1)
[ -e "$root/jobscripts/job.sh" ] || root=$(dirname "${command%" $*"}")/..
. "$root/jobscripts/job.sh" || exit 2
[ $# -ge 2 ] || { echo "${0##*/}: takes an image and a deck" >&2; exit 2; }
image=$1 deck=$2
shift 2

# As in slurm_gpu.sh: the interface of NCCL's start-up.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^lo,docker}

# Data, checkpoints and the run directory lie outside of the image.
run_job --distribution=block:block apptainer exec --nv --bind "$PWD" "$image" /opt/forge/bin/forge "$deck" \
  --set checkpoint.resume=auto "$@"
