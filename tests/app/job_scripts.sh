#!/usr/bin/env bash
# job_scripts.sh FORGE: what the Slurm scripts do without Slurm: `forge show` accepts every deck with the arguments that each script
# passes; which program they find; after which exit codes a job is started again, and when it isn't any more. In the place of Slurm stand
# programs that write down how they are called. FORGE_VOLUME=third: each third deck, drawn by the commit's hash.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/deck_values.sh"
repository=$PWD
. "$(dirname "$0")/shrink_deck.sh"

mkdir "$work/bin" "$work/place"
# srun: its arguments, a line each; then what the job does, and its exit code.
cat > "$work/bin/srun" << 'STANDIN'
#!/usr/bin/env bash
printf '%s\n' "$@" > "$CALLS/srun"
[ ! -e "$CALLS/does" ] || . "$CALLS/does"
exit "$(cat "$CALLS/code")"
STANDIN
cat > "$work/bin/scontrol" << 'STANDIN'
#!/usr/bin/env bash
echo "$*" >> "$CALLS/scontrol"
STANDIN
cat > "$work/bin/squeue" << 'STANDIN'
#!/usr/bin/env bash
case "$*" in *%o) echo "$COMMAND_LINE" ;; *%e) echo 2030-01-01T00:00:00 ;; esac
STANDIN
chmod +x "$work"/bin/*
printf '#!/bin/sh\n' | tee "$work/on_path" "$work/named" > /dev/null
chmod +x "$work/on_path" "$work/named"

# submitted SCRIPT ARGUMENTS…: as Slurm runs a copy of it, in $work/place; its exit code.
submitted() {
  local script=$1
  shift
  cp "$script" "$work/slurm_script"
  (cd "$work/place" && env -u FORGE PATH="$work/bin:$PATH" CALLS="$work" COMMAND_LINE="$script $*" SLURM_JOB_ID="${number:-17}" SLURM_SUBMIT_DIR="$work/place" \
    SLURM_CPUS_PER_TASK=1 SLURM_RESTART_COUNT="${restarts:-1}" "${variables[@]}" bash "$work/slurm_script" "$@")
}
variables=(FORGE="$work/named")
echo 0 > "$work/code"

# Every deck with what each script passes to forge, behind the name of the program.
passed() { # PROGRAM
  awk -v program="$1" 'inside { print } $0 == program { inside = 1 }' "$work/srun"
}
scripts=0 shown=0 asked=0
draw=$(draw_below 3)
seen=()
for script in gpu cpu container; do
  image=() program=$work/named
  [ $script != container ] || { image=(image.sif); program=/opt/forge/bin/forge; }
  variables=(FORGE="$work/named")
  expect 0 "" submitted "$repository/jobscripts/slurm_$script.sh" "${image[@]}" inputs/none.yaml --set train.seed=77
  mapfile -t arguments < <(passed "$program")
  [ "${arguments[0]:-}" = inputs/none.yaml ] || fail "slurm_$script.sh passes ${arguments[*]:-nothing}"
  arguments=("${arguments[@]:1}")
  scripts=$((scripts + 1))
  [[ " ${seen[*]:-} " != *" ${arguments[*]} "* ]] || continue
  seen+=(" ${arguments[*]} ")
  for deck in inputs/*.yaml; do
    asked=$((asked + 1))
    ! is_third || [ $((asked % 3)) -eq "$draw" ] || continue
    shown=$((shown + 1))
    "$forge" show --all --deck "$deck" "${arguments[@]}" > "$work/shown" 2>&1 || { fail "slurm_$script.sh with $deck: $(tail -n 5 "$work/shown")"; continue; }
    [ "$(value "$work/shown" train seed)" = 77 ] || fail "slurm_$script.sh doesn't pass what stands behind the deck"
    [ "$(value "$work/shown" checkpoint resume)" = auto ] || fail "slurm_$script.sh with $deck doesn't go on by itself"
    [ "$(value "$work/shown" checkpoint directory)" != '""' ] || fail "slurm_$script.sh with $deck saves nothing"
  done
done
least=62
! is_third || least=$((least / 3))
[ $scripts -eq 3 ] && [ $shown -ge $least ] || fail "only $scripts scripts and $shown decks"
# What a deck doesn't say.
name() { basename "$1" .yaml; }
for deck in inputs/*.yaml; do
  grep -qx "  directory: checkpoints/$(name "$deck")" "$deck" || fail "$deck has no checkpoint.directory of its own"
  grep -qx "  directory: runs/$(name "$deck")" "$deck" || fail "$deck has no output.directory of its own"
done

# Which program: FORGE; the preset's build of FORGE_ROOT, or of the checkout; what was installed beside the scripts; the PATH.
program_of() { # LINE of srun's options, counted from the end of them
  grep -m 1 "forge$\|named$" "$work/srun"
}
finds() { # PROGRAM VARIABLES…: and what else is needed of the environment
  local program=$1
  shift
  variables=("$@")
  expect 0 "" submitted "${from:-$repository/jobscripts}/slurm_cpu.sh" none.yaml
  [ "$(program_of)" -ef "$program" ] || fail "found $(program_of), not $program, with $*"
}
build() { mkdir -p "$(dirname "$1")" && cp "$work/named" "$1"; }
build "$work/path/forge"
build "$work/root/build/cpu/forge"
build "$work/prefix/bin/forge"
mkdir -p "$work/prefix/share/forge"
cp -r jobscripts "$work/prefix/share/forge"
finds "$work/named" FORGE="$work/named" FORGE_ROOT="$work/root" PATH="$work/bin:$work/path:$PATH"
finds "$work/root/build/cpu/forge" FORGE_ROOT="$work/root" PATH="$work/bin:$work/path:$PATH"
finds "$work/path/forge" FORGE_ROOT="$work/none" PATH="$work/bin:$work/path:$PATH"
from=$work/prefix/share/forge/jobscripts finds "$work/prefix/bin/forge" PATH="$work/bin:$work/path:$PATH"
cp -r jobscripts "$work/root"
mkdir "$work/elsewhere"
cp jobscripts/slurm_cpu.sh "$work/elsewhere" # a script that somebody changed, submitted from a checkout
from=$work/elsewhere finds "$work/root/build/cpu/forge" SLURM_SUBMIT_DIR="$work/root" PATH="$work/bin:$work/path:$PATH"
variables=(FORGE_ROOT="$work/none" PATH="$work/bin:/usr/bin:/bin")
expect 2 "there is no forge" submitted "$repository/jobscripts/slurm_cpu.sh" none.yaml
variables=(FORGE="$work/none" PATH="$work/bin:$work/path:$PATH")
expect 2 "is no program" submitted "$repository/jobscripts/slurm_cpu.sh" none.yaml

# After these codes the job is started again, after these it isn't.
variables=(FORGE="$work/named" FORGE_MOST_FAILURES=3)
job() { expect "$(cat "$work/code")" "$1" submitted "$repository/jobscripts/slurm_cpu.sh" none.yaml; }
requeued() { [ "$(cat "$work/scontrol" 2> /dev/null)" = "requeue 17" ] || fail "code $(cat "$work/code"): not started again, but $(cat "$work/scontrol" 2> /dev/null)"; }
ended() {
  [ ! -e "$work/scontrol" ] || fail "code $(cat "$work/code"): $(cat "$work/scontrol")"
  [ -z "$(ls "$work/place/runs/jobs")" ] || fail "code $(cat "$work/code") leaves $(ls "$work/place/runs/jobs")"
}
fails() { # CODE TEXT
  echo "$1" > "$work/code"
  rm -f "$work/scontrol"
  job "$2"
}
for code in 5 6 75 86 137 138 143; do
  rm -rf "$work/place/runs"
  fails $code ""
  requeued
done
for code in 0 1 2 3 4 9 15 134 139; do
  rm -rf "$work/place/runs"
  fails $code ""
  ended
done

# A task of an array is started again alone: its number may be that of the whole array.
rm -rf "$work/place/runs" "$work/scontrol"
variables=(FORGE="$work/named" SLURM_ARRAY_JOB_ID=17 SLURM_ARRAY_TASK_ID=3)
echo 75 > "$work/code"
job ""
[ "$(cat "$work/scontrol")" = "requeue 17_3" ] || fail "of an array: $(cat "$work/scontrol")"
variables=(FORGE="$work/named" FORGE_MOST_FAILURES=3)

# saves STEP…: the job has these checkpoints from now on.
saves() {
  local step
  rm -rf "$work/checkpoints"
  mkdir "$work/checkpoints" "$work/checkpoints/.step_00009999.partial" "$work/checkpoints/step_9998" "$work/checkpoints/old.1"
  for step in "$@"; do mkdir "$work/checkpoints/step_$step"; done
  echo "printf '%s\n' '$work/checkpoints' > \"\$FORGE_JOB_FILE\"" > "$work/does"
}
# Three failures in a row without a newer step, wherever the first one stands: the end.
rm -rf "$work/place/runs"
saves
fails 86 "failure 1 of at most 3" && requeued
fails 137 "failure 2 of at most 3" && requeued
fails 5 "failure 3 of at most 3 in a row without a checkpoint newer than step 0" && ended
# A newer step counts anew; 75 is no failure, however often.
saves 00000008
fails 86 "failure 1 of at most 3" && requeued
fails 6 "failure 2 of at most 3" && requeued
saves 00000008 00000010
fails 86 "failure 1 of at most 3" && requeued
for _ in 1 2 3 4 5 6; do fails 75 "" && requeued; done
fails 86 "failure 2 of at most 3" && requeued
saves 00000010 123456789
fails 86 "failure 1 of at most 3" && requeued
fails 86 "failure 2 of at most 3" && requeued
saves 00000011 # of less, so not newer
fails 86 "failure 3 of at most 3" && ended
fails 86 "failure 1 of at most 3" && requeued
fails 0 "" && ended
# A job's first start has not failed before, whatever a cancelled job of its number has left.
fails 86 "failure 1 of at most 3"
restarts=0 fails 86 "failure 1 of at most 3" && requeued
fails 86 "failure 2 of at most 3" && fails 86 "" && ended
# A file of failures that somebody else wrote is no program, and a link there isn't followed.
for planted in "a[\$(touch $work/executed)] 3" "1 x[\$(touch $work/executed)]" "" "08 -1" "-5 2" "$(printf '%0200d' 7) 3"; do
  fails 86 "failure 1 of at most 3"
  echo "$planted" > "$work/place/runs/jobs/17.failures"
  fails 86 "failure" && requeued
  [ ! -e "$work/executed" ] || fail "executed: $planted"
  fails 0 "" && ended
done
fails 86 "failure 1 of at most 3"
echo "mine" > "$work/victim"
rm "$work/place/runs/jobs/17.failures"
for name in 17.failures 17.failures.tmp; do ln -s "$work/victim" "$work/place/runs/jobs/$name"; done
fails 86 "failure 1 of at most 3" && requeued
[ "$(cat "$work/victim")" = mine ] || fail "a link is followed"
rm "$work/place/runs/jobs/17.failures.tmp"
fails 0 "" && ended
# Without FORGE_MOST_FAILURES five. Another job's failures are its own.
variables=(FORGE="$work/named")
for n in 1 2 3 4; do fails 86 "failure $n of at most 5" && requeued; done
number=18 fails 86 "failure 1 of at most 5"
fails 86 "failure 5 of at most 5" && [ ! -e "$work/scontrol" ] || fail "a sixth start"
# Where failures can't be counted, the job isn't started again and again.
rm -rf "$work/place/runs"
echo > "$work/place/runs"
rm -f "$work/does"
fails 86 "can't be counted" && [ ! -e "$work/scontrol" ] || fail "started again without counting"
finish
