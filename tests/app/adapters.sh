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

# Refused.
expect 2 "adapter.rank = 4 without adapter.name = lora" "$forge" show "$deck" --set adapter.name=none
expect 2 "r = 4; legal: adapter.rank = 5" "$forge" evaluate "$deck" "${common[@]}" --set adapter.rank=5
expect 2 "adapter.targets has w1" "$forge" show "$deck" --set "adapter.targets=[w1]"
for key in adapter.dropout=0.1 optimizer.name=soap optimizer.name=adafactor optimizer.qk_clip=9 \
  "train.frozen=[layers.*]" model.mtp_depth=1 output.save_hf=true; do
  expect 2 "adapter.name = lora with ${key%%=*} = " "$forge" show inputs/finetune_lora_8b.yaml --set "$key"
done
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
