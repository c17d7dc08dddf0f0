#!/usr/bin/env bash
# quickstart.sh FORGE: the quickstart in short: a smaller model learns the text of docs/, writes a sample, is saved, loaded
# again and evaluated; the loss of the loaded model is that of the last validation.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

cat docs/*.md verify/README.md src/*/*.hpp > "$work/text"
"$forge" tokenize "$work/text" --output "$work/train.bin" > /dev/null
small=(--set "data.files=[$work/train.bin]" --set "data.validation_files=[$work/train.bin]" --set "output.directory=$work/run"
  --set "checkpoint.directory=$work/checkpoints" --set model.layers=2 --set model.width=64 --set model.ffn=128
  --set train.steps=60 --set train.global_batch_sequences=8 --set train.microbatch_sequences=8 --set train.validation_sequences=8
  --set train.validate_every_steps=60 --set optimizer.warmup_steps=5 --set optimizer.learning_rate=5e-3
  --set train.sequence_tokens=128 --set output.sample_tokens=60)
expect 0 "sample (temperature" "$forge" inputs/quickstart.yaml "${small[@]}"

loss_of() { sed -n "$1p" "$work/run/metrics.jsonl" | sed 's/.*"loss": \([0-9.]*\).*/\1/'; }
awk -v first="$(loss_of 1)" -v last="$(loss_of 60)" 'BEGIN { exit !(first > 5.3 && first < 6.5 && last < 3.6) }' ||
  fail "the loss went from $(loss_of 1) to $(loss_of 60)"

trained=$(sed -n 's/.*"validation_loss": \([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -n 1)
cat > "$work/saved.yaml" << YAML
model: {hf: $work/run/hf, load_weights: true}
train: {steps: 1, global_batch_sequences: 8, microbatch_sequences: 8, sequence_tokens: 128, precision: fp32, validation_sequences: 8}
optimizer: {learning_rate: 1e-3}
data: {files: [$work/train.bin], validation_files: [$work/train.bin], dtype: uint16}
output: {directory: $work/none}
YAML
expect 0 "bits per byte" "$forge" evaluate "$work/saved.yaml"
cp "$work/output" "$work/evaluated"
expect 0 "the" "$forge" generate "$work/saved.yaml" --prompt "the" --length 5
loaded=$(sed -n 's/^loss \([0-9.]*\).*/\1/p' "$work/evaluated")
awk -v a="$trained" -v b="$loaded" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-10 * a * a) }' ||
  fail "validation said $trained, evaluate of the saved model $loaded"

# What the process takes on the host, less what it took at the start, is the arena's mark within 5 %.
cat > "$work/large.yaml" << YAML
model: {layers: 6, width: 768, heads: 8, ffn: 3072, vocabulary: 8192}
train: {steps: 2, global_batch_sequences: 2, microbatch_sequences: 2, sequence_tokens: 128, precision: fp32}
optimizer: {learning_rate: 1e-4}
data: {files: [$work/train.bin], dtype: uint16}
output: {directory: $work/large}
machine: {workspace_mib: 1, peak_tflops: 1}
YAML
expect 0 "high-water mark" "$forge" "$work/large.yaml"
number='\([0-9.]*\) \([KMG]\)iB'
sed -n "s/.*planned $number, high-water mark $number; .* host $number, of which $number.*/\1\2 \3\4 \5\6 \7\8/p" "$work/output" |
  numfmt --from=iec --field=1-4 > "$work/memory"
awk '{ d = ($3 - $4) / $2 - 1; ok = $1 == $2 && d * d < 0.05 * 0.05; print "memory:", $0, "deviation", d } END { exit !ok }' \
  "$work/memory" || fail "resident memory and the arena's mark differ: $(cat "$work/memory")"
finish
