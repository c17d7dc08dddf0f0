#!/usr/bin/env bash
# command_line.sh FORGE: wrong input gets one clear message, the documented exit code, and leaves nothing behind.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

cat docs/*.md > "$work/text"
expect 0 "tokens (uint16, byte vocabulary)" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 3, global_batch_sequences: 2, sequence_tokens: 16, precision: fp32}
optimizer: {learning_rate: 1e-3}
data: {files: [$work/tokens.bin], dtype: uint16}
output: {directory: $work/run}
machine: {workspace_mib: 1, peak_tflops: 1}
YAML
deck=$work/deck.yaml

# the command line
expect 2 "no input deck" "$forge"
expect 2 "neither a verb nor a deck" "$forge" trian
expect 2 "unrecognised option" "$forge" "$deck" --sett a=b
expect 2 "cannot open the deck" "$forge" "$work/none.yaml"
expect 2 "is a directory" "$forge" "$work"
# another file in the deck's place: one line, at once
no_deck() { # FILE WHAT
  for verb in train show; do
    expect 2 "forge: error: $1 is no deck: it is $2; legal: a YAML file" timeout 20 "$forge" $verb "$1"
    [ "$(wc -l < "$work/output")" -eq 1 ] || fail "$1 in the place of a deck gives $(cat "$work/output")"
  done
}
expect 0 "saved step_00000003" "$forge" "$deck" --set "checkpoint.directory=$work/saved" --set "output.directory=$work/other"
touch "$work/empty.yaml"
printf '\n \n' > "$work/blank.yaml"
iconv -t UTF-16LE < "$deck" | cat <(printf '\xff\xfe') - > "$work/utf16.yaml"
head -c 1100000 < <(yes '# a line') > "$work/long.yaml"
no_deck "$work/tokens.bin" "binary (byte 0x00 at offset 1)"
no_deck "$work/saved/step_00000003/shard_00000.h5" "binary (byte 0x1a at offset 6)"
no_deck /dev/zero "a device"
no_deck "$forge" "binary (byte 0x7f at offset 0)"
no_deck "$work/empty.yaml" empty
no_deck "$work/blank.yaml" empty
no_deck "$work/utf16.yaml" "UTF-16 text"
no_deck "$work/long.yaml" "longer than 1048576 bytes"
expect 2 "not YAML" "$forge" show --all --deck "$work/text"
printf '\200\201' > "$work/scalar.yaml"
expect 2 "forge: error: $work/scalar.yaml:1:1: must be a map of sections" "$forge" "$work/scalar.yaml"
rm -rf "$work/saved" "$work/other"
# all keys may come from options
expect 0 "parameters" "$forge" show --all --deck "$work/empty.yaml" --set model.layers=1 --set model.width=16 --set model.heads=2 --set model.ffn=24 \
  --set model.vocabulary=256 --set train.steps=3 --set train.global_batch_sequences=2 --set train.sequence_tokens=16 \
  --set optimizer.learning_rate=1e-3 --set "data.files=[$work/tokens.bin]" --set data.dtype=uint16 --set "output.directory=$work/run"
expect 2 "no problem of verification" "$forge" verify "$work"
expect 2 "takes one input deck" "$forge" show --all --deck "$deck" "$deck"
expect 2 "no checkpoint.directory" "$forge" "$deck" --restart latest
expect 2 "--output" "$forge" gradients "$deck"
# outputs that would take the place of something else, before anything is computed
mkfifo "$work/pipe"
ln -s "$work/none" "$work/link"
for verb in gradients calibrate; do
  deck_of=("$deck")
  [ $verb != calibrate ] || deck_of=()
  expect 2 "$work/pipe is a device or a pipe" "$forge" $verb "${deck_of[@]}" --output "$work/pipe"
  expect 2 "$work/link is a symbolic link" "$forge" $verb "${deck_of[@]}" --output "$work/link"
  expect 2 "$work is a directory" "$forge" $verb "${deck_of[@]}" --output "$work"
done
expect 2 "$work/pipe is a device or a pipe" "$forge" plan inputs/7b_1gpu.yaml --machine h100_8 --json "$work/pipe"
[ -p "$work/pipe" ] && [ -L "$work/link" ] || fail "a pipe or a link was replaced"
rm "$work/pipe" "$work/link"
expect 2 "--length must be from 1 to 16777216" "$forge" generate "$deck" --initial --tokens 1 --length 3000000000
# a tokenizer that is nowhere, for the model's directory
expect 2 "model.tokenizer = $work/none: there is no such file" "$forge" "$deck" --set "model.tokenizer=$work/none" --set output.save_hf=true
# weights whose powers leave the range of numbers
mixture=(--set "data.files=null" --set "data.sources=[{name: a, files: [$work/tokens.bin], weight: 0.7}, {name: b, files: [$work/tokens.bin], weight: 0.3}]")
expect 2 "data.temperature = 0.001: the weight of b, 0.3, to the power of 1 / temperature is" timeout 60 "$forge" "$deck" "${mixture[@]}" --set data.temperature=1e-3
expect 2 "data.temperature = 1e-300: the weight of a" timeout 60 "$forge" "$deck" "${mixture[@]}" --set data.temperature=1e-300
expect 2 "--top-p" "$forge" generate "$deck" --prompt a --top-p 2
expect 2 "needs --prompt" "$forge" generate "$deck"
expect 2 "outside the vocabulary" "$forge" generate "$deck" --tokens 1,256
expect 2 "--checkpoint: legal are latest and a directory" "$forge" evaluate "$deck" --checkpoint ""
expect 2 "unrecognised option" "$forge" gradients "$deck" --initial --output "$work/g.st"
expect 2 "--bytes must be at least 1" "$forge" evaluate "$deck" --initial --bytes 0
expect 2 "continues one prompt as one rank" mpirun -n 2 "$forge" generate "$deck" --initial --prompt a
expect 0 "train.sequence_tokens" "$forge" help train.
expect 2 "optimizer" "$forge" help optimiser
expect 0 "forge " "$forge" version

# the deck
expect 2 "model.layers" "$forge" "$deck" --set model.layrs=3
expect 2 "train.precision" "$forge" "$deck" --set train.precision=fp12
expect 2 "FORGE_ATTENTION = tensor_cores without train.precision = bf16" env FORGE_ATTENTION=tensor_cores "$forge" "$deck"
expect 2 "this build computes on the CPU; legal: automatic" env FORGE_ATTENTION=tensor_cores "$forge" "$deck" --set train.precision=bf16
expect 2 "FORGE_ATTENTION = cudnn: this build computes on the CPU; legal: automatic" env FORGE_ATTENTION=cudnn "$forge" "$deck" \
  --set train.precision=bf16 --set machine.workspace_mib=2
expect 2 "scores of at least one head of keys; legal: workspace_mib 2 or more (2 for all heads and sequences" env FORGE_ATTENTION=cudnn \
  "$forge" show --all --deck "$deck" --set train.precision=bf16
expect 2 "FORGE_ATTENTION = 'tensor'; legal: automatic, cuda_cores, tensor_cores, cudnn" env FORGE_ATTENTION=tensor "$forge" "$deck"
expect 2 "FORGE_GROUPED = tensor_cores without train.precision = bf16" env FORGE_GROUPED=tensor_cores "$forge" "$deck"
expect 2 "this build computes on the CPU; legal: automatic, the default, or library" env FORGE_GROUPED=tensor_cores "$forge" "$deck" \
  --set train.precision=bf16 --set model.experts=4 --set model.experts_per_token=2
expect 2 "FORGE_GROUPED = cutlass: this build computes on the CPU; legal: automatic" env FORGE_GROUPED=cutlass "$forge" "$deck" \
  --set train.precision=bf16 --set model.experts=4 --set model.experts_per_token=2
expect 2 "FORGE_GROUPED = 'cuda_cores'; legal: automatic, library, tensor_cores, cutlass" env FORGE_GROUPED=cuda_cores "$forge" show --deck "$deck"
expect 2 "the option '--output' is required" "$forge" gradients "$deck"
expect 2 "mesh.ep = 2 without model.experts; legal: 1" "$forge" show --all --deck "$deck" --ranks 2 --set mesh.ep=2
expect 2 "model.experts_per_token = 0; legal: 1 to model.experts = 4" "$forge" "$deck" --set model.experts=4
expect 2 "mesh.ep = 3 does not divide model.experts = 4" "$forge" show --all --deck "$deck" --ranks 3 --set mesh.ep=3 \
  --set model.experts=4 --set model.experts_per_token=2 --set train.global_batch_sequences=3
expect 2 "ep 4 * etp 1 = 4 does not divide dp_replicate * dp_shard * cp * tp = 2" "$forge" show --all --deck "$deck" --ranks 2 \
  --set mesh.ep=4 --set model.experts=4 --set model.experts_per_token=2
expect 2 "checkpoint.every_steps = 10 without checkpoint.directory" "$forge" "$deck" --set checkpoint.every_steps=10
expect 2 "schedule.virtual_stages = 2" "$forge" "$deck" --set schedule.virtual_stages=2
expect 2 "train.accumulate = unsharded" "$forge" "$deck" --set train.zero_stage=2 --set train.accumulate=unsharded
expect 2 "none.csv" "$forge" "$deck" --set schedule.file=none.csv
printf 'model: {layers: 1\n' > "$work/broken.yaml"
expect 2 "broken.yaml" "$forge" "$work/broken.yaml"
printf 'model: &a {layers: 1}\ntrain: *a\n' > "$work/alias.yaml"
expect 2 "alias" "$forge" "$work/alias.yaml"

# data
expect 2 "none.bin" "$forge" "$deck" --set "data.files=[$work/none.bin]"
expect 2 "dtype" "$forge" "$deck" --set data.dtype=null
head -c 1001 "$work/tokens.bin" > "$work/odd.bin"
expect 2 "odd.bin" "$forge" "$deck" --set "data.files=[$work/odd.bin]"
head -c 20 "$work/tokens.bin" > "$work/short.bin"
expect 2 "short.bin" "$forge" "$deck" --set "data.files=[$work/short.bin]"
expect 2 "vocabulary" "$forge" "$deck" --set model.vocabulary=50

# model files
cp -r verify/llama/model "$work/model"
head -c 5000 verify/llama/model/model.safetensors > "$work/model/model.safetensors"
expect 2 "model.safetensors" "$forge" gradients verify/llama/input.yaml --set "model.hf=$work/model" --output "$work/g.st"
[ ! -e "$work/g.st" ] || fail "a failed job left $work/g.st"
expect 2 "config.json" "$forge" show verify/llama/input.yaml --set "model.hf=$work"
# Tensors for multi-token prediction are read when the deck asks, and only then.
expect 0 "written" "$forge" gradients verify/mtp/input.yaml --set model.mtp_depth=0 --set model.mtp_loss_factor=0.1 --output "$work/g.st"
expect 2 "eh_proj.weight" "$forge" gradients verify/qwen3_moe/input.yaml --set model.mtp_depth=1 --output "$work/g.st"

# worlds: one message from all ranks, which all end
expect 2 "the world is 2 ranks; start 4 ranks with mpirun -n 4, srun --ntasks=4" mpirun -n 2 "$forge" "$deck" --set mesh.dp_shard=4
expect 2 "the world is 1 rank; start 4 ranks with mpirun -n 4" "$forge" "$deck" --set mesh.dp_shard=4
expect 2 "train.global_batch_sequences" mpirun -n 3 "$forge" "$deck"
[ "$(grep -c 'forge: error' "$work/output")" -eq 1 ] || fail "three ranks don't give one message: $(cat "$work/output")"
expect 2 "the deck has 5 errors" "$forge" show --all --deck "$deck" --ranks 6 --set mesh.tp=3 --set mesh.cp=2 --set train.sequence_tokens=18 \
  --set model.kv_heads=2 --set schedule.split=Et --set train.gather=step
for part in "mesh.tp = 3 does not divide model.heads = 2" "mesh.tp = 3 neither divides model.kv_heads = 2" \
  "2 x mesh.cp = 2" "train.gather = step" "schedule.split"; do
  grep -qF "$part" "$work/output" || fail "no '$part' in the report: $(cat "$work/output")"
done

# ranks as threads
expect 2 "a launcher started 2 processes" mpirun -n 2 "$forge" "$deck" --ranks 2
expect 2 "--ranks 0" "$forge" "$deck" --ranks 0
expect 2 "--ranks two" "$forge" evaluate "$deck" --ranks two
expect 2 "belong to --prompts FILE" "$forge" generate "$deck" --prompt a --ranks 2
if has_thread_ranks; then
  expect 2 "world is 2 ranks" "$forge" gradients "$deck" --ranks 2 --set mesh.dp_shard=4 --output "$work/g.st"
  expect 2 "the deck has 2 errors" "$forge" "$deck" --ranks 4 --set mesh.tp=4 --set train.gather=step
  expect 2 "none.bin" "$forge" "$deck" --ranks 2 --set "data.files=[$work/none.bin]"
  [ "$(grep -c 'forge: error' "$work/output")" -eq 1 ] || fail "two threads don't give one message: $(cat "$work/output")"
else
  expect 2 "the CUDA build has one process per GPU; start them with mpirun -n 2" "$forge" "$deck" --ranks 2
fi
[ ! -e "$work/run" ] || fail "a refused job made its run directory"

# show: the summary first, the resolved deck last, which is a deck with the same summary
expect 0 "" "$forge" show --all --deck "$deck"
cp "$work/output" "$work/shown"
{
  echo "$deck"
  printf '  %-10s%s\n' model "10.42 k parameters; L 1, C 16, H 2, K 2, D 8, F 24, V 256" \
    layout "1 rank = pp 1 x dp_replicate 1 x dp_shard 1 x cp 1 x tp 1" \
    batch "2 sequences of 16 tokens a step = 1 rank x 2 microbatches x 1" \
    training "3 steps, 96 tokens; fp32, zero_stage 0, recompute none, schedule 1f1b"
} > "$work/summary"
head -n 5 "$work/shown" | cmp -s - "$work/summary" || fail "show begins with: $(head -n 5 "$work/shown")"
peak=$(awk '$1 == "peak" && $3 == "B" { print $4, $5 }' "$work/shown")
for part in "  memory    $peak a rank: parameters " "  in all    $peak on all ranks together" \
  "  fits on   GPUs of 24 GB or more, one a rank: $peak planned and 256.00 MiB for libraries, of 21.99 GiB"; do
  head -n 9 "$work/shown" | grep -qF -- "$part" || fail "show's summary has no '$part': $(head -n 9 "$work/shown")"
done
sed '1,/^resolved deck$/d' "$work/shown" > "$work/resolved.yaml"
expect 0 "fits on" "$forge" show --all --deck "$work/resolved.yaml"
sed 1d "$work/output" | cmp -s - <(sed 1d "$work/shown") || fail "the resolved deck that show prints is another one"
large=(--set model.layers=8 --set model.width=16384 --set model.heads=128 --set model.ffn=65536)
expect 0 "fits on   no GPU of up to 180 GB: " "$forge" show --all --deck "$deck" "${large[@]}"
expect 0 "fits on   GPUs of 141 GB or more" "$forge" show --all --deck "$deck" "${large[@]}" --set model.layers=2
# show --gpu: what libraries take is on it; a change that is named makes it fit
for gpu in h100-80 h200-141 a100-80 b200-180; do
  expect 0 "fits on $gpu: $peak planned and 256.00 MiB for libraries are " "$forge" show --all --deck "$deck" --gpu $gpu
done
expect 2 "--gpu h100x: legal are h100-80, h200-141, a100-80, b200-180, a size such as 40GiB, or a machine: no machine" "$forge" show --all --deck "$deck" --gpu h100x
expect 0 "doesn't fit on b200-180" "$forge" show --all --deck "$deck" "${large[@]}" --gpu b200-180
grep -qF "legal: more ranks" "$work/output" || fail "no word of what to do: $(cat "$work/output")"
long=(--set model.layers=4 --set model.width=4096 --set model.heads=32 --set model.ffn=16384 --set train.sequence_tokens=65536)
expect 0 "fits on h200-141" "$forge" show --all --deck "$deck" "${long[@]}" --gpu h200-141
expect 0 "doesn't fit on h100-80" "$forge" show --all --deck "$deck" "${long[@]}" --gpu h100-80
read -r -a change <<< "$(sed -n 's/^nearest change that fits: \(.*\) (.*/\1/p' "$work/output")"
[ ${#change[@]} -gt 0 ] || fail "show --gpu names no change: $(cat "$work/output")"
expect 0 "fits on h100-80" "$forge" show --all --deck "$deck" "${long[@]}" --gpu h100-80 "${change[@]/#/--set=}"
expect 0 "NCCL gradient_shards               288.00 MiB  24 connections of 12.00 MiB" "$forge" show --all --deck "$deck" --set mesh.dp_shard=2 \
  --set train.zero_stage=2 --set train.microbatch_sequences=1
expect 0 "; the largest: pp rank 0" "$forge" show --all --deck "$deck" --set model.layers=5 --set mesh.pp=2

# show: no launcher; --ranks or what the mesh asks for
layout=(--set mesh.pp=2 --set mesh.dp_shard=2 --set model.layers=3 --set train.global_batch_sequences=8)
expect 0 "mesh of 4 ranks" "$forge" show --all --deck "$deck" "${layout[@]}"
expect 0 "embedding, layers 0 to 1" "$forge" show --all --deck "$deck" "${layout[@]}"
expect 0 "mesh of 6 ranks" "$forge" show --all --deck "$deck" --set mesh.dp_shard=-1 --ranks 6 --set train.global_batch_sequences=6
expect 2 "the world is 6 ranks" "$forge" show --all --deck "$deck" "${layout[@]}" --ranks 6
# Experts on two ranks: 16 rows of 16 numbers, two choices each, a half of which go to the other rank.
experts=(--set model.layers=4 --set model.experts=4 --set model.experts_per_token=2 --set model.moe_every=2 --set mesh.ep=2
  --set mesh.dp_shard=2)
expect 0 "view             pp 1 x edp 1 x ep 2 x etp 1, strides 2 2 1 1" "$forge" show --all --deck "$deck" "${experts[@]}"
for part in "layers           2 of 4: 1, 3" "a rank has       2 of 4, whole" "a token uses     2 experts of 24 columns" \
  "a round takes    48 rows, 3.00 KiB at most; 32 where the router balances: 16 rows x 2" \
  "and sends        1.00 KiB over ep, 0 B over etp, each way, where the router balances" \
  "… the same for experts 1 to 3" "… the same for layer 3" "ep                 2       1  0 1"; do
  grep -qF "$part" "$work/output" || fail "show of experts has no '$part': $(cat "$work/output")"
done
expect 0 "and sends        320 B over ep, 0 B over etp there as codes; 512 B over ep, 0 B over etp back" "$forge" show --all --deck "$deck" \
  "${experts[@]}" --set train.precision=fp8 --set train.fp8_experts=true --set train.fp8_dispatch=true
# GPipe on two ranks: 3 units each way, M of M + 1 times busy
expect 0 "bubble 20.0 %" "$forge" show --all --deck "$deck" "${layout[@]}" --set schedule.name=gpipe --schedule text
expect 0 "rank 1 |   F0 F1" "$forge" show --all --deck "$deck" "${layout[@]}" --set schedule.name=gpipe --schedule text
expect 0 "written: $work/s.svg" "$forge" show --all --deck "$deck" "${layout[@]}" --schedule "svg:$work/s.svg"
grep -q '</svg>' "$work/s.svg" || fail "$work/s.svg is no SVG"
expect 2 "--schedule png" "$forge" show --all --deck "$deck" --schedule png
expect 5 "/proc/none.svg" "$forge" show --all --deck "$deck" --schedule svg:/proc/none.svg
# A step of the rank with layers 0 and 1: batch, layers, their output to the next stage; then back, and the update.
expect 0 "rank 0 in a step" "$forge" show --all --deck "$deck" "${layout[@]}" --tasks 0
grep -oE '^ .*(load_batch|forward +(embedding|block 0)|transfer|backward_(input|weight) +block 0|update)' "$work/output" |
  awk '{ print ($NF == "0" ? $(NF - 2) " " $(NF - 1) : $NF == "embedding" ? $(NF - 1) " " $NF : $NF) }' | uniq > "$work/order"
[ "$(head -4 "$work/order" | paste -sd,)" = "load_batch,forward embedding,forward block,transfer" ] ||
  fail "--tasks has another order: $(cat "$work/order")"
[ "$(tail -1 "$work/order")" = update ] || fail "--tasks doesn't end with the update: $(cat "$work/order")"
# Streams, and FLOP of what has products: of 16 rows 2 · 16 · (16 · 48 + 16 · 16 + 48 · 16 + 24 · 16) = 69632, and forward's attention
# 2 heads · 136 pairs · 2 · (8 + 8) = 8704.
for part in 'post_send_forward .* transfer +transfers' 'wait_send_forward .* transfer +compute' 'forward +block 0 +compute +78.34 k ' \
  'backward_weight +block [01] +compute +69.63 k ' 'load_batch +compute +>' ' close$'; do
  grep -qE "$part" "$work/output" || fail "--tasks has no '$part': $(cat "$work/output")"
done
expect 2 "the ranks are 0 to 3" "$forge" show --all --deck "$deck" "${layout[@]}" --tasks 4
expect 2 "--tasks must be a rank" "$forge" show --all --deck "$deck" --tasks -1

# a schedule from a file
{
  echo "schedule,own,2,1,2,compute"
  for stage in 0 1; do
    echo "stage,$stage,$stage,0"
    for op in forward backward; do for m in 0 1; do echo "action,$stage,$op,0,$m"; done; done
  done
} > "$work/own.csv"
expect 0 "schedule own: pp 2" "$forge" show --all --deck "$deck" --set mesh.pp=2 --set "schedule.file=$work/own.csv"
expect 2 "made for 2 microbatches" "$forge" show --all --deck "$deck" --set mesh.pp=2 --set "schedule.file=$work/own.csv" \
  --set train.global_batch_sequences=3
sed -i '/action,1,backward,0,1/d' "$work/own.csv"
expect 2 "own.csv: schedule own" "$forge" show --all --deck "$deck" --set mesh.pp=2 --set "schedule.file=$work/own.csv"

# NaN stops with code 4
expect 4 "NaN or Inf" "$forge" "$deck" --set optimizer.learning_rate=1e38 --set optimizer.clip_norm=0 \
  --set train.steps=50 --set optimizer.schedule=constant
grep -q '"updated": false' "$work/run/metrics.jsonl" || fail "metrics.jsonl doesn't tell of the step that failed"

# output
expect 5 "output.directory" "$forge" "$deck" --set output.directory=/proc/forge
if has_thread_ranks; then
  expect 5 "output.directory" "$forge" "$deck" --set output.directory=/proc/forge --ranks 2
  [ "$(grep -c 'forge: error' "$work/output")" -eq 1 ] || fail "one rank's failure gives several messages: $(cat "$work/output")"
fi
expect 0 "3/3" mpirun -n 2 "$forge" "$deck"
[ "$(wc -l < "$work/run/metrics.jsonl")" -eq 3 ] || fail "metrics.jsonl has not one line per step"
[ -e "$work/run/metrics.1.jsonl" ] || fail "the metrics of the run before were not moved aside"
cp "$work/run/metrics.jsonl" "$work/two.jsonl"
if has_thread_ranks; then
  expect 0 "2 ranks on 1 node," "$forge" "$deck" --ranks 2
  expect 0 "loss" "$forge" evaluate "$deck" --initial --ranks 2 --set train.validation_sequences=4
fi
expect 0 "3/3" "$forge" "$work/run/deck.yaml" --set "output.directory=$work/again" --set mesh.dp_shard=1
finish
