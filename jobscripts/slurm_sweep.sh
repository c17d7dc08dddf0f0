#!/usr/bin/env bash
# sbatch --array=0-5 jobscripts/slurm_sweep.sh DECK: one job for each line of the table below, each with its own directories.
#SBATCH --job-name=forge-sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
set -uo pipefail
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
deck=${1:?the deck is missing}

sweep=(
  "optimizer.learning_rate=1e-4"
  "optimizer.learning_rate=3e-4"
  "optimizer.learning_rate=1e-3"
  "optimizer.learning_rate=1e-4 optimizer.weight_decay=0"
  "optimizer.learning_rate=3e-4 optimizer.weight_decay=0"
  "optimizer.learning_rate=1e-3 optimizer.weight_decay=0"
)
options=()
for setting in ${sweep[$SLURM_ARRAY_TASK_ID]:?the table has no such line}; do options+=(--set "$setting"); done
run=runs/sweep_$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun --mpi=pmix --kill-on-bad-exit=1 --cpu-bind=cores \
  "$root/build/cuda/forge" "$deck" "${options[@]}" --set "output.directory=$run" --set "checkpoint.directory=$run/checkpoints" \
  --set checkpoint.resume=auto
