#!/usr/bin/env bash
# jobscripts/local.sh DECK [ARGUMENTS]: from a fresh checkout to a trained model on this machine's CPUs. Installs what is
# missing, builds the cpu preset, prepares the quickstart's data when the deck asks for it, and trains with every core.
# ARGUMENTS go to forge, such as --set train.steps=100. Relative paths start at the working directory. Of an installation, without
# sources, it runs the program that was installed.
#
# One process uses all cores as threads, which is the fastest on one machine. RANKS=4 starts four data-parallel ranks under
# mpirun instead, which share the cores.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { echo "usage: jobscripts/local.sh DECK [ARGUMENTS for forge]" >&2; exit 2; }
deck=$1
shift
[ -f "$deck" ] || { echo "local.sh: there is no deck $deck" >&2; exit 2; }
ranks=${RANKS:-1}
[[ $ranks =~ ^[1-9][0-9]*$ ]] || { echo "local.sh: RANKS=$ranks is no number of ranks" >&2; exit 2; }

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
. "$root/jobscripts/job.sh"
if [ -f "$root/CMakeLists.txt" ]; then
  "$root/jobscripts/setup.sh"
  # Of a build that is there already the choice is its owner's.
  if [ ! -f "$root/build/cpu/CMakeCache.txt" ]; then unity=-DFORGE_UNITY=ON; fi
  configured=$(cd "$root" && cmake --preset cpu ${unity:-} 2>&1) || { printf '%s\n' "$configured" >&2; exit 1; }
  cmake --build "$root/build/cpu" --target forge -j "$cores"
  forge=$root/build/cpu/forge
else
  forge=$(find_forge cpu)
fi
if grep -q 'data/quickstart/' "$deck"; then
  FORGE=$forge "$root/jobscripts/prepare_quickstart.sh" data/quickstart
fi

. "$root/jobscripts/launcher.sh"
threads=$((cores / ranks))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
if [ "$ranks" -gt "$cores" ]; then
  ranks_share_cores
fi
if [ "$ranks" -eq 1 ]; then
  exec "$forge" "$deck" "$@"
fi
exec mpirun -n "$ranks" "$forge" "$deck" "$@"
