#!/usr/bin/env bash
# precision.sh FORGE: evaluate --precision takes another precision than the deck's on a GPU whose deck has kernels of bf16 alone: they are
# left out, and the loss is that of a deck without them.
set -euo pipefail
forge=$1
. "$(cd "$(dirname "$0")" && pwd)/../app/expect.sh"

loss_of() { # DECK PRECISION
  expect 0 "parameters  model.hf" "$forge" evaluate "$1" --precision "$2" --set "data.validation_files=[verify/mixtral/tokens.bin]" \
    --set machine.workspace_mib=1 --set train.validation_sequences=2 --set "output.directory=$work/run"
  sed -n 's/^loss \([^ ]*\) nats.*/\1/p' "$work/output"
}
sed 's/precision: fp64/precision: bf16/' verify/mixtral/input.yaml > "$work/bf16.yaml"
sed 's/precision: fp64/precision: fp8\n  fp8_recipe: row\n  fp8_experts: true/' verify/mixtral/input.yaml > "$work/fp8.yaml"
for precision in fp32 fp64; do
  plain=$(loss_of verify/mixtral/input.yaml $precision)
  [ -n "$plain" ] || fail "no loss in $precision"
  for deck in bf16 fp8; do
    found=$(loss_of "$work/$deck.yaml" $precision)
    [ "$found" = "$plain" ] || fail "$deck.yaml in $precision has the loss $found, not $plain"
  done
done
# What is asked for by name is refused.
expect 2 "FORGE_GROUPED = tensor_cores without train.precision = bf16" env FORGE_GROUPED=tensor_cores "$forge" evaluate "$work/bf16.yaml" \
  --precision fp32 --set "data.validation_files=[verify/mixtral/tokens.bin]" --set "output.directory=$work/run"
expect 2 "FORGE_GROUPED = cutlass: this build has no kernels of CUTLASS; legal: automatic" env FORGE_GROUPED=cutlass \
  "$forge" evaluate "$work/bf16.yaml" --set "data.validation_files=[verify/mixtral/tokens.bin]" --set "output.directory=$work/run"
finish
