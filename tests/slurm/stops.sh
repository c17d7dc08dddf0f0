#!/usr/bin/env bash
# stops.sh FORGE: jobs of jobscripts/slurm_cpu.sh that are told to leave (signals, preemption, the time limit) save, leave with 75,
# are started again by Slurm, and end as a run that was never disturbed, to the last bit. SIGTERM and the time limit with FORGE_LONG=1:
# preemption sends the one, and requeues.sh has jobs that run into the other.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"
steps=30

# submit NAME [OPTIONS OF SBATCH]…: a job of two nodes with two ranks each, and $deck_options; its number.
submit() {
  local name=$1
  shift
  write_deck "$name" $steps
  sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time=10 --output="$work/$name.out" "$@" \
    "$repository/jobscripts/slurm_cpu.sh" "$work/$name.yaml" ${deck_options:-}
}
# went_on JOB NAME WHY: it left because of WHY, was started a second time, and is done.
went_on() {
  ends_as "$1" COMPLETED 240 "$work/$2.out"
  [ "$(field "$1" Restarts)" = 1 ] || fail "job $1 was started again $(field "$1" Restarts) times, not once: $(cat "$work/$2.out")"
  grep -q "forge: stopped: .*left.*: $3" "$work/$2.out" || fail "job $1 has no word of $3: $(cat "$work/$2.out")"
  same_run "$work/whole" "$work/$2"
}

write_deck whole $steps
expect 0 "$steps/$steps" mpirun -n 4 "$forge" "$work/whole.yaml"

# Step 12 of the first start takes long enough to be met by what comes from outside.
export FORGE_FAULT=slow:0:12:6
signals=(USR1)
! is_long || signals+=(TERM)
for signal in "${signals[@]}"; do
  job=$(submit "$signal")
  wait_until 180 trains "$signal"
  scancel --signal=$signal "$job"
  went_on "$job" "$signal" "SIG$signal"
  grep -q "restarted from $work/$signal/step_000000[12]" "$work/$signal.out" || fail "job $job did not go on: $(cat "$work/$signal.out")"
done

# While it starts: held up by another job's lock of its run directory.
mkdir "$work/early.run"
exec 9> "$work/early.run/.lock"
flock 9
job=$(submit early)
wait_until 180 pgrep -x forge
sleep 2
scancel --signal=USR1 "$job"
sleep 1
exec 9>&-
went_on "$job" early SIGUSR1

# Preempted by a job of a partition of higher priority.
job=$(submit preempted)
wait_until 180 trains preempted
other=$(sbatch --parsable --partition=high --nodes=8 --exclusive --output=/dev/null --wrap "sleep 2")
went_on "$job" preempted SIGTERM
ends_as "$other" COMPLETED 240

# Before its time is over: a minute, of which 48 s are kept for saving.
if is_long; then
  export FORGE_FAULT=slow:0:12:14
  job=$(deck_options="--set checkpoint.end_margin_seconds=48" submit limit --time=1 --signal=USR1@1)
  went_on_later() { [ "$(field "$job" Restarts)" = 1 ]; }
  wait_until 180 went_on_later
  scontrol update JobId="$job" TimeLimit=10
  went_on "$job" limit "the job's time limit is near"
fi

# Cancelled by its owner: it saves, and stays away.
export FORGE_FAULT=slow:0:12:2
job=$(submit cancelled)
wait_until 180 trains cancelled
scancel "$job"
ends_as "$job" CANCELLED 240 "$work/cancelled.out"
grep -q "forge: stopped: saved step_" "$work/cancelled.out" || fail "it did not save: $(cat "$work/cancelled.out")"
sleep 8
is_in_state "$job" CANCELLED || fail "a cancelled job is $(field "$job" JobState)"
nothing_left
finish
