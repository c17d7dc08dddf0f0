#!/usr/bin/env bash
# adapters.sh FORGE: adapters that one layout trains go on on another one, come out as PEFT's directory and in the merged
# model, and say the same from all three; what forge doesn't do beside them is refused.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

deck=verify/lora/input.yaml
common=(--set "data.validation_files=[verify/lora/tokens.bin]" --set train.validation_sequences=6
  --set machine.workspace_mib=1 --set machine.peak_tflops=1)
saved=("${common[@]}" --set "checkpoint.directory=$work/saved" --set "output.directory=$work/run")
loss() { sed -n 's/^loss \([^ ]*\) nats.*/\1/p' "$work/output"; }
# near NAME BOUND: the last loss, relative to the trained model's.
near() {
  awk -v a="$trained" -v b="$(loss)" -v e="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && b > 0 && d <= e * a) }' ||
    fail "$1: loss $(loss), the trained model's $trained"
}

# Four steps on four ranks, two more on one.
if has_thread_ranks; then
  expect 0 "saved step_00000004" "$forge" "$deck" "${saved[@]}" --set train.steps=4 --ranks 4 --set mesh.tp=2 \
    --set mesh.dp_shard=2 --set train.zero_stage=3 --set train.microbatch_sequences=1
else
  expect 0 "saved step_00000004" "$forge" "$deck" "${saved[@]}" --set train.steps=4
fi
expect 0 "saved step_00000006" "$forge" "$deck" "${saved[@]}" --set train.steps=6 --restart latest
expect 0 "bits per token" "$forge" evaluate "$deck" "${saved[@]}" --checkpoint latest
trained=$(loss)
expect 0 "bits per token" "$forge" evaluate "$deck" "${common[@]}" --set "adapter.load="
[ "$(loss)" != "$trained" ] || fail "the base model has the loss of the trained one"

# By steps: the losses of ten steps are the reference's, wherever the first four were done.
python3 - "$work/run/metrics.jsonl" << 'PY' || fail "the losses of six steps on two layouts are not the reference's"
import json, sys
losses = [json.loads(line)["loss"] for line in open(sys.argv[1]) if '"loss"' in line]
text = open("verify/lora/reference.yaml").read().split("loss: [", 1)[1].split("]", 1)[0]
reference = [float(v) for v in text.split(",")]
# The rate's decay is that of ten steps there: as far as the warm-up it is the same.
sys.exit(len(losses) < 6 or any(abs(a - b) > 1e-11 * b for a, b in zip(losses[:3], reference[:3])))
PY

# PEFT's directory, and the merged model.
expect 0 "written to" "$forge" export "$work/saved" --output "$work/adapter"
[ -f "$work/adapter/adapter_config.json" ] && [ -f "$work/adapter/adapter_model.safetensors" ] || fail "no adapter"
[ ! -f "$work/adapter/model.safetensors" ] || fail "a model beside the adapter"
expect 0 "adapters of $work/adapter" "$forge" evaluate "$deck" "${common[@]}" --set "adapter.load=$work/adapter"
near "the exported adapter" 1e-6
expect 0 "written to" "$forge" export "$work/saved" --output "$work/merged" --merge
none=(--set adapter.name=none --set adapter.rank=8 --set adapter.alpha=16 --set "adapter.targets=[]" --set "adapter.load=")
expect 0 "parameters  model.hf $work/merged" "$forge" evaluate "$deck" "${common[@]}" --set "model.hf=$work/merged" "${none[@]}"
near "the merged model" 1e-6
prompt=(--tokens 3,5,7 --length 8 --temperature 0)
texts=$("$forge" generate "$deck" "${saved[@]}" --checkpoint latest "${prompt[@]}" 2> /dev/null)
again=$("$forge" generate "$deck" "${common[@]}" --set "model.hf=$work/merged" "${none[@]}" "${prompt[@]}" 2> /dev/null)
[ -n "$texts" ] && [ "$again" = "$texts" ] || fail "the merged model goes on with '$again', not '$texts'"

# Latent attention beside frozen experts, trained by Muon.
other=verify/lora_deepseek/input.yaml
common=(--set "data.validation_files=[verify/lora_deepseek/tokens.bin]" --set train.validation_sequences=6
  --set machine.workspace_mib=1 --set machine.peak_tflops=1)
