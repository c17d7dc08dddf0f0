#!/usr/bin/env bash
# launch.sh FORGE: srun starts forge on eight nodes; it trains as under mpirun, to the last bit.
set -euo pipefail
forge=$1
. "$(dirname "$0")/common.sh"

# One rank on each node.
write_deck plain 20
expect 0 "8 ranks on 8 nodes" srun -N 8 --mpi=pmix "$forge" "$work/plain.yaml"
write_deck local 20
expect 0 "8 ranks on 1 node" mpirun -n 8 "$forge" "$work/local.yaml"
same_run "$work/local" "$work/plain"
nothing_left

# Four on each: `srun -N 8 forge inputs/moe_32gpu.yaml` in an allocation, with the forge of an installation on the PATH. The deck is
# made small by settings behind it; tensor parallel inside a node and experts on pairs of nodes.
install_forge
small=(--set model.layers=2 --set model.width=32 --set model.heads=8 --set model.kv_heads=4 --set model.ffn=48
  --set model.vocabulary=257 --set train.sequence_tokens=32 --set train.microbatch_sequences=1 --set train.global_batch_sequences=16
  --set train.steps=5 --set optimizer.learning_rate=1e-2 --set optimizer.warmup_steps=1 --set "data.files=[$work/tokens.bin]"
  --set data.dtype=uint16 --set machine.workspace_mib=1 --set machine.peak_tflops=1)
cd "$installed/share/forge"
PATH=$installed/bin:$PATH expect 0 "saved step_00000005" salloc -N 8 --ntasks-per-node=4 \
  bash -c 'srun -N 8 forge inputs/moe_32gpu.yaml "$@"' srun "${small[@]}"
grep -q "32 ranks on 8 nodes" "$work/output" || fail "not 32 ranks: $(cat "$work/output")"
cd "$work"
expect 0 "32 ranks on 1 node" mpirun -n 32 "$forge" "$repository/inputs/moe_32gpu.yaml" "${small[@]}" \
  --set "output.directory=$work/twin_local.run" --set "checkpoint.directory=$work/twin_local"
mv "$installed/share/forge/checkpoints/moe_32gpu" "$work/twin"
mv "$installed/share/forge/runs/moe_32gpu" "$work/twin.run"
same_run "$work/twin_local" "$work/twin"
nothing_left

# A forgotten option is named; the job ends at once.
start=$SECONDS
expect 2 "the deck's mesh has 32 ranks, but srun started 8 ranks on 8 nodes; the option that is missing: --ntasks-per-node=4" \
  srun -N 8 --mpi=pmix "$forge" "$repository/inputs/moe_32gpu.yaml" "${small[@]}"
[ $((SECONDS - start)) -le 30 ] || fail "a wrong number of ranks took $((SECONDS - start)) s to be told"
nothing_left
# Tasks whose MPI doesn't find the others are refused, each at once; one task, a script without srun, and runs of their own are not.
refusal="srun started 4 tasks (SLURM_STEP_NUM_TASKS = 4), but Open MPI"
expect 2 "$refusal" srun -n 4 --mpi=none "$forge" "$work/plain.yaml" --fresh
[ "$(grep -cF "$refusal" "$work/output")" -eq 4 ] || fail "not every task says why: $(cat "$work/output")"
alone=("$forge" gradients "$work/plain.yaml")
expect 0 "written" srun -n 1 --mpi=none "${alone[@]}" --output "$work/one.safetensors"
expect 0 "written" salloc -n 4 "${alone[@]}" --output "$work/shell.safetensors"
printf '#!/bin/sh\nexec "$@"\n' > "$work/batch.sh"
expect 0 "" sbatch -W -n 4 -o "$work/batch.out" "$work/batch.sh" "${alone[@]}" --ranks 2 --output "$work/batch.safetensors"
grep -q written "$work/batch.out" || fail "a script without srun: $(cat "$work/batch.out")"
expect 0 "written" srun -n 2 --mpi=none env -u SLURM_STEP_ID bash -c '"$@" --output "g_$SLURM_PROCID.safetensors"' _ "${alone[@]}"
nothing_left
# The first hour on a cluster, rehearsed with a rank on each node.
expect 0 "code 0" salloc -N 8 --ntasks-per-node=1 "$repository/tests/gpu/first_cluster.sh" --rehearse --machine h100_8 \
  --build "$FORGE_ROOT/build/cpu" --output "$work/first_cluster" --part start --part calibrate --part layouts --part runs
grep -q "8 ranks on 8 nodes" "$work/first_cluster/calibrate/measured.yaml" || fail "not measured on 8 nodes: $(cat "$work/first_cluster/summary.txt")"
nothing_left
# Threads of a rank are what srun gives it.
expect 0 "2 ranks on 2 nodes, 3 threads each" env -u OMP_NUM_THREADS srun -N 2 --cpus-per-task=3 --mpi=pmix "$forge" \
  "$work/plain.yaml" --fresh --set machine.threads=0
finish
