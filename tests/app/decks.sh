#!/usr/bin/env bash
# decks.sh FORGE: `forge show` accepts every deck of inputs/ without a launcher, and what each says of its layout, its
# experts and its batch is what comes out; each fits the GPUs that it is for.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/deck_values.sh"

count=0
for deck in inputs/*.yaml; do
  count=$((count + 1))
  timeout 60 "$forge" show --all --deck "$deck" > "$work/shown" 2>&1 || { fail "forge show $deck: $(tail -n 5 "$work/shown")"; continue; }
  [ "$deck" != inputs/quickstart.yaml ] || continue
  read -r pp replicate shard cp tp <<< "$(mesh_column "$work/shown" 2)"
  ranks=$((pp * replicate * shard * cp * tp))
  layout="# layout: $ranks rank$([ "$ranks" -eq 1 ] || echo s) = pp $pp x dp_replicate $replicate x dp_shard $shard x cp $cp x tp $tp, strides $(mesh_column "$work/shown" 3)"
  grep -qxF "$layout" "$deck" || fail "$deck doesn't say: $layout"
  grep -qE "^mesh of $ranks ranks?\$" "$work/shown" || fail "$deck: the mesh is not of $ranks ranks"
  if [ "$(value "$work/shown" model experts)" -gt 0 ]; then
    experts="# experts: $(expert_line "$work/shown" view); a rank has $(expert_line "$work/shown" "a rank has")"
    grep -qxF "$experts" "$deck" || fail "$deck doesn't say: $experts"
  fi
  global=$(value "$work/shown" train global_batch_sequences)
  b=$(value "$work/shown" train microbatch_sequences)
  data=$((replicate * shard))
  m=$((global / (b * data)))
  # How each of its token files is made.
  sed '/^[^#]/,$d' "$deck" > "$work/head"
  for file in $(sed -nE 's/^  (validation_)?files: \[([^]]*)\].*/\2/p' "$deck" | tr -d ,); do
    grep -qF -- "${file%/*}" "$work/head" || fail "$deck doesn't say how $file is made"
  done
  batch="# batch: $global sequences of $(value "$work/shown" train sequence_tokens) tokens = $data data-parallel x $m microbatch$([ "$m" -eq 1 ] || echo es) x $b"
  grep -qxF "$batch" "$deck" || fail "$deck doesn't say: $batch"
  # GPUs of 80 GB, or of 141 GB where the deck says so, less what drivers and libraries take; decks for any number of
  # ranks are shown for one, which need not be enough.
  limit=$((76 << 30))
  grep -q "141 GB" "$deck" && limit=$((134 << 30))
  peak=$(awk '$1 == "peak" && $3 == "B" { print $2; exit }' "$work/shown")
  grep -q "dp_shard: -1" "$deck" || { [ -n "$peak" ] && [ "$peak" -le "$limit" ]; } ||
    fail "$deck: the largest rank takes $peak B, more than $limit"
  [ "$(awk '/^stages/ { inside = 1; next } inside && /^ +[0-9]/ { layers += $4 } inside && /^$/ { exit } END { print layers }' "$work/shown")" \
    -eq "$(value "$work/shown" model layers)" ] || fail "$deck: the stages don't hold every layer"
done
[ "$count" -ge 60 ] || fail "only $count decks under inputs/"

