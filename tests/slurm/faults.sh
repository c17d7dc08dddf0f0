#!/usr/bin/env bash
# faults.sh FORGE: ranks that are killed, stop or compute without end, and a node that is lost: the job ends in time, says who it
# was, leaves nothing behind, and goes on from a checkpoint that is whole.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../app/cases.sh"
steps=40
deadlines=(--set machine.first_deadline_seconds=60 --set machine.deadline_seconds=8)

write_deck whole $steps
start=$SECONDS
expect 0 "$steps/$steps" srun -N 4 --ntasks-per-node=2 --mpi=pmix "$forge" "$work/whole.yaml"
usual=$((SECONDS - start + 1))

# CODE TEXT FAULT [OPTIONS OF SRUN]: eight ranks on four nodes, faults in step 4; the job ends at the deadline of 8 s and five seconds,
# its start aside. Named nodes: those of the job before may still be busy.
ends_with() {
  local code=$1 text=$2 fault=$3 start=$SECONDS
  shift 3
  expect "$code" "$text" env FORGE_FAULT="$fault" timeout -s KILL 120 srun -N 4 -w "n[1-4]" --ntasks-per-node=2 --mpi=pmix "$@" "$forge" \
    "$work/whole.yaml" --fresh "${deadlines[@]}"
  note_time $((SECONDS - start - (code == 86 ? 8 : 0)))
  nothing_left
}
# A rank is killed: srun ends the others, or MPI on one of them, which tries to reach the rank that is gone and may be the first. With
# --kill-on-bad-exit=0 they live on until the watchdog ends them, or MPI.
#   ends_killed RANK NODE RANKS-A-NODE KILL-ON-BAD-EXIT OTHERS: what the watchdog says of the others.
ends_killed() {
  local code=0 start=$SECONDS
  FORGE_FAULT=kill:$1:4 timeout -s KILL 120 srun -N 4 -w "n[1-4]" --ntasks-per-node="$3" --mpi=pmix --kill-on-bad-exit="$4" "$forge" \
    "$work/whole.yaml" --fresh "${deadlines[@]}" > "$work/output" 2>&1 || code=$?
  note_time $((SECONDS - start - (code == 86 ? 8 : 0)))
  case $4:$code in
    ?:137) grep -qE "srun: error: $2: tasks? .*Killed" "$work/output" ;;
    ?:6) grep -q "a rank or its node may be gone: the launcher names it" "$work/output" ;;
    0:86) grep -q "$5; rank $1: no answer from $2, stopped or lost" "$work/output" ;;
    *) false ;;
  esac || fail "exit code $code when rank $1 of $2 is killed: $(cat "$work/output")"
  nothing_left
}
ends_killed 2 n2 2 1 ""
ends_killed 2 n3 1 0 "rank 0 to 1, 3: step 4, .*"
ends_with 86 "rank 0 to 1: no answer from n1, stopped or lost; rank 2 to 7: step 4, labels" stop:0:4,stop:1:4 --kill-on-bad-exit=1
ends_with 86 "rank 0, 2 to 7: step 4, labels; rank 1: step 4, data" hang:1:4 --kill-on-bad-exit=1
ends_with 6 "forge: error (rank 5): fails on purpose" throw:5:gradients:6 --kill-on-bad-exit=0

# Any ranks, over TCP: the names are exact, each time.
if is_long; then
  for round in $(seq 20); do
    mapfile -t stopped < <(seq 0 7 | shuf -n $((1 + round % 4)) --random-source=<(yes "$draw_seed $round") | sort -n)
    fault=$(printf ',stop:%s:4' "${stopped[@]}")
    ends_with 86 "stopped or lost" "${fault#,}" --kill-on-bad-exit=1
    named=$(sed -n 's/.*rank \([0-9, to]*\): no answer.*/\1/p' "$work/output" | sed -E 's/, /\n/g' | while read -r range; do
      seq "${range% to *}" "${range#* to }"
    done | xargs)
    [ "$named" = "${stopped[*]}" ] || fail "round $round: ${stopped[*]} are stopped, $named are named: $(cat "$work/output")"
  done
  [ "$round" -eq 20 ] || fail "$round rounds"
fi
check_times $((5 + usual))