saved=("${common[@]}" --set "checkpoint.directory=$work/saved_latent" --set "output.directory=$work/run_latent")
expect 0 "saved step_00000003" "$forge" "$other" "${saved[@]}" --set train.steps=3 --set optimizer.name=muon
expect 0 "bits per token" "$forge" evaluate "$other" "${saved[@]}" --checkpoint latest --set optimizer.name=muon
trained=$(loss)
expect 0 "written to" "$forge" export "$work/saved_latent" --output "$work/latent_adapter"
grep -q '"kv_a_proj_with_mqa"' "$work/latent_adapter/adapter_config.json" || fail "the adapter doesn't name its targets"
expect 0 "bits per token" "$forge" evaluate "$other" "${common[@]}" --set "adapter.load=$work/latent_adapter"
near "the exported adapter of latent attention" 1e-6
expect 0 "written to" "$forge" export "$work/saved_latent" --output "$work/latent_merged" --merge
expect 0 "bits per token" "$forge" evaluate "$other" "${common[@]}" --set "model.hf=$work/latent_merged" "${none[@]}"
near "the merged model of latent attention" 1e-6

# Gated DeltaNet, whose files have rows in another order, and gates of attention's output.
hybrid=verify/qwen3_next/input.yaml
common=(--set "data.validation_files=[verify/qwen3_next/tokens.bin]" --set train.validation_sequences=6 --set model.mtp_depth=0
  --set model.mtp_loss_factor=0.1 --set machine.workspace_mib=1 --set machine.peak_tflops=1)
of_hybrid=(--set adapter.name=lora --set adapter.rank=3 --set adapter.alpha=5)
saved=("${common[@]}" "${of_hybrid[@]}" --set "checkpoint.directory=$work/saved_hybrid" --set "output.directory=$work/run_hybrid")
expect 0 "saved step_00000003" "$forge" "$hybrid" "${saved[@]}" --set train.steps=3 --set optimizer.learning_rate=0.02
expect 0 "bits per token" "$forge" evaluate "$hybrid" "${saved[@]}" --checkpoint latest
trained=$(loss)
expect 0 "written to" "$forge" export "$work/saved_hybrid" --output "$work/hybrid_adapter"
grep -q '"in_proj_qkvz"' "$work/hybrid_adapter/adapter_config.json" || fail "the adapter doesn't name DeltaNet's projections"
expect 0 "bits per token" "$forge" evaluate "$hybrid" "${common[@]}" "${of_hybrid[@]}" --set "adapter.load=$work/hybrid_adapter"
near "the exported adapter of gated DeltaNet" 1e-6
expect 0 "saved step_00000001" "$forge" "$hybrid" "${saved[@]}" --fresh --set train.steps=1 --set "adapter.targets=[up_proj]"
expect 0 "up_proj of experts without gate_proj: PEFT reads both or neither" "$forge" export "$work/saved_hybrid" --output "$work/half_adapter"
expect 0 "saved step_00000003" "$forge" "$hybrid" "${saved[@]}" --fresh --set train.steps=3 --set optimizer.learning_rate=0.02
expect 0 "written to" "$forge" export "$work/saved_hybrid" --output "$work/hybrid_merged" --merge
expect 0 "bits per token" "$forge" evaluate "$hybrid" "${common[@]}" --set "model.hf=$work/hybrid_merged"
near "the merged model of gated DeltaNet" 1e-6

# Each expert's own, a shared one's and dense layers'; four steps on four ranks, three on one.
experts=verify/lora_experts/input.yaml
common=(--set "data.validation_files=[verify/lora_experts/tokens.bin]" --set train.validation_sequences=6
  --set machine.workspace_mib=1 --set machine.peak_tflops=1)
saved=("${common[@]}" --set "checkpoint.directory=$work/saved_experts" --set "output.directory=$work/run_experts")
if has_thread_ranks; then
  expect 0 "saved step_00000004" "$forge" "$experts" "${saved[@]}" --set train.steps=4 --ranks 4 --set mesh.ep=2 \
    --set mesh.etp=2 --set mesh.tp=2 --set mesh.dp_shard=2 --set train.zero_stage=3 --set train.microbatch_sequences=1
else
  expect 0 "saved step_00000004" "$forge" "$experts" "${saved[@]}" --set train.steps=4
fi
expect 0 "saved step_00000007" "$forge" "$experts" "${saved[@]}" --set train.steps=7 --restart latest
expect 0 "bits per token" "$forge" evaluate "$experts" "${saved[@]}" --checkpoint latest
trained=$(loss)
expect 0 "written to" "$forge" export "$work/saved_experts" --output "$work/expert_adapter"
grep -q 'mlp.experts.3.down_proj.lora_B.weight' "$work/expert_adapter/adapter_model.safetensors" ||
  fail "the adapter has no tensor of an expert's"
