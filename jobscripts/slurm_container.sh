#!/usr/bin/env bash
# sbatch jobscripts/slurm_container.sh IMAGE.sif DECK [ARGUMENTS for forge]: forge in an Apptainer image that has it as /opt/forge.
# The image's MPI must speak the PMIx of the cluster's Slurm; the host's driver comes in with --nv.
#SBATCH --job-name=forge
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@300
set -uo pipefail
image=${1:?the image is missing}
deck=${2:?the deck is missing}
shift 2

# When the job's time is over, where Slurm doesn't say it (22.05 doesn't): forge saves before.
export SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s 2> /dev/null)}
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
# Data, checkpoints and the run directory lie outside of the image.
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  apptainer exec --nv --bind "$PWD" "$image" /opt/forge/build/cuda/forge "$deck" --set checkpoint.resume=auto "$@"
code=$?
if [ $code -eq 75 ] || { [ $code -eq 86 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; }; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
