# jobscripts/job.sh: what the scripts beside it share. They source it, after setting `root`: a checkout, or the share/forge of an
# installation.

# find_forge PRESET: the program. What FORGE names; else the preset's build below FORGE_ROOT or `root`; else the one that was installed
# with `root`; else the one on the PATH.
find_forge() {
  local candidate built=${FORGE_ROOT:-$root}/build/$1/forge
  for candidate in "${FORGE:-$built}" "$root/../../bin/forge" "$(command -v forge)"; do
    if [ -f "$candidate" ] && [ -x "$candidate" ]; then
      echo "$candidate"
      return
    fi
    [ -z "${FORGE:-}" ] || break
  done
  if [ -n "${FORGE:-}" ]; then
    echo "job.sh: FORGE=$FORGE is no program" >&2
  else
    echo "job.sh: there is no forge: not $built, none on the PATH, and FORGE is not set" >&2
  fi
  return 2
}

# run_job OPTIONS-OF-SRUN… PROGRAM ARGUMENTS…: starts the program on all ranks of the job and ends this script with its exit code.
# Starts the job again, through Slurm, where it may go on:
#   75            saved because of a signal, preemption or the time limit: always
#   86, 137       a rank or its node didn't answer, a rank was killed
#   5, 6          input or output failed, a device or communication library failed
#   138, 143      SIGUSR1 or SIGTERM came before the program could listen to them
#   8             of the check below, without the nodes that it names
# but for FORGE_MOST_FAILURES of the latter in a row, without a checkpoint of a newer step in between. Never on others: bad input, no
# usable checkpoint and NaN would only come back, and so would 7, a node with a broken memory or processor. Slurm by itself starts jobs
# again only where it preempts them or sees that a node is lost. docs/notes/design.md has the files in runs/jobs.
# With FORGE_CHECK=1, or options of it (FORGE_CHECK="--slow 1.5"), each start begins with `forge check` of the deck.
run_job() {
  # A task of an array: the number alone may stand for all of its tasks.
  job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
  job=${job:-$SLURM_JOB_ID}
  # When the job's time is over, where Slurm doesn't say it (22.05 doesn't): forge saves before.
  export SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(date -d "$(squeue -h -j "$job" -o %e)" +%s 2> /dev/null)}
  export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
  # Where forge tells the directory of its checkpoints.
  export FORGE_JOB_FILE=$PWD/runs/jobs/$job
  mkdir -p "$PWD/runs/jobs"
  [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || rm -f "$FORGE_JOB_FILE" "$FORGE_JOB_FILE.failures" "$FORGE_JOB_FILE.nodes" # a cancelled job of this number
  if [ "${FORGE_CHECK:-0}" != 0 ]; then check_nodes "$@" || answer $?; fi
  start "$@"
  answer $?
}

# start OPTIONS-OF-SRUN… PROGRAM ARGUMENTS…. Without --kill-on-bad-exit a rank that was killed alone on its node would leave the others
# waiting for ever.
start() {
  srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores "$@"
}

# check_nodes, of the same words: `forge check` of the deck with its settings.
check_nodes() {
  local words=() options=()
  [ "$FORGE_CHECK" = 1 ] || read -ra options <<< "$FORGE_CHECK"
  while [ $# -gt 0 ] && [ "$1" != "${forge:-}" ] && [[ $1 != */forge ]]; do words+=("$1") && shift; done
  words+=("$1" check "$2")
  shift 2
  while [ $# -gt 0 ]; do
    if [ "$1" = --set ]; then words+=("$1" "$2") && shift; fi
    shift
  done
  start "${words[@]}" "${options[@]}" --output "$FORGE_JOB_FILE.nodes"
}

answer() { # CODE
  case $1 in
    75) requeue 75 ;;
    5 | 6 | 86 | 137 | 138 | 143) ! counts_as_hopeless "$1" || end_job "$1"; requeue "$1" ;;
    8) leave_nodes_out ;;
    *) end_job "$1" ;;
  esac
}

# The job starts again on other nodes than those that the check names, and than those of earlier starts. Without names it ends.
leave_nodes_out() {
  local nodes before
  nodes=$(paste -sd , "$FORGE_JOB_FILE.nodes" 2> /dev/null)
  [ -n "$nodes" ] && ! counts_as_hopeless 8 || end_job 8
  before=$(scontrol show job -o "$job" | tr ' ' '\n' | sed -n 's/^ExcNodeList=//p')
  [ "$before" != "(null)" ] || before=
  echo "job.sh: job $job starts again without $nodes" >&2
  trap '' TERM # Slurm ends this script when it requeues the job, and changes the nodes of waiting jobs alone
  scontrol requeue "$job" && scontrol update JobId="$job" ExcNodeList="$nodes${before:+,$before}" || echo "job.sh: Slurm doesn't start job $job without $nodes" >&2
  exit 8
}

end_job() { # CODE
  rm -f "$FORGE_JOB_FILE" "$FORGE_JOB_FILE.failures" "$FORGE_JOB_FILE.nodes"
  exit "$1"
}

requeue() { # CODE
  scontrol requeue "$job" || echo "job.sh: Slurm doesn't start job $job again" >&2
  exit "$1"
}

# The newest step of the job's checkpoints, 0 where there is none.
newest_step() {
  local directory name newest=0
  directory=$(cat "$FORGE_JOB_FILE" 2> /dev/null) || directory=
  for name in "$directory"/step_*; do
    name=${name##*/step_}
    if [[ $directory && $name =~ ^[0-9]{8,}$ ]] && [ $((10#$name)) -gt $newest ]; then newest=$((10#$name)); fi
  done
  echo $newest
}

# counts_as_hopeless CODE: counts a failure, and whether it was the last that is allowed. The file has the number of failures and the
# newest step at the last one.
counts_as_hopeless() {
  local failures=0 step=-1 newest new most=${FORGE_MOST_FAILURES:-5}
  [[ $most =~ ^[1-9][0-9]{0,5}$ ]] || { echo "job.sh: FORGE_MOST_FAILURES=$most; legal: 1 to 999999; 5 is taken" >&2; most=5; }
  newest=$(newest_step)
  # Bash executes what stands in a number's place: of a file that somebody else may have written it takes numbers alone.
  [ ! -f "$FORGE_JOB_FILE.failures" ] || read -r failures step < "$FORGE_JOB_FILE.failures"
  [[ $failures =~ ^[0-9]{1,6}$ && $step =~ ^(-1|[0-9]{1,18})$ ]] || failures=0 step=-1
  failures=$((10#$failures))
  [ "$newest" -le "$step" ] || failures=0
  failures=$((failures + 1))
  echo "job.sh: code $1, failure $failures of at most $most in a row without a checkpoint newer than step $newest" >&2
  [ $failures -lt "$most" ] || return 0
  # Under a name of its own first: a link that stands there isn't followed.
  new=$(mktemp "$FORGE_JOB_FILE.XXXXXX" 2> /dev/null) && echo "$failures $newest" > "$new" && mv -T "$new" "$FORGE_JOB_FILE.failures" && return 1
  echo "job.sh: failures can't be counted in $FORGE_JOB_FILE.failures" >&2
}
