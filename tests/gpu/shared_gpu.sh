#!/usr/bin/env bash
# shared_gpu.sh PROGRAM [ARGS…]: one of several MPI ranks that share a GPU. NCCL refuses two ranks of one host on one device;
# so each says that it is a host of its own, and they talk over the loopback interface. For correctness: a collective takes
# ten milliseconds. On a build without CUDA it changes nothing.
set -eu
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${SLURM_PROCID:-0}}}
export NCCL_HOSTID=rank$rank NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0
export NCCL_RAS_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_ALGO=Ring NCCL_PROTO=Simple
exec "$@"
