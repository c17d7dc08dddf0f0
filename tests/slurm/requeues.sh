#!/usr/bin/env bash
# requeues.sh FORGE: jobs that are started again, one after the other, for all the reasons there are. With --fresh on the command line each
# only grows: it loses no step, repeats none, and what another run left in its directory stays aside. It gives up when it fails again and
# again without a newer step. With FORGE_LONG=1 six time limits and six requeues instead of one or two.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"

if [ "${FORGE_LONG:-0}" = 1 ]; then times=6; else times=2; fi
newest() { # NAME
  local all
  all=$(cd "$work/$1" && ls -d step_* 2> /dev/null | tail -1)
  echo $((10#0${all#step_}))
}
restarts() { [ "$(field "$1" Restarts)" = "$2" ]; } # JOB NUMBER

# submit NAME TIME OPTIONS…: a job of four ranks on two nodes that saves every other step and never ends by itself, over another run's
# checkpoints. Its number.
submit() {
  local name=$1 time=$2
  shift 2
  write_deck "$name" 20
  "$forge" "$work/$name.yaml" --set train.seed=1 > /dev/null
  sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time="$time" --output="$work/$name.out" "$repository/jobscripts/slurm_cpu.sh" \
    "$work/$name.yaml" --fresh --set train.steps=100000 --set checkpoint.every_steps=2 --set checkpoint.keep_last=2 \
    --set machine.first_deadline_seconds=60 --set machine.deadline_seconds=8 "$@"
}

# trains_on NAME: the start that followed the last disturbance has saved a step of its own; the newest one into the variable `step`.
has_begun() { [ -d "$work/$1/old.1" ] && [ "$(grep -c "restarted from" "$work/$1.out")" = $count ]; }
has_saved() { [ "$(newest "$1")" -gt "$2" ]; }
trains_on() {
  wait_until 240 has_begun "$1"
  step=0
  [ $count -eq 0 ] || step=$(newest "$1")
  wait_until 240 has_saved "$1" "$step"
  step=$(newest "$1")
}

# disturbed JOB NAME WHAT: after its next checkpoint the job is disturbed, and started again.
count=0
disturbed() {
  local job=$1 name=$2 what=$3 step=0
  [ "$what" = limit ] || trains_on "$name" # a limit comes by itself
  case $what in
    requeue) scontrol requeue "$job" ;;
    signal) scancel --signal=USR1 "$job" ;;
    hang) kill -STOP "$(pgrep -x forge | tail -1)" ;;
    kill) kill -KILL "$(pgrep -x forge | tail -1)" ;;
  esac
  count=$((count + 1))
  wait_until 240 restarts "$job" $count
  restarts "$job" $count || fail "$name was not started again after a $what: $(scontrol show job "$job"; tail -n 40 "$work/$name.out")"
  [ "$(newest "$name")" -ge "$step" ] || fail "$name, disturbed by a $what: step $(newest "$name") is left of $step"
}

# only_grew JOB NAME: goes on once more; it is cancelled, and what it has done is looked at.
only_grew() {
  local job=$1 name=$2 step
  trains_on "$name"
  scancel "$job"
  ends_as "$job" CANCELLED 240 "$work/$name.out"
  wait_until 30 sh -c '! pgrep -x forge'
  [ "$(ls "$work/$name/old.1")" = step_00000020 ] && [ ! -e "$work/$name/old.2" ] || fail "$name: aside are $(ls -d "$work/$name"/old.*/*)"
  # Every start behind the newest checkpoint of the one before, and every step once.
  awk '/restarted from/ { sub(/.*step_0*/, ""); bad += $0 + 0 <= last; last = $0 + 0; ++n } END { exit bad || n != count }' count="$count" \
    "$work/$name.out" || fail "$name did not go on from step to step: $(grep "restarted from" "$work/$name.out")"
  sed 's/.*"step": \([0-9]*\),.*/\1/' "$work/$name.run/metrics.jsonl" | awk '$1 != NR { exit 1 }' ||
    fail "$name: metrics.jsonl has not every step once"
  [ "$(grep -c '"step"' "$work/$name.run/metrics.jsonl")" -ge "$(newest "$name")" ] || fail "$name: steps are missing in metrics.jsonl"
  nothing_left
}

# Time limits, one after the other; 75 is no failure, so that the hang behind them is the first one. Two minutes, of which the first ten
# seconds are for steps.
job=$(submit limits 2 --set checkpoint.end_margin_seconds=110)
for _ in $(seq $times); do disturbed "$job" limits limit; done
scontrol update JobId="$job" TimeLimit=30
[ "$(grep -c "left: the job's time limit is near" "$work/limits.out")" = $times ] || fail "other than $times limits: $(cat "$work/limits.out")"
disturbed "$job" limits hang
grep -q "code 86, failure 1 of at most 5" "$work/limits.out" || fail "the hang is not the first failure: $(cat "$work/limits.out")"
only_grew "$job" limits

# Slurm starts it again by itself, somebody signals it, a rank is killed.
kinds=(requeue kill)
[ $times -le 2 ] || kinds=(requeue signal requeue kill requeue requeue)
count=0
job=$(submit again 30)
for kind in "${kinds[@]}"; do disturbed "$job" again $kind; done
only_grew "$job" again

# Killed in step 12 whenever it comes there, with a checkpoint of step 10: the second time in a row is the last that is allowed here.
write_deck hopeless 20
job=$(FORGE_FAULT=kill:1:12 FORGE_MOST_FAILURES=2 sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/hopeless.out" \
  "$repository/jobscripts/slurm_cpu.sh" "$work/hopeless.yaml" --set checkpoint.every_steps=5)
ends_as "$job" FAILED 240 "$work/hopeless.out"
[ "$(field "$job" ExitCode)" = 137:0 ] && restarts "$job" 1 || fail "job $job: $(scontrol show job "$job")"
grep -q "code 137, failure 2 of at most 2 in a row without a checkpoint newer than step 10" "$work/hopeless.out" || fail "$(cat "$work/hopeless.out")"
nothing_left
# Somebody submits it again.
expect 0 "Submitted" sbatch --wait --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/hopeless.out" \
  "$repository/jobscripts/slurm_cpu.sh" "$work/hopeless.yaml"
grep -q "restarted from $work/hopeless/step_00000010" "$work/hopeless.out" || fail "it did not go on: $(cat "$work/hopeless.out")"
grep -q "saved step_00000020" "$work/hopeless.out" || fail "it did not end: $(cat "$work/hopeless.out")"

# Bad input comes only once.
job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/bad.out" "$repository/jobscripts/slurm_cpu.sh" \
  "$work/hopeless.yaml" --set train.seed=5)
ends_as "$job" FAILED 240 "$work/bad.out"
[ "$(field "$job" ExitCode)" = 2:0 ] && restarts "$job" 0 || fail "job $job: $(cat "$work/bad.out")"
nothing_left
# Jobs that are cancelled leave the files of their script, others don't.
[ "$(ls "$work/runs/jobs" | cut -d . -f 1 | uniq | wc -l)" = 2 ] || fail "the two jobs that were cancelled leave $(ls "$work/runs/jobs")"
finish