# During the start, which another job's lock of the run directory holds up, a rank is stopped.
# Of this job alone: other tests may run forge, too.
ranks() { pgrep "$@" -f "^$forge $work/whole.yaml"; }
started() { [ "$(ranks -c)" = 4 ]; }
exec 9>> "$work/whole.run/.lock"
flock 9
srun -N 4 -w "n[1-4]" --mpi=pmix --kill-on-bad-exit=1 "$forge" "$work/whole.yaml" --fresh --set machine.first_deadline_seconds=12 \
  > "$work/output" 2>&1 9>&- &
job=$!
wait_until 180 started
sleep 3
kill -STOP "$(ranks | tail -1)"
exec 9>&-
code=0
wait $job || code=$?
[ $code -eq 86 ] || fail "exit code $code, not 86, of a rank that stops during the start: $(cat "$work/output")"
grep -q "no answer from n[1-4], stopped or lost" "$work/output" || fail "it is not named: $(cat "$work/output")"
nothing_left

# submit NAME: a job of two nodes with two ranks each that saves every other step; its number. In step 30 it waits for a moment, far
# from the deadline.
export FORGE_FAULT=slow:0:30:6
submit() {
  [ -e "$work/$1.yaml" ] || write_deck "$1" $steps
  sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time=10 --output="$work/$1.out" \
    "$repository/jobscripts/slurm_cpu.sh" "$work/$1.yaml" --set checkpoint.every_steps=2 --set machine.deadline_seconds=30
}
whole() { expect 0 "whole" "$forge" verify-checkpoint "$work/$1"; }
rm -rf "$work"/whole{,.run}
expect 0 "$steps/$steps" env -u FORGE_FAULT mpirun -n 4 "$forge" "$work/whole.yaml"

# One rank of the second node is killed: the job goes on by itself.
job=$(submit killed)
wait_until 180 trains killed
kill -KILL "$(pgrep -x forge | tail -1)"
ends_as "$job" COMPLETED 240 "$work/killed.out"
[ "$(field "$job" Restarts)" = 1 ] || fail "job $job was started again $(field "$job" Restarts) times: $(cat "$work/killed.out")"
grep -qE "code (137|6), failure 1 of at most 5" "$work/killed.out" || fail "no word of the rank that was killed: $(cat "$work/killed.out")"
grep -q "restarted from $work/killed/step_000000" "$work/killed.out" || fail "job $job did not go on: $(cat "$work/killed.out")"
whole killed
same_run "$work/whole" "$work/killed"
nothing_left

# starts_on JOB NODE: how often Slurm's scheduler, or its backfill, has started the job on that node.
starts_on() {
  local nodes
  sed -nE "s/.*(Allocate|Started) JobId=$1 .*(NodeList=| on )([^ ]*).*/\3/p" "$CLUSTER/log/slurmctld" | while read -r nodes; do
    scontrol show hostnames "$nodes"
  done | grep -cx "$2" || true
}

# The second node is lost: the job goes on by itself, on other nodes.
job=$(submit lost)
wait_until 180 trains lost
node=$(scontrol show hostnames "$(field "$job" NodeList)" | tail -1)
lose_node "$node"
ends_as "$job" COMPLETED 240 "$work/lost.out"
# Before Slurm knows that the node is lost, it may start the job there once more.
starts=$(starts_on "$job" "$node")
[ "$(field "$job" Restarts)" = "$starts" ] ||
  fail "job $job was started again $(field "$job" Restarts) times, with $starts starts on $node: $(cat "$work/lost.out")"
case $(field "$job" NodeList) in *"$node"*) fail "job $job went on on the node that was lost" ;; esac
whole lost
same_run "$work/whole" "$work/lost"
nothing_left

# The first ranks' node is lost: the others name it, and the job step ends with the code, when Slurm knows it too.
unset FORGE_FAULT
write_deck first 100000
srun -N 4 -w "n[5-8]" --ntasks-per-node=2 --mpi=pmix --kill-on-bad-exit=1 "$forge" "$work/first.yaml" "${deadlines[@]}" > "$work/output" 2>&1 &
job=$!
wait_until 180 trains first
lose_node n5
code=0
wait $job || code=$?
[ $code -eq 86 ] || fail "exit code $code, not 86, when the first ranks' node is lost: $(cat "$work/output")"
grep -qE "rank 0 to 1: no answer from n5, stopped or lost; rank 2( to 7|[0-9, ]*): step" "$work/output" || fail "it is not named: $(cat "$work/output")"
finish
