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
expect 2 "takes one input deck" "$forge" show "$deck" "$deck"
expect 2 "checkpoints are not available" "$forge" "$deck" --restart latest
expect 2 "--output" "$forge" gradients "$deck"
expect 2 "--top-p" "$forge" generate "$deck" --prompt a --top-p 2
expect 2 "needs --prompt" "$forge" generate "$deck"
expect 2 "outside the vocabulary" "$forge" generate "$deck" --tokens 1,256
expect 0 "train.sequence_tokens" "$forge" help train
expect 2 "optimizer" "$forge" help optimiser
expect 0 "forge " "$forge" version

# the deck
expect 2 "model.layers" "$forge" "$deck" --set model.layrs=3
expect 2 "train.precision" "$forge" "$deck" --set train.precision=fp12
expect 2 "mesh.tp" "$forge" "$deck" --set mesh.tp=2
expect 2 "train.zero_stage" "$forge" "$deck" --set train.zero_stage=3
expect 2 "checkpoint" "$forge" "$deck" --set checkpoint.every_steps=10
expect 2 "schedule.name" "$forge" "$deck" --set schedule.name=zb_v
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

# worlds
expect 2 "world" mpirun -n 2 "$forge" "$deck" --set mesh.dp_shard=4
expect 2 "train.global_batch_sequences" mpirun -n 3 "$forge" "$deck"
[ ! -e "$work/run" ] || fail "a refused job made its run directory"

# NaN stops with code 4
expect 4 "NaN or Inf" "$forge" "$deck" --set optimizer.learning_rate=1e38 --set optimizer.clip_norm=0 \
  --set train.steps=50 --set optimizer.schedule=constant
grep -q '"updated": false' "$work/run/metrics.jsonl" || fail "metrics.jsonl doesn't tell of the step that failed"

# output
expect 5 "output.directory" "$forge" "$deck" --set output.directory=/proc/forge
expect 0 "3/3" mpirun -n 2 "$forge" "$deck"
[ "$(wc -l < "$work/run/metrics.jsonl")" -eq 3 ] || fail "metrics.jsonl has not one line per step"
[ -e "$work/run/metrics.1.jsonl" ] || fail "the metrics of the run before were not moved aside"
cp "$work/run/metrics.jsonl" "$work/two.jsonl"
expect 0 "3/3" "$forge" "$work/run/deck.yaml" --set "output.directory=$work/again" --set mesh.dp_shard=1
finish
