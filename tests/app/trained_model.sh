#!/usr/bin/env bash
# trained_model.sh FORGE: evaluate and generate take the parameters that were trained, from a checkpoint on any layout or from
# model.hf, and initial values only when they are asked for.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

# Experts with biases that move far, multi-head latent attention and 97 token ids, trained on four ranks.
deck=verify/deepseek_v3/input.yaml
common=(--set "output.directory=$work/run" --set "data.validation_files=[verify/deepseek_v3/tokens.bin]"
  --set train.validation_sequences=4 --set machine.workspace_mib=1 --set machine.peak_tflops=1 --set optimizer.clip_norm=1)
saved=("${common[@]}" --set "checkpoint.directory=$work/saved")
training=("${saved[@]}" --set model.router_bias_rate=0.3 --set train.validate_every_steps=10 --set output.save_hf=true
  --set checkpoint.every_steps=5 --set train.microbatch_sequences=1)
layout=(--set mesh.pp=2 --set mesh.dp_shard=1 --set mesh.tp=2 --set mesh.ep=2 --set mesh.etp=1)
if has_thread_ranks; then
  expect 0 "saved step_00000010" "$forge" "$deck" "${training[@]}" "${layout[@]}" --ranks 4
else
  expect 0 "saved step_00000010" mpirun -n 4 "$forge" "$deck" "${training[@]}" "${layout[@]}"
fi
trained=$(sed -n 's/.*"validation_loss": \([^,}]*\).*/\1/p' "$work/run/metrics.jsonl")
[ -n "$trained" ] || fail "no validation loss in metrics.jsonl"
loss() { sed -n 's/^loss \([^ ]*\) nats.*/\1/p' "$work/output"; }
same_loss() {
  awk -v a="$trained" -v b="$(loss)" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d * d <= 1e-24 * a * a) }' ||
    fail "$1: loss $(loss), the run's last validation $trained"
}

# evaluate: the loss of the run's last validation, on any layout
from="parameters  $work/saved/step_00000010, step 10, written by 4 ranks"
expect 0 "$from" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest
same_loss "one rank"
expect 0 "$from" "$forge" evaluate "$deck" "${common[@]}" --checkpoint "$work/saved/step_00000010"
same_loss "by its directory"
expect 0 "$from" mpirun -n 2 "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest --set train.microbatch_sequences=1 \
  --set train.zero_stage=3
same_loss "two processes"
if has_thread_ranks; then
  expect 0 "$from" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest --ranks 8 --set mesh.pp=2 --set mesh.cp=2 \
    --set mesh.tp=2 --set mesh.ep=4 --set mesh.etp=1
  same_loss "eight threads"
fi
expect 0 "parameters  model.hf $work/run/hf" "$forge" evaluate "$deck" "${common[@]}" --set "model.hf=$work/run/hf" \
  --set model.load_weights=false
same_loss "the model that the run wrote"
expect 0 "bits per token" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint "$work/saved/step_00000005"
[ "$(loss)" != "$trained" ] || fail "step 5 has the loss of step 10"
expect 0 "bits per byte" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest --bytes 400

# generate: on one rank, whatever the mesh; the tokens of the model that the run wrote
tokens=(--tokens 3,1,4,1,5 --temperature 0 --length 40)
continued() { grep -v "^forge: " "$work/output" | tail -n 1; }
expect 0 "parameters  model.hf" "$forge" generate "$deck" "${common[@]}" "${tokens[@]}" --set "model.hf=$work/run/hf"
written=$(continued)
[ "$(tr -cd , <<< "$written" | wc -c)" -eq 39 ] || fail "not 40 tokens: $written"
grep -qE '^forge: prompt [0-9.]+ tokens/s, text [0-9.]+ tokens/s$' "$work/output" || fail "no rates: $(cat "$work/output")"
expect 0 "$from" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" --checkpoint latest "${layout[@]}"
[ "$(continued)" = "$written" ] || fail "generate of the checkpoint writes $(continued), of the model $written"
# in bf16, which rounds them: as the model that the run wrote, rounded
bf16=(--set train.precision=bf16)
expect 0 "parameters  model.hf" "$forge" generate "$deck" "${common[@]}" "${tokens[@]}" --set "model.hf=$work/run/hf" "${bf16[@]}"
rounded=$(continued)
expect 0 "$from" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" --checkpoint latest "${bf16[@]}"
[ "$(continued)" = "$rounded" ] || fail "generate of the checkpoint in bf16 writes $(continued), of the model $rounded"
expect 0 "parameters  model.hf" "$forge" evaluate "$deck" "${common[@]}" --set "model.hf=$work/run/hf" "${bf16[@]}"
rounded=$(loss)
expect 0 "$from" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest "${bf16[@]}"
[ "$(loss)" = "$rounded" ] || fail "evaluate of the checkpoint in bf16 says $(loss), of the model $rounded"
# --precision stands for train.precision, whatever the deck says of fp8; fp8's loss is its own, and the same on two ranks
sed 's/precision: fp64/precision: fp8\n  fp8_recipe: row/' "$deck" > "$work/fp8.yaml"
for other in "$deck" "$work/fp8.yaml"; do
  expect 0 "$from" "$forge" evaluate "$other" "${saved[@]}" --checkpoint latest --precision bf16
  [ "$(loss)" = "$rounded" ] || fail "evaluate --precision bf16 of $other says $(loss), train.precision $rounded"
