#!/usr/bin/env bash
# requeues.sh FORGE: jobs that are started again, one after the other, for all the reasons there are. With --fresh on the command line each
# only grows: it loses no step, repeats none, and what another run left in its directory stays aside. It gives up when it fails again and
# again without a newer step. With FORGE_LONG=1 six time limits and a hang, and six requeues; else one of each.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"

newest() { # NAME
  local all
  all=$(cd "$work/$1" && ls -d step_* 2> /dev/null | tail -1)
  echo $((10#0${all#step_}))
}
restarts() { [ "$(field "$1" Restarts)" = "$2" ]; } # JOB NUMBER

# submit NAME "TIME OPTIONS…": a job of four ranks on two nodes that saves every other step and never ends by itself, over another run's
# checkpoints. Its number. The script's own --signal would come at once where a job has two minutes.
submit() {
  local name=$1 time options
  read -r time options <<< "$2"
  write_deck "$name" 20
  "$forge" "$work/$name.yaml" --set train.seed=1 > /dev/null
  sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time="$time" --signal=USR1@1 --output="$work/$name.out" "$repository/jobscripts/slurm_cpu.sh" \
    "$work/$name.yaml" --fresh --set train.steps=100000 --set checkpoint.every_steps=2 --set checkpoint.keep_last=2 \
    --set machine.first_deadline_seconds=60 --set machine.deadline_seconds=8 $options
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

rank_of() { pgrep -ax forge | grep "/$1.yaml" | tail -1 | cut -d ' ' -f 1; } # NAME: one of its processes

# disturbed JOB NAME WHAT: after its next checkpoint the job is disturbed, and started again.
count=0
disturbed() {
  local job=$1 name=$2 what=$3 step=0
  [ "$what" = limit ] || trains_on "$name" # a limit comes by itself
  case $what in
    requeue) scontrol requeue "$job" ;;
    signal) scancel --signal=USR1 "$job" ;;
    hang) kill -STOP "$(rank_of "$name")" ;;
    kill) kill -KILL "$(rank_of "$name")" ;;
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
  wait_until 30 sh -c "! pgrep -ax forge | grep '/$name.yaml'"
  [ "$(ls "$work/$name/old.1")" = step_00000020 ] && [ ! -e "$work/$name/old.2" ] || fail "$name: aside are $(ls -d "$work/$name"/old.*/*)"
  # Every start behind the newest checkpoint of the one before, and every step once.
  awk '/restarted from/ { sub(/.*step_0*/, ""); bad += $0 + 0 <= last; last = $0 + 0; ++n } END { exit bad || n != count }' count="$count" \
    "$work/$name.out" || fail "$name did not go on from step to step: $(grep "restarted from" "$work/$name.out")"
  sed 's/.*"step": \([0-9]*\),.*/\1/' "$work/$name.run/metrics.jsonl" | awk '$1 != NR { exit 1 }' ||
    fail "$name: metrics.jsonl has not every step once"
  [ "$(grep -c '"step"' "$work/$name.run/metrics.jsonl")" -ge "$(newest "$name")" ] || fail "$name: steps are missing in metrics.jsonl"
}