# The sizes of published models, without multi-token prediction, as their projects give them.
published() {
  local deck=$1 size=$2 unit=$3 all
  "$forge" show --all --deck "$deck" --set model.mtp_depth=0 --set schedule.split=balanced > "$work/shown" 2>&1 ||
    fail "forge show $deck: $(tail -n 5 "$work/shown")"
  all=$(awk '$1 == "all" && $3 == "=" { print $2; exit }' "$work/shown")
  awk -v n="$all" -v size="$size" -v unit="$unit" 'BEGIN { d = n / unit - size; exit !(n > 0 && d * d <= 0.005 * 0.005 * (size < 100 ? 1 : 100)) }' ||
    fail "$deck has $all parameters, and the model $size x $unit"
}
published inputs/moe_32gpu.yaml 9.23 1e9
published inputs/olmoe_8gpu.yaml 6.92 1e9
published inputs/olmo3_7b_8gpu.yaml 7.30 1e9
published inputs/gemma3_4b_8gpu.yaml 3.88 1e9
published inputs/ministral3_8b_16gpu.yaml 8.49 1e9
published inputs/minimax_m2_256gpu.yaml 228.7 1e9
published inputs/gpt_oss_20b_8gpu.yaml 20.91 1e9
published inputs/moonlight_8gpu_tp2.yaml 15.96 1e9
published inputs/deepseek_v2_lite_8gpu.yaml 15.71 1e9
published inputs/deepseek_v2_128gpu.yaml 235.7 1e9
published inputs/glm45_air_32gpu.yaml 106.9 1e9
published inputs/glm45_128gpu.yaml 352.8 1e9
published inputs/qwen3_30b_16gpu.yaml 30.53 1e9
published inputs/qwen3_30b_16gpu_fsdp.yaml 30.53 1e9
published inputs/qwen3_235b_256gpu.yaml 235.1 1e9
published inputs/deepseek_v3_1024gpu.yaml 671.0 1e9
published inputs/kimi_k2_512gpu.yaml 1026.4 1e9
published inputs/mixtral_8x7b_32gpu.yaml 46.70 1e9

# What KempnerForge's presets say besides the model: steps between checkpoints, how many stay, whether they are written behind the
# steps, steps between lines, seed, time-out of collectives in seconds (60: none of their own).
preset() {
  "$forge" show --all --deck "inputs/$1.yaml" > "$work/shown"
  local said
  said="$(value "$work/shown" checkpoint every_steps) $(value "$work/shown" checkpoint keep_last) $(value "$work/shown" checkpoint asynchronous)"
  said+=" $(value "$work/shown" output every_steps) $(value "$work/shown" train seed) $(value "$work/shown" machine deadline_seconds)"
  [ "$said" = "$2" ] || fail "inputs/$1.yaml has $said, its preset $2"
}
preset debug "50 2 false 5 42 60"
preset debug_moe "25 2 false 5 0 60"
preset hf_wikitext "100 3 false 10 42 60"
preset 7b "1000 3 true 10 42 60"
preset 7b_12gpu_tp4 "100 3 true 1 42 600"
preset 7b_16gpu_adamw "500 3 true 10 42 600"
preset 7b_16gpu_muon "25 2 true 1 42 600"
preset 7b_16gpu_fp8 "25 2 true 1 42 600"
preset 7b_32gpu_fsdp "25 2 true 1 42 600"
preset 13b_24gpu_validation "200 3 false 5 42 1200"
preset 13b_32gpu_tp4_pp2 "100 2 false 1 42 1200"
preset 29b_32gpu_tp4_pp2 "100 2 false 1 42 1200"
preset 70b_32gpu_tp4 "100 2 true 1 42 1200"
preset 70b_32gpu_tp4_pp4 "100 2 false 1 42 1200"
preset moe_8gpu_stress "1000 1 false 1 0 600"
preset moe_24gpu "50 2 false 5 0 60"
preset moe_ep_32gpu "50 2 false 1 0 600"
"$forge" show --deck inputs/13b_24gpu_validation.yaml > "$work/shown"
[ "$(value "$work/shown" train validate_every_steps) $(value "$work/shown" train validation_sequences)" = "200 240" ] ||
  fail "inputs/13b_24gpu_validation.yaml: not every 200 steps, 20 microbatches of 2 on 6 data-parallel ranks"

