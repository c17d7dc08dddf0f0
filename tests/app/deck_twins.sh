#!/usr/bin/env bash
# deck_twins.sh FORGE dense|experts|DECK…: a small twin of every deck of inputs/ without or with experts (of each third one, drawn by
# the commit's hash, with FORGE_VOLUME=third), or of the decks that are named, runs with ranks as threads: the same axes, halved until at
# most 32 ranks are left; the same schedule, split,
# ZeRO stage, recomputation, context-parallel method, router and kind of model; tiny dimensions that leave remainders. In fp64,
# or in fp8 with all else in fp64, its loss and gradient norm are those of one rank; then it trains for two steps in the deck's own precision, and saves.
set -euo pipefail
forge=$1
shift
[ $# -gt 0 ] || { echo "deck_twins.sh FORGE dense|experts|DECK…"; exit 2; }
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/deck_values.sh"
. "$(dirname "$0")/shrink_deck.sh"
has_thread_ranks || exit 77
most_ranks=32
export OMP_NUM_THREADS=1

cat docs/*.md > "$work/text"
"$forge" tokenize "$work/text" --output "$work/tokens.bin" > /dev/null
"$forge" tokenize docs/start.md --output "$work/held_out.bin" > /dev/null

# Numbers that differ by at most 1e-9 of their size.
agree() {
  awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; s = a < 0 ? -a : a; exit !(a != "" && b != "" && d <= 1e-9 * s) }'
}

numbers() { sed -n 's/^loss \([^ ]*\) .*grad_norm \([^ ]*\)$/\1 \2/p' "$1"; }

twin() {
  local deck=$1 shown=$work/shown pp replicate shard cp tp ranks axes small mesh data
  "$forge" show --all --deck "$deck" > "$shown"
  shrink_deck "$shown" most $most_ranks
  shrink_data "$shown" "$work/tokens.bin" "$work/held_out.bin"
  small+=("${data[@]}" --set "output.directory=$work/run" --set "checkpoint.directory=$work/saved" --set train.steps=2)
  local one=(--set mesh.pp=1 --set mesh.dp_replicate=1 --set mesh.dp_shard=1 --set mesh.cp=1 --set mesh.tp=1 --set mesh.ep=1 --set mesh.etp=0
    --set train.zero_stage=0 --set train.reduction=one_level --set train.overlap=none --set schedule.name=gpipe --set schedule.virtual_stages=1 --set schedule.split=even)
  local exact=(--set optimizer.moments=default --set optimizer.master_weights=default --set optimizer.gradients=default)
  [ "$(value "$shown" train precision)" = fp8 ] || exact+=(--set train.precision=fp64)
  if [ "$(value "$shown" preference name)" != none ]; then  # whose start makes the reference
    expect 0 "reference" "$forge" "$deck" "${small[@]}" "${mesh[@]}" --ranks "$ranks" --fresh
  fi
  expect 0 "written" env FORGE_FP8_CARRIER=fp64 "$forge" gradients "$deck" "${small[@]}" "${one[@]}" "${exact[@]}" --output "$work/one.st"
  local alone
  alone=$(numbers "$work/output")
  expect 0 "written" env FORGE_FP8_CARRIER=fp64 "$forge" gradients "$deck" "${small[@]}" "${mesh[@]}" "${exact[@]}" --ranks "$ranks" \
    --output "$work/all.st"
  local together
  together=$(numbers "$work/output")
  agree "${alone% *}" "${together% *}" || fail "$deck: loss ${together% *}, on one rank ${alone% *}"
  agree "${alone#* }" "${together#* }" || fail "$deck: gradient norm ${together#* }, on one rank ${alone#* }"
  expect 0 "saved step_00000002" "$forge" "$deck" "${small[@]}" "${mesh[@]}" --ranks "$ranks" --fresh
  grep -q " 2/2 " "$work/output" || fail "$deck: no step 2: $(cat "$work/output")"
  rm -rf "$work/saved"
  echo "$deck: $ranks ranks = $pp x $replicate x $shard x $cp x $tp$axes"
}

# A twin of moe_32gpu.yaml on all 32 ranks from start to end: ten steps with validation; the run directory holds what it must,
# every loss is one rank's to 1e-9, and the last is below the first.
whole_run() {
  local deck=inputs/moe_32gpu.yaml
  local small=(--set model.layers=2 --set model.width=32 --set model.heads=8 --set model.kv_heads=4 --set model.ffn=48
    --set model.vocabulary=257 --set train.sequence_tokens=32 --set train.microbatch_sequences=1 --set train.precision=fp64
    --set train.global_batch_sequences=16 --set train.steps=10 --set optimizer.learning_rate=1e-2 --set optimizer.warmup_steps=1
    --set "data.files=[$work/tokens.bin]" --set "data.validation_files=[$work/held_out.bin]" --set data.dtype=uint16
    --set train.validate_every_steps=5 --set train.validation_sequences=8 --set machine.workspace_mib=1 --set machine.peak_tflops=1)
  expect 0 "10/10" "$forge" "$deck" "${small[@]}" --ranks 32 --set "output.directory=$work/all" --set "checkpoint.directory=$work/all"
  expect 0 "10/10" "$forge" "$deck" "${small[@]}" --set mesh.dp_shard=1 --set mesh.tp=1 --set mesh.ep=1 \
    --set "output.directory=$work/alone" --set "checkpoint.directory=$work/alone"
  for file in deck.yaml job_info log.txt metrics.jsonl; do
    [ -s "$work/all/$file" ] || fail "$deck: the run directory has no $file"
  done
  losses() { sed -n 's/.*"loss": \([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
  local all alone i
  mapfile -t all < <(losses "$work/all")
  mapfile -t alone < <(losses "$work/alone")
  [ "${#all[@]}" -eq 10 ] && [ "${#alone[@]}" -eq 10 ] || fail "$deck: ${#all[@]} and ${#alone[@]} losses, not 10"
  for i in "${!alone[@]}"; do
    agree "${alone[i]}" "${all[i]:-}" || fail "$deck: step $((i + 1)) has loss ${all[i]:-none}, on one rank ${alone[i]}"
  done
  awk -v first="${all[0]}" -v last="${all[9]}" 'BEGIN { exit !(last < first) }' || fail "$deck: the loss did not fall"
  expect 0 "mesh of 32 ranks" "$forge" show --all --deck "$work/all/deck.yaml"
}

kind=$1
ran=0 seen=0
draw=$(draw_below 3)
case $kind in dense | experts) set -- inputs/*.yaml ;; esac
for deck in "$@"; do
  [ "$deck" != inputs/quickstart.yaml ] || continue
  has_experts=dense
  ! grep -q "^  experts:" "$deck" || has_experts=experts
  case $kind in
    dense | experts)
      [ "$has_experts" = "$kind" ] || continue
      seen=$((seen + 1))
      ! is_third || [ $((seen % 3)) -eq "$draw" ] || continue
      ;;
  esac
  twin "$deck"
  ran=$((ran + 1))
done
case $kind in dense) least=34 ;; experts) least=28 ;; *) least=1 ;; esac
case $kind in
  dense | experts)
    [ "$seen" -ge "$least" ] || fail "$seen decks, not $least"
    ! is_third || least=$((least / 3))
    ;;
esac
[ "$ran" -ge "$least" ] || fail "$ran twins of decks, not $least"
[ "$kind" != experts ] || whole_run
finish
