#!/usr/bin/env bash
# data.sh FORGE: token files of every format give one run; mixtures, packing and masks through the program, with restarts.
set -euo pipefail
forge=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"

cat docs/developer.md docs/parallelism.md docs/data.md > "$work/text"
python3 "$here/data_formats.py" "$work/text" "$work"
cat > "$work/deck.yaml" << YAML
model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 257}
train: {steps: 12, global_batch_sequences: 4, sequence_tokens: 32, precision: fp64, seed: 5}
optimizer: {learning_rate: 1e-2, warmup_steps: 2}
data: {files: [$work/raw.bin], dtype: uint16, order: shuffled, document_end_token: 256}
output: {directory: $work/run, every_steps: 1}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
deck=$work/deck.yaml
numbers() { sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu|peak_bytes)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$1"; }
# run NAME OPTIONS…: the run's numbers, in $work/NAME.
run() {
  local name=$1
  shift
  expect 0 "step" "$forge" "$deck" "$@"
  numbers "$work/run/metrics.jsonl" > "$work/$name"
}
same() { cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 have other numbers"; }

# ---- formats: the samples of the raw file
run raw
for file in megatron.bin megatron.idx llm_c.bin trove.ds; do
  run formatted --set "data.files=[$work/$file]" --set data.dtype=none
  same raw formatted
done
for file in megatron.bin trove.ds; do # documents of the index, in the place of the end token: the same ones
  run indexed --set "data.files=[$work/$file]" --set data.dtype=none --set data.document_end_token=-1 --set data.document_ends=index
  same raw indexed
done
expect 2 "without an index of documents" "$forge" "$deck" --set data.document_end_token=-1 --set data.document_ends=index
expect 2 "declared, never guessed" "$forge" "$deck" --set data.dtype=none
expect 2 "holds uint16, but data.dtype says uint32" "$forge" "$deck" --set "data.files=[$work/megatron.idx]" --set data.dtype=uint32

# ---- masks: fewer labels, another loss
run masked --set "data.mask_files=[$work/mask.npy]"
cmp -s "$work/raw" "$work/masked" && fail "a mask changes nothing"
expect 2 "data.mask_files has 2 paths; legal: 1" "$forge" "$deck" --set "data.mask_files=[$work/mask.npy, $work/mask.npy]"

# ---- mixtures
cat > "$work/sources" << YAML
[{name: plain, files: [$work/raw.bin], weight: 3}, {name: letters, files: [$work/megatron.bin], mask_files: [$work/mask.npy], weight: 1}]
YAML
mix=(--set data.files=[] --set "data.sources=$(cat "$work/sources")" --set "checkpoint.directory=$work/saved" --set checkpoint.every_steps=3
  --set "data.phases=[{from_step: 6, weights: {letters: 1}}]")
run mixed "${mix[@]}"
grep -q "plain: 15 of 48 samples" "$work/run/job_info" || fail "job_info doesn't say what the sources give"
tail -1 "$work/mixed" | grep -q '"sources": {"plain": {"loss": null, "labels": 0, "tokens": 480' || fail "no sources: $(tail -1 "$work/mixed")"
# on from steps 3 and 9, on two ranks; before and behind the phase's edge
for step in 3 9; do
  expect 0 "restarted from" mpirun --oversubscribe -n 2 "$forge" "$deck" "${mix[@]}" --restart "$work/saved/step_0000000$step" \
    --set "checkpoint.directory=$work/other" --set "output.directory=$work/other_run"
  python3 - "$work/mixed" "$work/other_run/metrics.jsonl" "$step" << 'PY' || fail "a restart at step $step reads other samples"
import json, sys
whole, part = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
part = [line for line in part if "loss" in line]
assert [line["step"] for line in part] == list(range(int(sys.argv[3]) + 1, 13))
for line in part:
    other = whole[line["step"] - 1]
    assert abs(line["loss"] - other["loss"]) < 1e-9 * line["loss"], (line, other)
    for name, source in line["sources"].items():
        mine = other["sources"][name]
        assert all(source[key] == mine[key] for key in ("labels", "tokens", "epochs")), (line, other)
        assert source["labels"] == 0 or abs(source["loss"] - mine["loss"]) < 1e-9 * mine["loss"]
PY
  rm -rf "$work/other" "$work/other_run"
done
# a phase that hasn't begun may change, one that has begun may not; neither may weights or contents
on=(--set "checkpoint.directory=$work/other" --set "output.directory=$work/other_run")
expect 0 "changed: data.phases" "$forge" "$deck" "${mix[@]}" "${on[@]}" --restart "$work/saved/step_00000003" \
  --set "data.phases=[{from_step: 5, weights: {plain: 1}}]" --set train.steps=4
expect 2 "data.phases = " "$forge" "$deck" "${mix[@]}" "${on[@]}" --restart "$work/saved/step_00000009" --set data.phases=[]
expect 2 "data.sources = " "$forge" "$deck" "${mix[@]}" "${on[@]}" --restart "$work/saved/step_00000003" \
  --set "data.sources=$(sed 's/weight: 3/weight: 4/' "$work/sources")"
tr 'e' 'f' < "$work/raw.bin" > "$work/changed.bin"
expect 2 "data.sources hold plain: " "$forge" "$deck" "${mix[@]}" "${on[@]}" --restart "$work/saved/step_00000003" \
  --set "data.sources=$(sed "s:raw.bin:changed.bin:" "$work/sources")"
mv "$work/raw.bin" "$work/moved.bin"
rm -rf "$work/other" "$work/other_run"
expect 0 "changed: data.sources" "$forge" "$deck" "${mix[@]}" "${on[@]}" --restart "$work/saved/step_00000003" \
  --set "data.sources=$(sed "s:raw.bin:moved.bin:" "$work/sources")"
mv "$work/moved.bin" "$work/raw.bin"
expect 2 "ends at step" "$forge" "$deck" "${mix[@]}" --set data.at_end=error --set train.steps=1000000 --set checkpoint.directory=null \
  --set checkpoint.every_steps=0
expect 2 "both given" "$forge" "$deck" --set "data.sources=$(cat "$work/sources")"
expect 2 "names 'other', which is no source" "$forge" "$deck" "${mix[@]}" --set "data.phases=[{from_step: 6, weights: {other: 1}}]"
expect 2 "legal: all, or none" "$forge" "$deck" --set data.files=[] --set "data.sources=$(sed 's/, weight: 3//' "$work/sources")"
expect 2 "unknown; legal: list of {from_step or" "$forge" "$deck" "${mix[@]}" --set "data.phases=[{from_step: 6, order: shuffled}]"
# a ramp of the length, and a rate of its own: the run restarts in its midst
ramp=(--set "data.phases=[{from_step: 1, sequence_tokens: 8}, {from_step: 5, sequence_tokens: 16, rate: 0.5}, {from_step: 9, rate: 2}]"
  --set "checkpoint.directory=$work/ramp" --set checkpoint.every_steps=3)
run ramped "${ramp[@]}"
cmp -s "$work/raw" "$work/ramped" && fail "pieces of samples change nothing"
rm -rf "$work/ramp/step_00000009" "$work/ramp/step_00000012"
expect 0 "restarted from" mpirun --oversubscribe -n 2 "$forge" "$deck" "${ramp[@]}" --restart latest --set mesh.cp=2 --set mesh.dp_shard=1
numbers "$work/run/metrics.jsonl" > "$work/again"
python3 - "$work/ramped" "$work/again" << 'PY' || fail "a restart in the midst of a ramp gives other losses"
import json, sys
whole, again = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
for a, b in zip([line for line in whole if "loss" in line], [line for line in again if "loss" in line], strict=True):
    assert abs(a["loss"] - b["loss"]) < 1e-9 * a["loss"] and a["learning_rate"] == b["learning_rate"], (a, b)
PY
expect 0 "" "$forge" show --all --deck "$deck" --rates --set optimizer.schedule=constant --set "data.phases=[{from_step: 6, rate: 0.5}]"
rate_of() { awk -v step="$1" '$1 == step { print $4 }' "$work/output"; }
[ "$(rate_of 5)" = 1.0000e-02 ] && [ "$(rate_of 6)" = 5.0000e-03 ] || fail "--rates doesn't show the phase's rate: $(cat "$work/output")"
expect 2 "data.phases[0].sequence_tokens = 12; legal: a divisor of train.sequence_tokens = 32" "$forge" "$deck" \
  --set "data.phases=[{from_step: 6, sequence_tokens: 12}]"
# a ramp of the batch: processes go on in its midst, with other steps to come, but not with others so far
batches=(--set "train.batch_ramp=[{from_step: 1, global_batch_sequences: 2}, {from_tokens: 256, global_batch_sequences: 4}]"
  --set "checkpoint.directory=$work/batches" --set checkpoint.every_steps=4)
run ramped "${batches[@]}"
rm -rf "$work/batches/step_00000008" "$work/batches/step_00000012"
expect 0 "restarted from" mpirun --oversubscribe -n 2 "$forge" "$deck" "${batches[@]}" --restart latest --set mesh.pp=2
python3 - "$work/ramped" "$work/run/metrics.jsonl" << 'PY' || fail "a restart in the midst of a ramp of the batch gives other steps"
import json, sys
whole, again = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
assert [line["sequences"] for line in whole] == [2] * 4 + [4] * 8 and whole[-1]["tokens"] == (4 * 2 + 8 * 4) * 32
for a, b in zip(whole, again, strict=True):
    assert abs(a["loss"] - b["loss"]) < 1e-9 * a["loss"] and a["tokens"] == b["tokens"], (a, b)
PY
expect 2 "or others that leave the batches as far as step 4 as they are" "$forge" "$deck" --restart "$work/batches/step_00000004" "${on[@]}"
rm -rf "$work/other" "$work/other_run"
expect 0 "changed: train.batch_ramp" "$forge" "$deck" --restart "$work/batches/step_00000004" "${on[@]}" --set train.steps=5 \
  --set "train.batch_ramp=[{from_step: 1, global_batch_sequences: 2}]"
# what was written after a checkpoint is named: only some samples are compared
touch -d "+1 hour" "$work/raw.bin"
rm -rf "$work/other" "$work/other_run"
expect 0 "raw.bin was written after the checkpoint" "$forge" "$deck" "${mix[@]}" "${on[@]}" --restart "$work/saved/step_00000003"

# ---- packing: the plan is made once, on any number of ranks, and the log says how full samples are
pack=(--set data.packing=best_fit --set data.positions=document --set "data.packing_directory=$work/plans" --set "output.directory=$work/packed"
  --set "data.mask_files=[$work/mask.npy]")
expect 0 "documents packed into" "$forge" "$deck" "${pack[@]}"
grep -q "samples: fill 9[0-9]" "$work/output" || fail "samples aren't full: $(grep packed "$work/output")"
numbers "$work/packed/metrics.jsonl" > "$work/packed_one"
plans=$(ls -l --time-style=full-iso "$work/plans")
rm -rf "$work/packed"
expect 0 "documents packed into" mpirun --oversubscribe -n 2 "$forge" "$deck" "${pack[@]}" --set mesh.cp=2
[ "$plans" = "$(ls -l --time-style=full-iso "$work/plans")" ] || fail "the plan was made twice"
python3 - "$work/packed_one" "$work/packed/metrics.jsonl" << 'PY' || fail "packed samples differ on two ranks"
import json, sys
one, two = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
assert len(one) == len(two) == 12
assert all(abs(a["loss"] - b["loss"]) < 1e-9 * a["loss"] for a, b in zip(one, two))
PY
# ---- filler: a document of 10 tokens is routed, dropped and trained on in 64 as in 10
python3 -c 'import sys; sys.stdout.buffer.write(b"".join(i.to_bytes(2, "little") for i in [7, 90, 21, 4, 133, 62, 11, 48, 201, 256]))' \
  > "$work/document.bin"
for tokens in 64 10; do
  expect 0 "load" "$forge" "$deck" --set train.sequence_tokens=$tokens --set train.global_batch_sequences=1 --set "data.files=[$work/document.bin]" \
    --set data.packing=best_fit --set data.positions=document --set "data.packing_directory=$work/plans" --set "output.directory=$work/of_$tokens" \
    --set model.experts=8 --set model.experts_per_token=2 --set model.expert_ffn=16 --set model.auxiliary_loss_coefficient=0.01 \
    --set model.router_z_coefficient=0.01 --set model.router_bias=true --set model.router_bias_rate=1e-3 --set model.capacity_factor=1 \
    --set model.capacity_drop=probability --set train.steps=4
done
python3 - "$work/of_64/metrics.jsonl" "$work/of_10/metrics.jsonl" << 'PY' || fail "filler changes a run"
import json, sys
def numbers(name):
    names = ("loss", "total_loss", "grad_norm", "experts")
    return [str(k) + " " + str(v) for line in open(name) for n in names for k, v in flat(n, json.loads(line)[n])]
def flat(name, value):
    if isinstance(value, dict): return [x for k in value for x in flat(name + "." + k, value[k])]
    if isinstance(value, list): return [x for i, v in enumerate(value) for x in flat(f"{name}.{i}", v)]
    return [(name, value)]
filled, alone = (numbers(name) for name in sys.argv[1:3])
assert len(alone) == len(filled) > 4 * 20 and any("dropped_share 0." in x for x in alone), alone
for x, y in zip(filled, alone):
    (name, a), (other, b) = x.split(), y.split()
    assert name == other and abs(float(a) - float(b)) <= 1e-12 * max(1, abs(float(b))), (x, y)
PY
# ---- what is wrong with the data is told at once, of training, masks and validation, before anything is written
rm -rf "$work/run"
all_told() { # TEXT… -- OPTIONS…
  local texts=()
  while [ "$1" != -- ]; do texts+=("$1"); shift; done
  expect 2 "the data has ${#texts[@]} errors:" "$forge" "$deck" "${@:2}"
  for text in "${texts[@]}"; do grep -qF -- "$text" "$work/output" || fail "no '$text' in $(cat "$work/output")"; done
  [ ! -e "$work/run" ] || fail "'${texts[*]}' leaves $(ls -A "$work/run")"
}
head -c 20 "$work/raw.bin" > "$work/short.bin"
python3 -c 'import sys; sys.stdout.buffer.write(b"\xff\x7f" * 100)' > "$work/foreign.bin"
held_out=(--set train.validate_every_steps=6 --set "data.validation_files=[$work/short.bin]")
all_told "$work/no.bin: No such file" "$work/no.npy: No such file" "$work/short.bin: too short" -- "${held_out[@]}" \
  --set "data.files=[$work/no.bin]" --set "data.mask_files=[$work/no.npy]"
all_told "$work/no.bin: No such file" "$work/no.npy: No such file" "$work/short.bin: too short" -- "${held_out[@]}" --set data.files=[] \
  --set "data.sources=[{name: a, weight: 1, files: [$work/no.bin]}, {name: b, weight: 1, files: [$work/raw.bin], mask_files: [$work/no.npy]}]"
all_told "$work/foreign.bin: token " "$work/changed.bin: token 0 " -- --set train.validate_every_steps=6 --set "data.files=[$work/foreign.bin]" \
  --set "data.validation_files=[$work/changed.bin]" --set model.vocabulary=32 --set data.document_end_token=-1
all_told "ends at step" "train.validation_sequences: is 1000000" -- --set train.validate_every_steps=6 --set "data.validation_files=[$work/raw.bin]" \
  --set train.validation_sequences=1000000 --set data.at_end=error --set train.steps=1000000
expect 2 "forge: error: $work/foreign.bin: token 0 " "$forge" "$deck" --set train.validate_every_steps=6 --set "data.validation_files=[$work/foreign.bin]"
[ ! -e "$work/run" ] || fail "validation files of another vocabulary leave $(ls -A "$work/run")"
# nor is a plan made before all files are open
expect 2 "$work/no.bin: No such file" "$forge" "$deck" --set data.packing=best_fit --set data.positions=document \
  --set "data.packing_directory=$work/plans2" --set train.validate_every_steps=6 --set "data.validation_files=[$work/no.bin]"
[ ! -e "$work/plans2" ] || fail "a plan is made beside validation files that are missing"

expect 2 "without documents" "$forge" "$deck" --set data.packing=best_fit --set data.document_end_token=-1
expect 2 "data.packing_directory = " "$forge" "$deck" --set data.packing_directory=x
finish
