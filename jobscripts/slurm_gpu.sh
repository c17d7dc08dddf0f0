#!/usr/bin/env bash
# sbatch jobscripts/slurm_gpu.sh [DECK] [ARGUMENTS for forge]: 8 nodes of 4 GPUs, one rank a GPU. Saves on preemption and before the
# time limit, and goes on by itself when Slurm starts it again.
#SBATCH --job-name=forge
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@300
set -uo pipefail
# Slurm runs a copy of this script: the checkout is where sbatch was called.
root=${FORGE_ROOT:-$SLURM_SUBMIT_DIR}
deck=${1:-$root/inputs/7b_32gpu_fsdp.yaml}
[ $# -eq 0 ] || shift

# When the job's time is over, where Slurm doesn't say it (22.05 doesn't): forge saves before.
export SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s 2> /dev/null)}
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
# Collectives of NCCL: the interface for its start-up (a name as `ip link` shows it), and the InfiniBand adapters it may use. Wrong
# interfaces are the usual cause of a hang in the first step; NCCL_DEBUG=INFO shows what it chose.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^lo,docker}
# export NCCL_IB_HCA=mlx5
# Bitwise repeatable sums want one algorithm.
export NCCL_ALGO=${NCCL_ALGO:-Ring} NCCL_PROTO=${NCCL_PROTO:-Simple}

# A rank takes the GPU of its number on the node; it must see all of them, so no --gpus-per-task. Cores are bound near it.
# Without --kill-on-bad-exit a rank that was killed alone on its node would leave the others waiting for ever.
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores --distribution=block:block \
  "$root/build/cuda/forge" "$deck" --set checkpoint.resume=auto "$@"
code=$?
# 75: saved because of a signal or the time limit. 86: a rank or its node didn't answer; that is tried again five times. Slurm by
# itself starts jobs again only where it preempts them or sees that a node is lost.
if [ $code -eq 75 ] || { [ $code -eq 86 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; }; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
