# Helpers of the scripts beside this one, which run inside cluster.sh: source it after setting `forge`.
slurm=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$slurm/../.." && pwd)
# Temporary files of a node are its own; what all nodes see lies elsewhere.
TMPDIR=$CLUSTER . "$slurm/../app/expect.sh"

# Job scripts look for forge where the presets build it: this one in the place of both.
export FORGE_ROOT=$work/root
mkdir "$FORGE_ROOT"
ln -s "$repository/jobscripts" "$repository/inputs" "$FORGE_ROOT"
for preset in cpu cuda; do
  mkdir -p "$FORGE_ROOT/build/$preset"
  ln -s "$(readlink -f "$forge")" "$FORGE_ROOT/build/$preset/forge"
done
cat "$repository"/docs/*.md > "$work/text"
"$forge" tokenize "$work/text" --output "$work/tokens.bin" > /dev/null
# Where jobs are submitted, and leave runs/jobs.
cd "$work"

# write_deck NAME STEPS: $work/NAME.yaml, with checkpoints in $work/NAME and its run directory in $work/NAME.run.
write_deck() {
  cat > "$work/$1.yaml" << YAML
model: {layers: 2, width: 32, heads: 2, ffn: 48, vocabulary: 256}
train: {steps: $2, global_batch_sequences: 8, sequence_tokens: 32, precision: fp32, zero_stage: 1}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [$work/tokens.bin], dtype: uint16, order: shuffled}
output: {directory: $work/$1.run, every_steps: 5}
checkpoint: {directory: $work/$1, keep_last: 1, resume: auto}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
}

# install: the program, decks and scripts into $installed, as `cmake --install` does it.
install_forge() {
  installed=$work/installed
  cmake --install "$(dirname "$(readlink -f "$forge")")" --prefix "$installed" > "$work/output" 2>&1 || fail "cmake --install: $(cat "$work/output")"
}

# Lines of steps without their times, and the last checkpoint's tensors: equal for runs that are equal to the last bit.
numbers() { sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$1.run/metrics.jsonl"; }
same_run() { # DIRECTORY DIRECTORY
  local shard
  cmp -s <(numbers "$1") <(numbers "$2") || fail "$2 has other metrics than $1: $(diff <(numbers "$1") <(numbers "$2"))"
  for shard in "$1"/step_*/shard_*.h5; do
    cmp -s "$shard" "$2${shard#"$1"}" || fail "$2 ends with another state than $1"
  done
  [ -e "$shard" ] || fail "$1 holds no checkpoint"
}

# wait_until SECONDS COMMAND…: until it succeeds.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { fail "this did not come true: $*"; return; }
    sleep 0.1
  done
}

# Jobs: JOB FIELD of what scontrol shows; whether it is in one of these states.
field() { scontrol show job -o "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }
is_in_state() {
  local state wanted job=$1
  shift
  state=$(field "$job" JobState)
  for wanted in "$@"; do [ "$state" = "$wanted" ] && return; done
  return 1
}
# ends_as JOB STATE SECONDS [OUTPUT]
ends_as() {
  wait_until "$3" is_in_state "$1" COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL PREEMPTED
  is_in_state "$1" "$2" || fail "job $1 is $(field "$1" JobState) with exit code $(field "$1" ExitCode), not $2: $(cat "${4:-/dev/null}")"
}
trains() { grep -q '"step": [1-9][0-9]' "$work/$1.run/metrics.jsonl"; } # it has done ten steps

# What jobs left in any node's /dev/shm and $TMPDIR. A step that is cancelled while it starts leaves the directory of Slurm's PMIx plugin.
left_files() { find "$CLUSTER"/nodes/*/shm "$CLUSTER"/nodes/*/tmp -mindepth 1 -not -path '*/spmix_appdir_*'; }
no_files_left() { [ -z "$(left_files)" ]; }
# After a job: no process and no file. A step may end behind its job.
nothing_left() {
  wait_until 10 sh -c '! pgrep -x forge'
  wait_until 10 no_files_left
  no_files_left || fail "left behind: $(left_files)"
}
