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
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
deck=${1:?the deck is missing}
shift

# When the job's time is over, where Slurm doesn't say it (22.05 doesn't): forge saves before.
export SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s 2> /dev/null)}
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK OMP_PLACES=cores OMP_PROC_BIND=close
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores --distribution=block:cyclic \
  "$root/build/cpu/forge" "$deck" --set checkpoint.resume=auto "$@"
code=$?
if [ $code -eq 75 ] || { [ $code -eq 86 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; }; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
