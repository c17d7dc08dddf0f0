#!/usr/bin/env bash
# gradients.sh FORGE REFERENCE PROBLEM FOLDER: gradients of the first step of a problem of verify/ by FORGE, against those of
# REFERENCE, forge built for the CPU. fp64 and fp32: bounds of `forge verify`. bf16: from the fp64 result no farther than
# twice the CPU's bf16, as two computations whose roundings fall differently may be. Decks in FP8 are compared so with both of their carriers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
forge=$1 reference=$2 problem=$3 folder=$4
if [ ! -x "$reference" ]; then
  echo "no $reference: a build for the CPU is needed (--reference)"
  exit 77
fi
name=$folder/$(basename "$problem")
# A deck with precision fp8 keeps it, with carriers in fp64 and in bf16.
precisions=(fp64 fp32 bf16)
if grep -q 'precision: fp8' "$problem/input.yaml"; then precisions=(fp64 bf16); fi
for precision in "${precisions[@]}"; do
  setting=train.precision=$precision
  [ "${#precisions[@]}" -eq 3 ] || export FORGE_FP8_CARRIER=$precision setting=train.precision=fp8
  for side in device host; do
    program=$forge
    [ "$side" = device ] || program=$reference
    "$program" gradients "$problem/input.yaml" --set "$setting" --set machine.peak_tflops=1 \
      --set machine.workspace_mib=4 --output "$name.$side.$precision.safetensors"
  done
done
compare() { "${PYTHON:-python3}" "$here/compare_gradients.py" "$name.device.$1.safetensors" "$name.host.$2.safetensors" "${@:3}"; }
compare fp64 fp64 --bound 1e-11
[ "${#precisions[@]}" -ne 3 ] || compare fp32 fp64 --bound 1e-4
compare bf16 fp64 --twice "$name.host.bf16.safetensors"
rm -f "$name".{device,host}.*.safetensors
