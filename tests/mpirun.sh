#!/usr/bin/env bash
# tests/mpirun.sh RANKS PROGRAM [ARGS…]: mpirun as the tests need it: as root, oversubscribed, with one thread a rank
# unless OMP_NUM_THREADS says otherwise.
set -eu
. "$(dirname "$0")/../jobscripts/launcher.sh"
ranks_share_cores
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
ranks=$1
shift
exec mpirun -n "$ranks" "$@"