# chain NAME KINDS…: a job that is disturbed in all these ways, one after the other; time limits come first. It has two minutes then, of
# which the first seven seconds are for steps.
chains=0
chain() {
  local name=$1 job kind limits=0
  shift
  chains=$((chains + 1))
  count=0
  job=$(submit "$name" "$([ "$1" = limit ] && echo "2 --set checkpoint.end_margin_seconds=113" || echo 30)")
  for kind in "$@"; do
    [ $limits -eq 0 ] || [ "$kind" = limit ] || scontrol update JobId="$job" TimeLimit=30
    disturbed "$job" "$name" "$kind"
    [ "$kind" != limit ] || limits=$((limits + 1))
  done
  [ "$(grep -c "left: the job's time limit is near" "$work/$name.out")" = $limits ] || fail "$name left other than $limits times for its limit"
  only_grew "$job" "$name"
}
# Killed in step 12 whenever it comes there, with a checkpoint of step 10: the second time in a row is the last that is allowed here.
# It does so beside the others.
write_deck hopeless 20
hopeless=$(FORGE_FAULT=kill:1:12 FORGE_MOST_FAILURES=2 sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/hopeless.out" \
  "$repository/jobscripts/slurm_cpu.sh" "$work/hopeless.yaml" --set checkpoint.every_steps=5)

# A limit and a requeue are no failures: the hang behind them is the first one.
if is_long; then
  chain limits limit limit limit limit limit limit hang
  chain again requeue signal requeue kill requeue requeue
else
  chain limits limit requeue hang
fi
grep -q "code 86, failure 1 of at most 5" "$work/limits.out" || fail "the hang is not the first failure: $(cat "$work/limits.out")"

ends_as "$hopeless" FAILED 240 "$work/hopeless.out"
case $(field "$hopeless" ExitCode) in # 6: MPI of another node saw the killed rank first
  137:0 | 6:0) restarts "$hopeless" 1 ;;
  *) false ;;
esac || fail "job $hopeless: $(scontrol show job "$hopeless")"
grep -qE "code (137|6), failure 2 of at most 2 in a row without a checkpoint newer than step 10" "$work/hopeless.out" || fail "$(cat "$work/hopeless.out")"
nothing_left
# Bad input comes only once; neither does NaN.
bad=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/bad.out" "$repository/jobscripts/slurm_cpu.sh" \
  "$work/hopeless.yaml" --set train.seed=5 --set "output.directory=$work/bad.run")
write_deck nan 20
nan=$(FORGE_FAULT=nan:1:3 sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/nan.out" \
  "$repository/jobscripts/slurm_cpu.sh" "$work/nan.yaml")
for pair in "$bad bad 2" "$nan nan 4"; do
  read -r job name code <<< "$pair"
  ends_as "$job" FAILED 240 "$work/$name.out"
  [ "$(field "$job" ExitCode)" = "$code:0" ] && restarts "$job" 0 || fail "job $job: $(field "$job" ExitCode), not $code: $(cat "$work/$name.out")"
done
# Somebody submits it again.
job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/hopeless.out" "$repository/jobscripts/slurm_cpu.sh" \
  "$work/hopeless.yaml")
ends_as "$job" COMPLETED 240 "$work/hopeless.out"
grep -q "restarted from $work/hopeless/step_00000010" "$work/hopeless.out" || fail "it did not go on: $(cat "$work/hopeless.out")"
grep -q "saved step_00000020" "$work/hopeless.out" || fail "it did not end: $(cat "$work/hopeless.out")"
nothing_left
# With FORGE_CHECK=1 a node whose products are wrong is found, and left out of the next start.
cat > "$work/sick" << SICK
#!/bin/sh
if [ "\$(hostname)" = n2 ]; then export FORGE_FAULT=wrong:\$SLURM_PROCID:products; fi
exec "$forge" "\$@"
SICK
chmod +x "$work/sick"
write_deck checked 20
job=$(FORGE=$work/sick FORGE_CHECK="--slow 1000" sbatch --parsable --nodes=3 --ntasks-per-node=1 --cpus-per-task=1 --output="$work/checked.out" \
  "$repository/jobscripts/slurm_cpu.sh" "$work/checked.yaml" --set train.global_batch_sequences=6 --set machine.deadline_seconds=60)
ends_as "$job" COMPLETED 240 "$work/checked.out"
[ "$(field "$job" ExcNodeList)" = n2 ] && restarts "$job" 1 || fail "job $job: $(scontrol show job "$job"; cat "$work/checked.out")"
grep -q "job $job starts again without n2" "$work/checked.out" && grep -q "nothing slow or wrong" "$work/checked.out" &&
  grep -q "saved step_00000020" "$work/checked.out" || fail "the job checked otherwise: $(cat "$work/checked.out")"
nothing_left
# Jobs that are cancelled leave the files of their script, others don't.
[ "$(ls "$work/runs/jobs" | cut -d . -f 1 | uniq | wc -l)" = $chains ] || fail "$chains jobs were cancelled and leave $(ls "$work/runs/jobs")"
finish
