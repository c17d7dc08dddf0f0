#!/usr/bin/env bash
# soak.sh HOURS [OPTIONS of soak/soak.py]: small trainings that are killed, stopped, damaged and started again on other layouts, at random, for so
# long, on a real Slurm of eight nodes (slurm/cluster.sh) where one can be started, else as ranks that are threads. Each run must end as
# one that nothing has disturbed, bit for bit, and each fault must be named. Calls add to one ledger, build/soak/ledger.jsonl (--ledger), a
# line of JSON for each event; the last thing is the table of all calls. Ends with 1 where the ledger has a lost step or a silent fault.
# Needs the cpu preset (build/cpu).
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: soak.sh HOURS [OPTIONS]; $tests/soak/soak.py --help has them" >&2; exit 2; }
. "$tests/../jobscripts/launcher.sh"
ranks_share_cores
build=${FORGE_BUILD:-$tests/../build/cpu}
soak=(python3 "$tests/soak/soak.py" --forge "$build/forge" "$@")
case " $* " in *" --threads "* | *" --table "* | *" --help "*) exec "${soak[@]}" ;; esac

# A small disk for each worker, which the nodes see, too.
disks=$(mktemp -d)
code=0
unshare --mount bash -c '
  disks=$1 tests=$2 nap=$3
  shift 3
  for i in 1 2 3; do mkdir "$disks/$i" && mount -t tmpfs -o size=24m soak "$disks/$i" || exit 77; done
  exec "$tests/slurm/cluster.sh" --preload "$nap" "$@" --disks "$disks"' \
  soak "$disks" "$tests" "$build/tests/slurm/libnap.so" "${soak[@]}" || code=$?
rm -rf "$disks"
[ $code -eq 77 ] || exit $code
echo "soak.sh: ranks are threads of one process"
exec "${soak[@]}" --threads
