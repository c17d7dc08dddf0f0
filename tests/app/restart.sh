#!/usr/bin/env bash
# restart.sh FORGE: runs that end and go on, as a person does it.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

head -q -c 600 docs/*.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cp "$work/tokens.bin" "$work/moved.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 3, width: 16, heads: 2, ffn: 24, vocabulary: 256, dropout: 0.1}
train: {steps: 8, global_batch_sequences: 4, sequence_tokens: 16, precision: fp32, seed: 5}
optimizer: {learning_rate: 1e-2, warmup_steps: 2}
data: {files: [$work/tokens.bin], dtype: uint16, order: shuffled}
checkpoint: {directory: $work/saved, every_steps: 2}
output: {directory: $work/run, every_steps: 1}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
deck=$work/deck.yaml

# What a restart must not change of metrics.jsonl: all but the times.
numbers() { sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$1"; }
# The last checkpoint's tensors, to the last bit: equal state gives equal shards.
same_state() { cmp -s "$1/step_00000008/shard_00000.h5" "$2/step_00000008/shard_00000.h5"; }

# steps 1 to 8 in one go
expect 0 "saved step_00000008" "$forge" "$deck" --set output.save_hf=true
# the parts of the start, for people and for programs
grep -q '^  start  ' "$work/output" || fail "the table of times has no start: $(cat "$work/output")"
grep -q '"start_seconds": {.*"parameters": ' "$work/run/job_info.json" || fail "job_info.json has no parts of the start"
[ "$(grep -c '"start_seconds": {.*"first batch": ' "$work/run/metrics.jsonl")" -eq 1 ] || fail "metrics.jsonl has the parts of the start not once"
[ "$(ls "$work/saved" | tr '\n' ' ')" = "latest step_00000002 step_00000004 step_00000006 step_00000008 " ] ||
  fail "other checkpoints than expected: $(ls "$work/saved")"
expect 0 "step_00000008: whole" "$forge" verify-checkpoint "$work/saved"
cp -r "$work/saved" "$work/kept"
numbers "$work/run/metrics.jsonl" > "$work/whole"
[ "$(wc -l < "$work/whole")" -eq 8 ] || fail "metrics.jsonl has not one line per step"

# its model as a Hugging Face directory is the one that the run itself writes
expect 0 "step_00000008 written to $work/hf" "$forge" export "$work/saved" --output "$work/hf"
cmp -s "$work/hf/model.safetensors" "$work/run/hf/model.safetensors" || fail "export writes another model.safetensors"
cmp -s "$work/hf/config.json" "$work/run/hf/config.json" || fail "export writes another config.json"
expect 3 "neither a checkpoint" "$forge" export "$work/run" --output "$work/hf"
expect 2 "--type fp16" "$forge" export "$work/saved" --output "$work/hf" --type fp16

# another run starts with its model: step 1, other data, no moments; the same loss as what was exported has
tuned=(--set checkpoint.every_steps=0 --set "checkpoint.model_from=$work/kept" --set "output.directory=$work/tuned_run")
expect 0 "parameters  $work/kept/step_00000008, step 8" "$forge" "$deck" "${tuned[@]}" --set "checkpoint.directory=$work/tuned" \
  --set train.seed=9 --set train.global_batch_sequences=2
head -n 1 "$work/tuned_run/metrics.jsonl" | grep -q '"step": 1,' || fail "doesn't begin with step 1"
expect 0 "step_00000008, step 8, written by 1 rank" "$forge" "$deck" --restart "$work/tuned" "${tuned[@]}" \
  --set "checkpoint.directory=$work/tuned" --set train.seed=9 --set train.global_batch_sequences=2
grep -q "parameters  $work/kept" "$work/output" && fail "a restart loads model_from's parameters"
tuned+=(--set checkpoint.directory=null)
expect 0 "loss" "$forge" evaluate "$deck" "${tuned[@]}"
grep "^loss" "$work/output" > "$work/loaded"
printf 'model: {hf: %s, load_weights: true}\n' "$work/hf" > "$work/from_hf.yaml"
sed '1d; /^checkpoint/d' "$deck" >> "$work/from_hf.yaml"
expect 0 "loss" "$forge" evaluate "$work/from_hf.yaml"
grep "^loss" "$work/output" | cmp -s - "$work/loaded" || fail "model_from has another loss than the export"
expect 2 "model.vocabulary = 257, the checkpoint has 256" "$forge" "$deck" "${tuned[@]}" --set model.vocabulary=257
expect 2 "come from one of them" "$forge" "$work/from_hf.yaml" --set "checkpoint.model_from=$work/kept"
expect 0 "parameters  $work/kept/step_00000008" "$forge" generate "$deck" "${tuned[@]}" --prompt 1

# so does one with what its optimizer had kept, under PyTorch's names
expect 0 "written" "$forge" export "$work/kept" --output "$work/torch" --optimizer
expect 0 "optimizer's state of $work/torch, behind 8 updates" "$forge" "$work/from_hf.yaml" --set "model.hf=$work/torch" \
  --set "checkpoint.optimizer_from=$work/torch" --set "output.directory=$work/torch_run"
# a later export without it leaves none that would be taken for its own
expect 0 "written" "$forge" export "$work/kept" --output "$work/torch"
expect 2 "has neither optimizer.safetensors nor" "$forge" "$work/from_hf.yaml" --set "model.hf=$work/torch" \
  --set "checkpoint.optimizer_from=$work/torch" --set "output.directory=$work/torch_run3"
expect 0 "written" "$forge" export "$work/kept" --output "$work/torch" --optimizer
expect 2 "without the parameters that it belongs to" "$forge" "$deck" --set "checkpoint.optimizer_from=$work/torch" --fresh
expect 2 "state.model.norm.weight.momentum_buffer [16] is missing" "$forge" "$work/from_hf.yaml" --set optimizer.name=sgd \
  --set "checkpoint.optimizer_from=$work/torch" --set "output.directory=$work/torch_run2"

# a start where checkpoints stand says what it wants, and touches nothing
expect 2 "say --restart latest to go on from there, or --fresh" "$forge" "$deck"
expect 2 "exclude each other" "$forge" "$deck" --fresh --restart latest
none=(--set checkpoint.directory=null --set checkpoint.every_steps=0)
expect 2 "no checkpoint.directory" "$forge" "$deck" --restart latest "${none[@]}"
expect 2 "no checkpoint.directory" "$forge" "$deck" --fresh "${none[@]}"
elsewhere=(--set "output.directory=$work/elsewhere")
expect 3 "holds no checkpoint" "$forge" "$deck" --restart latest --set "checkpoint.directory=$work/none" "${elsewhere[@]}"
expect 3 "neither a checkpoint" "$forge" "$deck" --restart "$work/none" "${elsewhere[@]}"
numbers "$work/run/metrics.jsonl" | cmp -s - "$work/whole" || fail "a refused start changed metrics.jsonl"

# from every checkpoint, moved, with the data moved: the same run, bit for bit
for k in 6 4 2; do
  expect 0 "restarted from $work/kept/step_0000000$k, step $k" "$forge" "$deck" --restart "$work/kept/step_0000000$k" \
    --set "data.files=[$work/moved.bin]"
  grep -q "data.files = .*moved.bin.*, the checkpoint has" "$work/output" || fail "the log doesn't tell of the data that moved"
  numbers "$work/run/metrics.jsonl" > "$work/parts"
  cmp -s "$work/whole" "$work/parts" || fail "a restart at $k gives other metrics: $(diff "$work/whole" "$work/parts")"
  same_state "$work/kept" "$work/saved" || fail "a restart at $k ends with another state"
done
ls -d "$work"/saved/old.* > /dev/null 2>&1 || fail "later checkpoints were not moved aside"

# latest, with more steps; then there is nothing left to do
expect 0 "restarted from $work/saved/step_00000008" "$forge" "$deck" --restart latest --set train.steps=10
expect 0 "nothing to train" "$forge" "$deck" --restart latest --set train.steps=10
[ "$(wc -l < "$work/run/metrics.jsonl")" -eq 10 ] || fail "metrics.jsonl has not ten lines"
# by itself, and into another run directory
expect 0 "nothing to train" "$forge" "$deck" --set checkpoint.resume=auto --set train.steps=10 "${elsewhere[@]}"

# what may not change is refused with both values
expect 2 "model.vocabulary = 257, the checkpoint has 256" "$forge" "$deck" --restart latest --set model.vocabulary=257
expect 2 "train.seed = 6, the checkpoint has 5" "$forge" "$deck" --restart latest --set train.seed=6
expect 2 "train.precision = fp64, the checkpoint has fp32" "$forge" "$deck" --restart latest --set train.precision=fp64
head -c 4000 "$work/tokens.bin" > "$work/short.bin"
expect 2 "the checkpoint $work/saved/step_00000010 was trained on" "$forge" "$deck" --restart latest \
  --set "data.files=[$work/short.bin]"

# a damaged newest one: named, left out; then nothing is left
damaged=$work/saved/step_00000010
printf 'x' | dd of="$damaged/shard_00000.h5" bs=1 seek=4000 conv=notrunc status=none
expect 3 "1 of " "$forge" verify-checkpoint "$work/saved"
printf 'x' | dd of="$damaged/manifest.h5" bs=1 seek=1000 conv=notrunc status=none
expect 0 "$damaged is not usable" "$forge" "$deck" --restart latest --set train.steps=9
grep -q "restarted from $work/saved/step_00000008, step 8" "$work/output" || fail "the newest good one was not taken"
expect 3 "no usable checkpoint" "$forge" "$deck" --restart "$work/saved/old.4/step_00000010" --set train.steps=12

# --fresh moves checkpoints aside when nothing can be wrong any more; the new run may start with their model
before=$(ls "$work/saved")
expect 3 "neither a checkpoint" "$forge" "$deck" --fresh --set "checkpoint.model_from=$work/nowhere"
[ "$before" = "$(ls "$work/saved")" ] || fail "a start that is refused moves checkpoints: $(ls "$work/saved")"
expect 0 "parameters  $work/saved/step_00000009" "$forge" "$deck" --fresh --set "checkpoint.model_from=$work/saved"
grep -q "earlier checkpoints moved to" "$work/output" || fail "--fresh with model_from moves nothing"
rm -rf "$work"/saved/old.*

# --fresh and keep_last
expect 0 "earlier checkpoints moved to" "$forge" "$deck" --fresh --set checkpoint.keep_last=1 --set checkpoint.asynchronous=true
[ "$(ls -d "$work"/saved/step_*)" = "$work/saved/step_00000008" ] || fail "keep_last 1 keeps $(ls "$work/saved")"
same_state "$work/kept" "$work/saved" || fail "a run that saves behind its steps ends with another state"
numbers "$work/run/metrics.jsonl" | cmp -s - "$work/whole" || fail "--fresh is not the same run"

# a signal: saved, left with 75, goes on to the same end
"$forge" "$deck" --fresh --set checkpoint.every_steps=0 --set train.steps=2000 --set optimizer.schedule=constant > "$work/output" 2>&1 &
job=$!
for _ in $(seq 300); do grep -q "^ *5/2000" "$work/output" && break; sleep 0.1; done
kill -USR1 $job
code=0
wait $job || code=$?
[ $code -eq 75 ] || fail "exit code $code, not 75, after SIGUSR1: $(cat "$work/output")"
grep -q "forge: stopped: saved step_.* and left: SIGUSR1" "$work/output" || fail "no word of the signal: $(cat "$work/output")"
expect 75 "the job's time limit is near" env SLURM_JOB_END_TIME=$(($(date +%s) + 30)) "$forge" "$deck" --restart latest \
  --set train.steps=2000 --set optimizer.schedule=constant

# export in several files, and in bf16
large=(--set model.width=128 --set model.ffn=512 --set train.steps=1 --set optimizer.warmup_steps=1 \
  --set "checkpoint.directory=$work/large" --set "output.directory=$work/large_run")
expect 0 "saved step_00000001" "$forge" "$deck" "${large[@]}"
expect 0 "written" "$forge" export "$work/large" --output "$work/one"
expect 0 "written" "$forge" export "$work/large" --output "$work/many" --file-mib 1
expect 0 "written" "$forge" export "$work/large" --output "$work/half" --type bf16
[ -e "$work/many/model-00004-of-00004.safetensors" ] || fail "not four files: $(ls "$work/many")"
from() { printf 'model: {hf: %s, load_weights: true}\n' "$1"; sed 1d "$deck"; }
for files in one many half; do
  from "$work/$files" > "$work/$files.yaml"
  expect 0 "" "$forge" gradients "$work/$files.yaml" --output "$work/$files.st"
done
cmp -s "$work/one.st" "$work/many.st" || fail "several files hold another model"
one=$(stat -c %s "$work/one/model.safetensors") half=$(stat -c %s "$work/half/model.safetensors")
[ $((half * 2)) -lt $((one + 20000)) ] || fail "bf16 takes $half bytes, fp32 $one"

# several ranks; full disks and the like
if has_thread_ranks; then
  expect 0 "written by 1 rank" "$forge" "$deck" --restart "$work/kept/step_00000004" --ranks 4 --set mesh.tp=2
  expect 0 "written by 4 ranks" "$forge" "$deck" --restart latest --set train.steps=9
fi
expect 0 "saved step_00000008" mpirun -n 2 "$forge" "$deck" --fresh
expect 0 "written by 2 ranks" mpirun -n 3 "$forge" "$deck" --restart "$work/saved/step_00000006" --set train.microbatch_sequences=2 --set mesh.pp=3
finish
