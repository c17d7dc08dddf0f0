#!/usr/bin/env bash
# faults.sh FORGE: ranks that are killed, stop or compute without end, and a node that is lost: the job ends in time, says who it
# was, leaves nothing behind, and goes on from a checkpoint that is whole.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"
steps=40
deadlines=(--set machine.first_deadline_seconds=60 --set machine.deadline_seconds=8)
kill_wait=5 # of cluster.sh: from SIGTERM to SIGKILL

write_deck whole $steps
start=$SECONDS
expect 0 "$steps/$steps" srun -N 4 --mpi=pmix "$forge" "$work/whole.yaml"
usual=$((SECONDS - start + 1))

# CODE TEXT FAULT [OPTIONS OF SRUN]: four ranks on four nodes, one with the fault in step 4; the job ends at the deadline of 8 s and
# two seconds, its start aside: machines under load are slow. Named nodes: those of the job before may still be busy.
ends_with() {
  local code=$1 text=$2 fault=$3 start=$SECONDS
  shift 3
  expect "$code" "$text" env FORGE_FAULT="$fault" timeout -s KILL 120 srun -N 4 -w "n[1-4]" --mpi=pmix "$@" "$forge" "$work/whole.yaml" --fresh \
    "${deadlines[@]}"
  [ $((SECONDS - start)) -le $((8 + 2 + kill_wait + 3 * usual)) ] ||
    fail "$fault $* took $((SECONDS - start)) s, an undisturbed run $usual s"
  nothing_left
}
ends_with 137 "n2: task 1: Killed" kill:1:4 --kill-on-bad-exit=1
ends_with 86 "rank 1: no answer" kill:1:4 --kill-on-bad-exit=0
ends_with 86 "rank 0 to 1, 3: step 4, labels; rank 2: no answer from n3, stopped or lost" stop:2:4 --kill-on-bad-exit=1
ends_with 86 "rank 0: no answer from n1" stop:0:4 --kill-on-bad-exit=1
ends_with 86 "rank 1: step 4, data" hang:1:4 --kill-on-bad-exit=1
grep -q "rank 0, 2 to 3: step 4, labels" "$work/output" || fail "no word of what the others did: $(cat "$work/output")"

# During the start, which another job's lock of the run directory holds up, a rank is stopped.
started() { [ "$(pgrep -cx forge)" = 4 ]; }
exec 9>> "$work/whole.run/.lock"
flock 9
srun -N 4 -w "n[1-4]" --mpi=pmix --kill-on-bad-exit=1 "$forge" "$work/whole.yaml" --fresh --set machine.first_deadline_seconds=12 \
  > "$work/output" 2>&1 9>&- &
job=$!
wait_until 180 started
sleep 3
kill -STOP "$(pgrep -x forge | tail -1)"
exec 9>&-
code=0
wait $job || code=$?
[ $code -eq 86 ] || fail "exit code $code, not 86, of a rank that stops during the start: $(cat "$work/output")"
grep -q "no answer from n[1-4], stopped or lost" "$work/output" || fail "it is not named: $(cat "$work/output")"
nothing_left

# submit NAME: a job of two nodes with two ranks each that saves every other step; its number. In step 30 it waits for a moment.
export FORGE_FAULT=slow:0:30:6
submit() {
  [ -e "$work/$1.yaml" ] || write_deck "$1" $steps
  sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time=10 --output="$work/$1.out" \
    "$repository/jobscripts/slurm_cpu.sh" "$work/$1.yaml" --set checkpoint.every_steps=2 "${deadlines[@]}"
}
whole() { expect 0 "whole" "$forge" verify-checkpoint "$work/$1"; }
rm -rf "$work"/whole{,.run}
expect 0 "$steps/$steps" env -u FORGE_FAULT mpirun -n 4 "$forge" "$work/whole.yaml"

# One rank of the second node is killed: the job goes on by itself.
job=$(submit killed)
wait_until 180 trains killed
kill -KILL "$(pgrep -x forge | tail -1)"
ends_as "$job" COMPLETED 240 "$work/killed.out"
[ "$(field "$job" Restarts)" = 1 ] || fail "job $job was started again $(field "$job" Restarts) times"
grep -q "code 137, failure 1 of at most 5" "$work/killed.out" || fail "no word of the rank that was killed: $(cat "$work/killed.out")"
grep -q "restarted from $work/killed/step_000000" "$work/killed.out" || fail "job $job did not go on: $(cat "$work/killed.out")"
whole killed
same_run "$work/whole" "$work/killed"
nothing_left

# The second node is lost: the job goes on by itself, on other nodes.
job=$(submit lost)
wait_until 180 trains lost
node=$(scontrol show hostnames "$(field "$job" NodeList)" | tail -1)
lose_node "$node"
ends_as "$job" COMPLETED 240 "$work/lost.out"
[ "$(field "$job" Restarts)" = 1 ] || fail "job $job was started again $(field "$job" Restarts) times"
case $(field "$job" NodeList) in *"$node"*) fail "job $job went on on the node that was lost" ;; esac
whole lost
same_run "$work/whole" "$work/lost"
nothing_left
finish
