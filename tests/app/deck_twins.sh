#!/usr/bin/env bash
# deck_twins.sh FORGE [DECK…]: a small twin of every deck of inputs/ runs with ranks as threads: the same axes, halved until
# at most 32 ranks are left; the same schedule, split, ZeRO stage, recomputation, context-parallel method and kind of model;
# tiny dimensions that leave remainders. In fp64 its loss and gradient norm are those of one rank; then it trains for two
# steps in the deck's own precision.
set -euo pipefail
forge=$1
shift
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/deck_values.sh"
has_thread_ranks || { echo "SKIPPED: this build runs no ranks as threads"; exit 77; }
most_ranks=32
export OMP_NUM_THREADS=1

cat docs/*.md > "$work/text"
"$forge" tokenize "$work/text" --output "$work/tokens.bin" > /dev/null
"$forge" tokenize docs/notation.md --output "$work/held_out.bin" > /dev/null

# The axes of a twin: the largest one is halved until the ranks fit.
shrink() {
  echo "$@" | awk -v most="$most_ranks" '{
    for (;;) {
      product = 1; largest = 1
      for (i = 1; i <= NF; ++i) { product *= $i; if ($i > $largest) largest = i }
      if (product <= most) break
      $largest = int($largest / 2)
    }
    print
  }'
}

# Numbers that differ by at most 1e-9 of their size.
agree() {
  awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; s = a < 0 ? -a : a; exit !(a != "" && b != "" && d <= 1e-9 * s) }'
}

numbers() { sed -n 's/^loss \([^ ]*\) .*grad_norm \([^ ]*\)$/\1 \2/p' "$1"; }

twin() {
  local deck=$1 shown=$work/shown
  "$forge" show "$deck" > "$shown"
  local pp replicate shard cp tp
  read -r pp replicate shard cp tp <<< "$(shrink $(mesh_column "$shown" 2))"
  if [ $((pp * replicate * shard * cp * tp)) -eq 1 ] && [ "$(value "$shown" train zero_stage)" -gt 0 ]; then shard=2; fi
  local ranks=$((pp * replicate * shard * cp * tp)) chunks heads=8 kv_heads=2
  chunks=$(value "$shown" schedule chunks_per_stage)
  [ "$(value "$shown" model kv_heads)" != "$(value "$shown" model heads)" ] || kv_heads=$heads
  local microbatches=$((2 * pp))  # a multiple of pp, for interleaved schedules
  local small=(--set model.layers=$((pp * chunks + 1)) --set model.width=32 --set model.heads=$heads --set model.kv_heads=$kv_heads
    --set model.head_dim=4 --set model.ffn=48 --set model.vocabulary=257 --set model.rope_original_positions=0
    --set model.rope_scaling=none --set model.rope_factor=1 --set model.initial_std=0.2 --set train.sequence_tokens=64
    --set train.microbatch_sequences=1 --set train.global_batch_sequences=$((replicate * shard * microbatches))
    --set train.validation_sequences=$((replicate * shard)) --set "data.files=[$work/tokens.bin]" --set data.dtype=uint16
    --set machine.workspace_mib=1 --set machine.peak_tflops=1 --set "output.directory=$work/run" --set train.steps=2
    --set optimizer.warmup_steps=1)
  [ "$(value "$shown" data validation_files)" = "[]" ] || small+=(--set "data.validation_files=[$work/held_out.bin]")
  local mesh=(--set mesh.pp=$pp --set mesh.dp_replicate=$replicate --set mesh.dp_shard=$shard --set mesh.cp=$cp --set mesh.tp=$tp)
  local one=(--set mesh.pp=1 --set mesh.dp_replicate=1 --set mesh.dp_shard=1 --set mesh.cp=1 --set mesh.tp=1
    --set train.zero_stage=0 --set schedule.name=gpipe --set schedule.chunks_per_stage=1 --set schedule.split=even)
  expect 0 "written" "$forge" gradients "$deck" "${small[@]}" "${one[@]}" --set train.precision=fp64 --output "$work/one.st"
  local alone
  alone=$(numbers "$work/output")
  expect 0 "written" "$forge" gradients "$deck" "${small[@]}" "${mesh[@]}" --set train.precision=fp64 --ranks "$ranks" \
    --output "$work/all.st"
  local together
  together=$(numbers "$work/output")
  agree "${alone% *}" "${together% *}" || fail "$deck: loss ${together% *}, on one rank ${alone% *}"
  agree "${alone#* }" "${together#* }" || fail "$deck: gradient norm ${together#* }, on one rank ${alone#* }"
  expect 0 "2/2" "$forge" "$deck" "${small[@]}" "${mesh[@]}" --ranks "$ranks"
  echo "$deck: $ranks ranks = $pp x $replicate x $shard x $cp x $tp"
}

[ $# -gt 0 ] || set -- inputs/*.yaml
for deck in "$@"; do
  [ "$deck" = inputs/quickstart.yaml ] || twin "$deck"
done
finish