expect 0 "bits per token" "$forge" evaluate "$experts" "${common[@]}" --set "adapter.load=$work/expert_adapter"
near "the exported adapter of experts" 1e-6
expect 0 "written to" "$forge" export "$work/saved_experts" --output "$work/experts_merged" --merge
expect 0 "bits per token" "$forge" evaluate "$experts" "${common[@]}" --set "model.hf=$work/experts_merged" "${none[@]}"
near "the merged model with experts" 1e-6
texts=$("$forge" generate "$experts" "${saved[@]}" --checkpoint latest "${prompt[@]}" 2> /dev/null)
again=$("$forge" generate "$experts" "${common[@]}" --set "model.hf=$work/experts_merged" "${none[@]}" "${prompt[@]}" 2> /dev/null)
[ -n "$texts" ] && [ "$again" = "$texts" ] || fail "the merged model with experts goes on with '$again', not '$texts'"

# Of a run in bf16 the merged model is the base's files with W + scale B A, not what the run has rounded.
base=$work/base
cp -r verify/lora/model "$base"
common=(--set "data.validation_files=[verify/lora/tokens.bin]" --set train.validation_sequences=6
  --set machine.workspace_mib=1 --set machine.peak_tflops=1)
rounded=("${common[@]}" --set train.precision=bf16 --set "model.hf=$base" --set "checkpoint.directory=$work/saved_rounded"
  --set "adapter.targets=[q_proj,down_proj]" --set adapter.load= --set "output.directory=$work/run_rounded")
expect 0 "saved step_00000003" "$forge" "$deck" "${rounded[@]}" --set train.steps=3
expect 0 "written to" "$forge" export "$work/saved_rounded" --output "$work/rounded_adapter"
expect 0 "written to" "$forge" export "$work/saved_rounded" --output "$work/exact" --merge --type fp32
PYTHONPATH=tests/app python3 - "$base" "$work/rounded_adapter" "$work/exact" << 'PY' || fail "the merged model isn't the base's files with adapters"
import struct, sys
from pathlib import Path
from edit_model import read
base, adapter, merged = (read(next(Path(d).glob("*.safetensors"))) for d in sys.argv[1:])
numbers = lambda tensor: struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2])
assert base.keys() == merged.keys() and all(t[0] == "F32" for t in merged.values())
adapted = 0
for name, tensor in base.items():
    of = "base_model.model." + name.removesuffix("weight") + "lora_%s.weight"
    if of % "A" not in adapter:
        assert merged[name] == tensor, name
        continue
    adapted += 1
    (rows, columns), (rank, _) = tensor[1], adapter[of % "A"][1]
    w, m, a, b = map(numbers, (tensor, merged[name], adapter[of % "A"], adapter[of % "B"]))
    for i in range(rows):
        row = [0.0] * columns
        for k in range(rank):
            row = [r + b[i * rank + k] * x for r, x in zip(row, a[k * columns : (k + 1) * columns])]
        sums = [w[i * columns + j] + 1.5 * row[j] for j in range(columns)]
        assert list(struct.unpack(f"<{columns}f", struct.pack(f"<{columns}f", *sums))) == list(m[i * columns : (i + 1) * columns]), name
assert adapted == 4, adapted
PY
mv "$base" "$base.away"
expect 0 "forge: model.hf $base is not there: the merged weights are those that the run has rounded" \
  "$forge" export "$work/saved_rounded" --output "$work/from_rounded" --merge --type fp32
python3 tests/app/edit_model.py "$base.away" "$base" add model.norm.weight model.norm.weight
expect 2 "forge export --merge: model.hf $base isn't the model that the run began with: tensor model.norm.weight has other values; legal:" \
  "$forge" export "$work/saved_rounded" --output "$work/of_another" --merge