# Memory of states by hand, ZeRO 1 in bf16: n elements that are cut over z ranks take 2n + 4n/z bytes as parameters, 4n as
# gradients and 8n/z in the optimizer. `dense` and `experts` are a rank's elements of the largest stage.
states() {
  local deck=$1 dense=$2 z=$3 experts=$4 ze=$5 row
  "$forge" show --all --deck "$deck" > "$work/shown"
  for row in "parameters $((2 * dense + 4 * dense / z + 2 * experts + 4 * experts / ze))" "gradients $((4 * (dense + experts)))" \
    "optimizer $((8 * dense / z + 8 * experts / ze))"; do
    grep -qE "^  ${row% *} +${row#* } B " "$work/shown" || fail "$deck: by hand, $row B"
  done
}
# tp 4, 24 layers: tables; q, k, v, output, router and norms; 4 whole experts.
states inputs/moe_32gpu.yaml \
  $((2 * 128256 * 2048 / 4 + 24 * ((2 * 2048 + 2 * 512) * 2048 / 4 + 8 * 2048 + 2 * 2048) + 2048)) 8 \
  $((24 * 4 * 3 * 7168 * 2048)) 16
# The first of four stages: the table, eight layers, one expert of each.
states inputs/mixtral_8x7b_32gpu.yaml \
  $((32000 * 4096 + 8 * ((2 * 4096 + 2 * 1024) * 4096 + 8 * 4096 + 2 * 4096))) 8 $((8 * 3 * 14336 * 4096)) 1

# KempnerForge counts ep as a factor of the world: its pinned dp_shard 4 of 32 ranks is 8 here.
for deck in inputs/moe_32gpu.yaml inputs/moe_ep_32gpu.yaml; do
  "$forge" show --all --deck "$deck" > "$work/shown"
  expect 0 "mesh of 32 ranks" "$forge" show --all --deck "$deck" --ranks 32 --set mesh.dp_shard=4
  cmp -s "$work/shown" "$work/output" || fail "$deck: dp_shard 4 x ep 2 of 32 ranks is not dp_shard 8"
done

# Recipes of the size table of Megatron-Bridge's guide: the smallest world of each is accepted, half of it is refused with
# the smallest; DeepSeek-V3's 256 ranks, too.
smallest() {
  local deck=$1 ranks=$2 equation=$3 world
  shift 3
  local mesh=("$@" --set mesh.dp_shard=-1 --set mesh.dp_replicate=1 --set train.global_batch_sequences=4096)
  expect 0 "mesh of $ranks ranks" "$forge" show --all --deck "$deck" --ranks "$ranks" "${mesh[@]}"
  for world in $((ranks / 2)) $((ranks / 4)); do
    expect 2 "$equation" "$forge" show --all --deck "$deck" --ranks "$world" "${mesh[@]}"
    grep -qE "(^|[^0-9])$ranks ranks|ranks: $ranks:" "$work/output" ||
      fail "$deck on $world ranks doesn't name $ranks: $(cat "$work/output")"
  done
}
smallest inputs/olmoe_8gpu.yaml 8 "ep 8 * etp 1 = 8 does not divide dp_replicate * dp_shard * cp * tp"
smallest inputs/moonlight_8gpu_tp2.yaml 8 "ep 8 * etp 1 = 8 does not divide dp_replicate * dp_shard * cp * tp"
smallest inputs/qwen3_30b_8gpu_tp4_pp2.yaml 8 "mesh.pp 2 * dp_replicate 1 * cp 1 * tp 4 = 8 does not divide the world"
smallest inputs/glm45_air_32gpu.yaml 32 "ep 8 * etp 1 = 8 does not divide dp_replicate * dp_shard * cp * tp"
smallest inputs/deepseek_v2_128gpu.yaml 128 "ep 32 * etp 1 = 32 does not divide dp_replicate * dp_shard * cp * tp"
smallest inputs/glm45_128gpu.yaml 128 "ep 16 * etp 1 = 16 does not divide dp_replicate * dp_shard * cp * tp"
smallest inputs/qwen3_235b_256gpu_cp2.yaml 128 "mesh.pp 16 * dp_replicate 1 * cp 2 * tp 4 = 128 does not divide the world"
smallest inputs/kimi_k2_512gpu.yaml 512 "ep 32 * etp 1 = 32 does not divide dp_replicate * dp_shard * cp * tp"
smallest inputs/deepseek_v3_1024gpu.yaml 1024 "ep 64 * etp 1 = 64 does not divide dp_replicate * dp_shard * cp * tp"
finish