done
export FORGE_FP8_CARRIER=fp64
fp8=(--precision fp8 --set train.fp8_recipe=row)
expect 0 "$from" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest "${fp8[@]}"
plain=$trained trained=$(loss)
[ "$trained" != "$plain" ] || fail "fp8 has the loss of fp64"
if has_thread_ranks; then
  expect 0 "$from" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest "${fp8[@]}" --ranks 2 --set mesh.tp=2
  same_loss "fp8 on two ranks"
fi
trained=$plain
expect 0 "$from" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" --checkpoint latest "${fp8[@]}"
[ "$(continued | tr -cd , | wc -c)" -eq 39 ] || fail "not 40 tokens in fp8: $(continued)"
expect 2 "train.fp8_recipe = current has scales of whole sequences" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" \
  --checkpoint latest --precision fp8
# Delayed scales are those of the checkpoint's steps, on any layout.
delayed=(--precision fp8 --set train.fp8_recipe=delayed)
expect 2 "has no tensor of this name; legal: another train.fp8_recipe than delayed" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest "${delayed[@]}"
expect 2 "has scales of a training's steps, which are not read here" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" \
  --checkpoint latest "${delayed[@]}"
expect 2 "train.fp8_recipe = delayed has its scales from the steps of a training" "$forge" evaluate verify/fp8_delayed/input.yaml "${common[@]}"
delayed=(verify/fp8_delayed/input.yaml "${common[@]}" --set "checkpoint.directory=$work/delayed")
expect 0 "saved step_00000010" "$forge" "${delayed[@]}" --set train.validate_every_steps=10 --set "output.directory=$work/delayed_run"
trained=$(sed -n 's/.*"validation_loss": \([^,}]*\).*/\1/p' "$work/delayed_run/metrics.jsonl")
expect 0 "parameters  $work/delayed/step_00000010" "$forge" evaluate "${delayed[@]}" --checkpoint latest
same_loss "delayed scales"
expect 2 "; legal: train.fp8_history = 3" "$forge" evaluate "${delayed[@]}" --checkpoint latest --set train.fp8_history=4
if has_thread_ranks; then
  expect 0 "parameters  $work/delayed/step_00000010" "$forge" evaluate "${delayed[@]}" --checkpoint latest --ranks 2 --set mesh.tp=2
  same_loss "delayed scales on two ranks"
fi
trained=$plain
expect 2 "--precision fp16: legal: fp64 | fp32 | bf16 | fp8" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest --precision fp16
expect 2 "exclude each other" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest --precision fp8 "${bf16[@]}"
expect 2 "train.fp8_recipe = row without train.precision = fp8" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest \
  --precision fp32 --set train.fp8_recipe=row
expect 0 "parameters  initial values, seed 0" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" --initial \
  --set model.load_weights=false
[ "$(continued)" != "$written" ] || fail "initial values write what the trained model does"
expect 0 "parameters  model.hf verify/deepseek_v3/model" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}" --initial

# without an option the newest checkpoint counts, whatever the deck names besides, and is said to be it
newest="$from; the newest checkpoint, of which --checkpoint DIR and --initial are the alternatives"
expect 0 "$newest" "$forge" evaluate "$deck" "${saved[@]}"
same_loss "the newest by default"
expect 0 "$newest" "$forge" generate "$deck" "${saved[@]}" "${tokens[@]}"
[ "$(continued)" = "$written" ] || fail "generate of the newest checkpoint writes $(continued), of the model $written"
expect 0 "$newest" mpirun -n 2 "$forge" evaluate "$deck" "${saved[@]}" --set train.microbatch_sequences=1
[ "$(grep -c parameters "$work/output")" -eq 1 ] || fail "two ranks don't give one line: $(cat "$work/output")"
# the directory in the deck's place: the same loss on one rank, on two, and of a step
data=(--set "data.validation_files=[verify/deepseek_v3/tokens.bin]")
for directory in "$work/saved" "$work/saved/step_00000010" "$work/saved/latest"; do
  expect 0 "$from" "$forge" evaluate "$directory"
  same_loss "evaluate $directory"
