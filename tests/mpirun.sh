#!/usr/bin/env bash
# tests/mpirun.sh RANKS PROGRAM [ARGS…]: mpirun as the tests need it: as root, oversubscribed, with one thread a rank.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=passive
ranks=$1
shift
exec mpirun -n "$ranks" "$@"