# changed NAME EDIT TENSOR [OTHER]: a copy of a directory of adapters, one tensor of which is changed; loads: it read.
changed() {
  cp -r verify/lora/adapter "$work/$1"
  PYTHONPATH=tests/app python3 - "$work/$1/adapter_model.safetensors" "${@:2}" << 'PY'
import sys
from pathlib import Path
from edit_model import read, write
path, edit, name = Path(sys.argv[1]), *sys.argv[2:4]
tensors = read(path)
kind, shape, values = tensors.pop(name)
if edit == "nan":
    tensors[name] = (kind, shape, values[:-4] + b"\xff" * 4)
if edit == "add":
    tensors |= {name: (kind, shape, values), sys.argv[4]: (kind, shape, values)}
if edit == "flat":
    tensors[name] = (kind, [shape[0] * shape[1]], values)
write(path, tensors)
PY
}
loads() { "$forge" evaluate "$deck" "${common[@]}" --set "adapter.load=$work/$1"; }
first=base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
changed lacking drop "$first"
expect 2 "adapter.load $work/lacking/adapter_model.safetensors: tensor $first [4, 32] is missing" loads lacking
changed more add "$first" "${first/layers.0/layers.7}"
expect 2 "adapter.load $work/more/adapter_model.safetensors: 1 tensor of no matrix of adapter.targets: 'base_model.model.model.layers.7.self_attn.q_proj" loads more
changed flat flat "$first"
expect 2 "adapter.load: $work/flat/adapter_model.safetensors: tensor $first has shape [128], adapter.rank and the model ask for [4, 32]" loads flat
# with_key NAME JSON: a copy of that directory with other keys in adapter_config.json.
with_key() {
  cp -r verify/lora/adapter "$work/$1"
  python3 -c 'import json, sys; path = sys.argv[1]; config = json.load(open(path)) | json.loads(sys.argv[2]); json.dump(config, open(path, "w"))' \
    "$work/$1/adapter_config.json" "$2"
}
with_key pissa '{"init_lora_weights": "pissa_niter_4"}'
expect 2 "init_lora_weights = 'pissa_niter_4', which changes the model's own matrices; legal: true | false | " loads pissa
with_key activated '{"alora_invocation_tokens": [4, 6]}'
expect 2 "alora_invocation_tokens = " loads activated
with_key whole_names '{"target_modules": ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.k_proj"]}'
expect 2 "target_modules = [k_proj, q_proj], and adapter.targets are" loads whole_names
changed undefined nan "$first"
expect 4 "the parameters have NaN or Inf: $first, of adapter.load $work/undefined; legal: finite numbers" loads undefined

# An adapter and a model don't stand in one directory.
expect 2 "holds a model, and adapters would stand beside it" "$forge" export "$work/saved_rounded" --output "$work/from_rounded"
expect 0 "written" "$forge" export "$work/saved_rounded" --output "$work/alone"
expect 2 "holds adapters, and a model would stand beside them" "$forge" export "$work/saved_rounded" --output "$work/alone" --merge --type fp32

# Refused.
expect 2 "adapter.targets has q_proj twice; legal: each name once" "$forge" show inputs/finetune_lora_8b.yaml \
  --set "adapter.targets=[q_proj,k_proj,q_proj]"
expect 2 "adapter.rank = 4 without adapter.name = lora" "$forge" show "$deck" --set adapter.name=none
expect 2 "r = 4, and adapter.rank = 5 (--set adapter.rank); legal: the same numbers" "$forge" evaluate "$deck" "${common[@]}" --set adapter.rank=5
expect 2 "adapter.targets has w1" "$forge" show "$deck" --set "adapter.targets=[w1]"
for key in optimizer.name=soap optimizer.name=adafactor optimizer.qk_clip=9 \
  "train.frozen=[layers.*]" model.mtp_depth=1 output.save_hf=true; do
  expect 2 "adapter.name = lora with ${key%%=*} = " "$forge" show inputs/finetune_lora_8b.yaml --set "$key"
done
expect 2 "adapter.name = lora with adapter.dropout = 0.1, which forge doesn't do together; legal: 0, or adapter.targets without matrices of experts" \
  "$forge" show inputs/mixtral_8x7b_32gpu.yaml --set adapter.name=lora --set adapter.dropout=0.1
expect 0 "fits on" "$forge" show inputs/mixtral_8x7b_32gpu.yaml --set adapter.name=lora --set adapter.dropout=0.1 --set "adapter.targets=[q_proj]"
expect 2 "adapter.targets has gate, which is no matrix of attention and MLP of model.family = mixtral; legal: q_proj | k_proj | v_proj | o_proj | w1 | w3 | w2, or []" \
  "$forge" show inputs/mixtral_8x7b_32gpu.yaml --set adapter.name=lora --set "adapter.targets=[gate]"
python3 - "$work/expert_adapter/adapter_config.json" << 'PY'
import json, sys
config = json.load(open(sys.argv[1])) | {"target_modules": "all-linear"}
json.dump(config, open(sys.argv[1], "w"))
PY
expect 2 "target_modules = 'all-linear', and adapter.targets are" "$forge" evaluate "$experts" "${common[@]}" \
  --set "adapter.load=$work/expert_adapter"
expect 0 "layers.0.experts.0.gate.lora_a" "$forge" show inputs/mixtral_8x7b_32gpu.yaml --set adapter.name=lora --all
expect 0 "fits on" "$forge" show inputs/deepseek_v2_lite_8gpu.yaml --set adapter.name=lora --set "adapter.targets=[q_proj, up_proj]"
finish