done
expect 0 "$from" mpirun -n 2 "$forge" evaluate "$work/saved"
same_loss "a directory on two ranks"
expect 0 "$from" "$forge" generate "$work/saved" "${tokens[@]}"
[ "$(continued)" = "$written" ] || fail "generate of the directory writes $(continued), of the model $written"
expect 2 "forge evaluate $work/run/hf: a model doesn't say which text it is evaluated on; legal: --set 'data.validation_files=[FILE]'" \
  "$forge" evaluate "$work/run/hf"
expect 0 "parameters  model.hf $work/run/hf" "$forge" evaluate "$work/run/hf" "${data[@]}" --set data.dtype=uint16 --precision fp64 \
  --set train.sequence_tokens=24 --set train.validation_sequences=4
cat > "$work/plain.yaml" << YAML
model: {layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 97}
train: {steps: 1, global_batch_sequences: 2, sequence_tokens: 16, precision: fp32}
optimizer: {learning_rate: 1e-3}
data: {files: [verify/deepseek_v3/tokens.bin], dtype: uint16}
output: {directory: $work/plain}
YAML
plain=$work/plain.yaml
expect 2 "the deck names no trained parameters; legal: --checkpoint DIR, model.hf" "$forge" generate "$plain" "${tokens[@]}"
expect 2 "the deck names no trained parameters" "$forge" evaluate "$plain"
expect 2 "holds no checkpoint; legal: --checkpoint DIR" "$forge" evaluate "$plain" --set "checkpoint.directory=$work/none"
expect 0 "parameters  initial values, seed 0" "$forge" evaluate "$plain" --initial
expect 2 "--checkpoint latest: the deck has no checkpoint.directory" "$forge" evaluate "$plain" --checkpoint latest
expect 2 "exclude each other" "$forge" generate "$plain" "${tokens[@]}" --initial --checkpoint latest
expect 2 "come from one of them" "$forge" generate "$deck" "${tokens[@]}" --set "checkpoint.model_from=$work/saved"
expect 2 "model.layers = 1, the checkpoint has 3" "$forge" generate "$plain" "${tokens[@]}" --checkpoint "$work/saved"

# what isn't there, or isn't whole: code 3; a damaged newest one is left out with a word
expect 3 "--checkpoint $work/none: neither a checkpoint" "$forge" generate "$plain" "${tokens[@]}" --checkpoint "$work/none"
expect 3 "--checkpoint latest: checkpoint.directory $work/none: neither" "$forge" evaluate "$plain" --checkpoint latest \
  --set "checkpoint.directory=$work/none"
printf 'x' | dd of="$work/saved/step_00000010/manifest.h5" bs=1 seek=1000 conv=notrunc status=none
for verb in evaluate "generate ${tokens[*]}"; do
  # shellcheck disable=SC2086
  expect 0 "step_00000010 is not usable" "$forge" $verb "$deck" "${saved[@]}" --checkpoint latest
  grep -qF "parameters  $work/saved/step_00000005, step 5" "$work/output" || fail "not the newest good one: $(cat "$work/output")"
  # shellcheck disable=SC2086
  expect 3 "no usable checkpoint" "$forge" $verb "$deck" "${saved[@]}" --checkpoint "$work/saved/step_00000010"
done

# text is for tokens that are bytes
expect 2 "--prompt: this model has model.vocabulary = 97, whose tokens are not bytes" "$forge" generate "$plain" --prompt a --initial
for vocabulary in 255 257 32000; do
  expect 2 "are not bytes" "$forge" generate "$plain" --prompt a --initial --set model.vocabulary=$vocabulary
  expect 2 "output.sample_tokens = 5 with model.vocabulary = $vocabulary: a sample is text" "$forge" "$plain" \
    --set output.sample_tokens=5 --set model.vocabulary=$vocabulary
done
expect 2 "output.sample_prompt with model.vocabulary = 97" "$forge" "$plain" --set output.sample_prompt=a
expect 0 "a" "$forge" generate "$plain" --prompt a --initial --set model.vocabulary=256
expect 0 "a" "$forge" generate "$plain" --prompt a --initial --set model.vocabulary=257 --set data.document_end_token=256
expect 0 "," "$forge" generate "$plain" "${tokens[@]}" --initial --set model.vocabulary=32000
finish
