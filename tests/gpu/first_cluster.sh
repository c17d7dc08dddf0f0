#!/usr/bin/env bash
# tests/gpu/first_cluster.sh [OPTIONS]: what is to be known of forge in its first hour on several nodes with GPUs, in parts: collectives in
# the groups and sizes of five decks, into a machine file for forge plan; 12 layouts in fp64 against one rank; 20 steps of the decks, with
# profiles; the machine file fitted to them. Like first_day.sh it goes on where it was when it is called again.
# It needs: an allocation (salloc -N 2 --ntasks-per-node=8 --gpus-per-node=8 --exclusive --mem=0, or sbatch of it) or a launcher; the build
# and the output directory on a file system that all nodes see; ranks in a multiple of 8; what NCCL needs to know of the network in
# the environment (jobscripts/slurm_gpu.sh).
#   --ranks N          of the job, one a GPU; default: as many as Slurm's allocation has
#   --launch COMMAND   how ranks are started, with -n N behind it; default: srun in an allocation of Slurm, else mpirun
#   --machine NAME     what the measured machine is like in all but collectives; default: h100_8, or as the GPU's name says
#   --list, --part NAME, --again, --output DIR, --build DIR, --limit SECONDS, --rehearse: as of first_day.sh; default output: runs/first_cluster
# Ends with 0: all passed; 1: a case of correctness failed; 2: wrong options; 3: parts are unfinished; 4: only measurements failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
forwarded=(--output runs/first_cluster --parts "$here/first_cluster_parts.sh")
export FIRST_HOURS=first_cluster CLUSTER_RANKS CLUSTER_LAUNCH="" CLUSTER_MACHINE=""
CLUSTER_RANKS=${SLURM_NTASKS:-$((${SLURM_NNODES:-0} * ${SLURM_NTASKS_PER_NODE:-0}))}
while [ $# -gt 0 ]; do
  case $1 in
    --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit 0 ;;
    --ranks | --launch | --machine)
      [ $# -ge 2 ] || { echo "first_cluster: $1 needs a value; --help tells more" >&2 && exit 2; }
      case $1 in
        --ranks) CLUSTER_RANKS=$2 ;;
        --launch) CLUSTER_LAUNCH=$2 ;;
        --machine) CLUSTER_MACHINE=$2 ;;
      esac
      shift
      ;;
    *) forwarded+=("$1") ;;
  esac
  shift
done
exec "$here/first_day.sh" "${forwarded[@]}"
