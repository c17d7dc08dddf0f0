#!/usr/bin/env bash
# sbatch --array=0-5 jobscripts/slurm_sweep.sh DECK: one job for each line of the table below, each with its own directories.
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

# When the job's time is over, where Slurm doesn't say it (22.05 doesn't): forge saves before.
export SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s 2> /dev/null)}
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  "$root/build/cuda/forge" "$deck" "${options[@]}" --set "output.directory=$run" --set "checkpoint.directory=$run/checkpoints" \
  --set checkpoint.resume=auto
code=$?
if [ $code -eq 75 ] || { [ $code -eq 86 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; }; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
