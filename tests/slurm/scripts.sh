#!/usr/bin/env bash
# scripts.sh FORGE: the job scripts as they are, with the CPU build in the place of the CUDA build: the ranks that they ask for
# start where they shall, and train.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"
cd "$work"

# run NAME TEXT SBATCH-ARGUMENTS…: a job that ends well and prints TEXT.
run() {
  local name=$1 text=$2
  shift 2
  expect 0 "Submitted" sbatch --wait --output="$work/$name.out" "$@"
  grep -qF -- "$text" "$work/$name.out" || fail "no '$text' from $*: $(cat "$work/$name.out")"
}
batch=(--set train.global_batch_sequences=32)

write_deck cpu 3
run cpu "8 ranks on 4 nodes" "$repository/jobscripts/slurm_cpu.sh" "$work/cpu.yaml" "${batch[@]}"
write_deck gpu 3
run gpu "32 ranks on 8 nodes" "$repository/jobscripts/slurm_gpu.sh" "$work/gpu.yaml" "${batch[@]}"

# In place of Apptainer: what it is called with, and the program that the image would have.
mkdir "$CLUSTER/bin"
cat > "$CLUSTER/bin/apptainer" << 'STANDIN'
#!/bin/sh
[ "$1 $2 $3 $5" = "exec --nv --bind image.sif" ] && [ "$4" = "$PWD" ] || { echo "apptainer: unexpected $*"; exit 1; }
shift 5
program=$FORGE_ROOT${1#/opt/forge} && shift
exec "$program" "$@"
STANDIN
chmod +x "$CLUSTER/bin/apptainer"
write_deck container 3
PATH=$CLUSTER/bin:$PATH run container "32 ranks on 8 nodes" "$repository/jobscripts/slurm_container.sh" image.sif \
  "$work/container.yaml" "${batch[@]}"

# Two lines of the sweep, side by side; one of them is told to leave, and goes on.
write_deck sweep 30
export FORGE_FAULT=slow:0:12:3
job=$(sbatch --parsable --array=1,3 --output="$work/sweep.%a.out" "$repository/jobscripts/slurm_sweep.sh" "$work/sweep.yaml")
run=$work/runs/sweep_$job
in_step_12() { grep -q '"step": 11,' "$run/3/metrics.jsonl"; }
wait_until 180 in_step_12
scancel --signal=USR1 "${job}_3"
for line in 1 3; do
  wait_until 180 grep -q "saved step_00000030" "$work/sweep.$line.out"
done
wait_until 180 sh -c '[ -z "$(squeue -h)" ]'
grep -q "stopped: saved step_00000012 and left: SIGUSR1" "$work/sweep.3.out" || fail "no word of the signal: $(cat "$work/sweep.3.out")"
rates() { sed 's/.*"learning_rate": \([^,]*\),.*/\1/' "$run/$1/metrics.jsonl" | uniq -c | tr -s ' '; }
[ "$(rates 1)" = " 30 3e-04" ] || fail "line 1 of the sweep trained with $(rates 1)"
[ "$(rates 3)" = " 30 1e-04" ] || fail "line 3 of the sweep trained with $(rates 3)"
grep -q "weight_decay: 0$" "$run/3/deck.yaml" || fail "line 3 of the sweep has $(grep weight_decay "$run/3/deck.yaml")"
nothing_left
finish
