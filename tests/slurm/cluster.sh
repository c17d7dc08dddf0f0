#!/usr/bin/env bash
# cluster.sh [--nodes N] [--real-cpus] [--preload LIBRARY] COMMAND…: a real Slurm of N nodes (default 8) on this machine, and COMMAND as somebody on its
# login node. Ends with COMMAND's exit code; `tests/slurm/cluster.sh bash` gives a cluster to try. For Slurm's accounts each node has
# 48 CPUs and 4 GPUs, so that job scripts for such nodes run as they are; in truth all share this machine's cores. With --real-cpus
# each node has those, and Slurm binds ranks to them. A LIBRARY is loaded into all of COMMAND's processes.
#
# A node is a set of Linux namespaces: a hostname, a network address behind a bridge, processes, /dev/shm and a directory for
# temporary files of its own, in which one slurmd runs. The cluster as a whole is such a set too, and its files are in memory:
# when COMMAND ends or this script is killed, the kernel ends every process and drops every file; nothing outside is touched,
# and no port or name can collide. Needs root, Slurm and munge (jobscripts/setup.sh --tests): without, it says why and ends with 77.
#
# COMMAND finds in its environment:
#   CLUSTER   a directory; $CLUSTER/nodes/<name>/shm and …/tmp are a node's /dev/shm and $TMPDIR
#   and the functions lose_node NAME (its network and all its processes are gone at once), start_node NAME.
set -euo pipefail

arguments=("$@")
nodes=8 cpus=48 binding=none preload=
if [ "${1:-}" = --nodes ]; then nodes=$2 && shift 2; fi
if [ "${1:-}" = --real-cpus ]; then cpus=$(nproc --all) && binding=affinity && shift; fi
if [ "${1:-}" = --preload ]; then preload=$2 && shift 2; fi
[ $# -gt 0 ] || { echo "usage: cluster.sh [--nodes N] [--real-cpus] [--preload LIBRARY] COMMAND…" >&2; exit 2; }
namespaces=(unshare --fork --kill-child --pid --mount-proc --mount --net --uts --ipc --)
network=10.77.0

skip() {
  echo "SKIPPED: no Slurm can be started here: $*" >&2
  exit 77
}

# Outside: what is needed is there, or why not.
if [ -z "${CLUSTER_INSIDE:-}" ]; then
  [ "$(id -u)" -eq 0 ] || skip "this needs root"
  PATH=$PATH:/usr/sbin:/sbin
  for program in slurmctld slurmd srun sbatch munged ip unshare; do
    command -v "$program" > /dev/null || skip "$program is missing; jobscripts/setup.sh --tests installs it"
  done
  reason=$("${namespaces[@]}" sh -c 'hostname login && mount -t tmpfs none /run && ip link add switch type bridge &&
    ip link add end0 type veth peer name end1' 2>&1) || skip "the kernel gives no namespaces or no bridge: $reason"
  CLUSTER_INSIDE=yes exec "${namespaces[@]}" "$0" "${arguments[@]}"
fi
unset CLUSTER_INSIDE

hostname login
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=1777 none /dev/shm
export CLUSTER=/run/cluster SLURM_CONF=/run/cluster/slurm.conf TMPDIR=/run/tmp
mkdir -p -m 755 "$CLUSTER" "$CLUSTER/log" "$CLUSTER/state" "$CLUSTER/nodes"
mkdir -m 1777 "$TMPDIR"

ip link set lo up
ip link add switch type bridge
ip addr add "$network.254/24" dev switch
ip link set switch up
{
  echo "127.0.0.1 localhost"
  echo "$network.254 login"
  for i in $(seq "$nodes"); do echo "$network.$i n$i"; done
} > "$CLUSTER/hosts"
mount --bind "$CLUSTER/hosts" /etc/hosts

# cred_expire is also how long a requeued job waits before it starts again.
cat > "$CLUSTER/slurm.conf" << CONF
ClusterName=forge
SlurmctldHost=login($network.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/$binding
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=6
KillWait=5
InactiveLimit=0
MinJobAge=86400
TmpFS=$TMPDIR
StateSaveLocation=$CLUSTER/state
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmctldLogFile=$CLUSTER/log/slurmctld
SlurmdSpoolDir=$CLUSTER/nodes/%n/spool
SlurmdPidFile=$CLUSTER/nodes/%n/slurmd.pid
SlurmdLogFile=$CLUSTER/log/%n
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[1-$nodes] NodeAddr=$network.[1-$nodes] CPUs=$cpus Gres=gpu:4 RealMemory=1000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
touch "$CLUSTER"/gpu{0,1,2,3}
echo "Name=gpu File=$CLUSTER/gpu[0-3]" > "$CLUSTER/gres.conf"
# With the default collective of Slurm 22.05, steps over several nodes have been seen to crash in MPI_Init.
echo "PMIxEnv=SLURM_PMIX_FENCE=ring" > "$CLUSTER/mpi.conf"
export SLURM_PMIX_FENCE=ring
# Ranks share the cores of this machine.
. "$(dirname "${BASH_SOURCE[0]}")/../../jobscripts/launcher.sh"
ranks_share_cores
export OMP_NUM_THREADS=1

start_node() { # NAME
  local name=$1 directory=$CLUSTER/nodes/$1
  mkdir -p "$directory/spool"
  mkdir -p -m 1777 "$directory/shm" "$directory/tmp"
  ip netns add "$name"
  ip link add "$name" type veth peer name eth0 netns "$name"
  ip link set "$name" master switch up
  ip -n "$name" link set lo up
  ip -n "$name" addr add "$(awk -v name="$name" '$2 == name { print $1 }' "$CLUSTER/hosts")/24" dev eth0
  ip -n "$name" link set eth0 up
  nsenter --net="/run/netns/$name" unshare --fork --kill-child --pid --mount-proc --mount --uts --ipc -- sh -c "
    hostname $name && mount --bind $directory/shm /dev/shm && mount --bind $directory/tmp $TMPDIR && exec slurmd -D -N $name" \
    >> "$CLUSTER/log/$name.out" 2>&1 < /dev/null &
  echo $! > "$directory/pid"
  disown # bash says nothing when it is killed
}

# The network first: nothing tells the other nodes that the processes are gone.
lose_node() { # NAME
  ip link del "$1"
  kill -KILL "$(cat "$CLUSTER/nodes/$1/pid")"
  ip netns del "$1"
  rm -rf "$CLUSTER/nodes/$1"
}
export -f start_node lose_node

(umask 077 && head -c 1024 /dev/urandom > "$CLUSTER/munge.key")
munged --force --key-file="$CLUSTER/munge.key" --socket="$CLUSTER/munge.socket" --pid-file="$CLUSTER/munged.pid" \
  --log-file="$CLUSTER/log/munged" --seed-file="$CLUSTER/munge.seed" 2> "$CLUSTER/log/munged.out" ||
  { cat "$CLUSTER/log/munged.out" >&2; exit 1; }
slurmctld -D > "$CLUSTER/log/slurmctld.out" 2>&1 < /dev/null &
for i in $(seq "$nodes"); do start_node "n$i"; done
for _ in $(seq 300); do
  idle=$(sinfo -h -p low -t idle -o %D 2> /dev/null || true)
  [ "$idle" = "$nodes" ] && break
  sleep 0.1
done
if [ "$idle" != "$nodes" ]; then
  echo "cluster.sh: ${idle:-0} of $nodes nodes are up after 30 s:" >&2
  tail -n 20 "$CLUSTER"/log/* >&2
  exit 1
fi

code=0
LD_PRELOAD=$preload "$@" || code=$?
exit $code
