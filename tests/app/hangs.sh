#!/usr/bin/env bash
# hangs.sh FORGE: a rank that is killed, stops or computes without end ends the job in time, with the code and a line that names it.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"

head -c 4000 docs/running.md > "$work/text"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 6, global_batch_sequences: 6, sequence_tokens: 16, precision: fp32}
optimizer: {learning_rate: 1e-3}
data: {files: [$work/tokens.bin], dtype: uint16}
output: {directory: $work/run}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 60, deadline_seconds: 8}
YAML
expect 2 "FORGE_FAULT=kill:1" env FORGE_FAULT=kill:1 "$forge" "$work/deck.yaml"
expect 0 "6/6" env FORGE_FAULT=slow:0:3:0.5 "$forge" "$work/deck.yaml"

# How long the job takes here and now when nothing is wrong: machines under load are slow.
start=$SECONDS
expect 0 "6/6" mpirun -n 3 "$forge" "$work/deck.yaml"
usual=$((SECONDS - start + 1))

# CODE TEXT FAULT: three ranks, one of which has the fault in step 4; the job ends at the deadline and two seconds, its start aside.
ends_with() {
  local start=$SECONDS
  expect "$1" "$2" timeout -s KILL 280 mpirun -n 3 -x "FORGE_FAULT=$3" "$forge" "$work/deck.yaml"
  [ $((SECONDS - start)) -le $((8 + 2 + 4 * usual)) ] || fail "$3 took $((SECONDS - start)) s, an undisturbed run $usual s"
}
ends_with 137 "signal 9" kill:1:4
ends_with 86 "rank 2: no answer" stop:2:4
ends_with 86 "rank 0: no answer" stop:0:4
ends_with 86 "rank 1: step 4, data" hang:1:4
grep -q "rank 0, 2: step 4, labels" "$work/output" || fail "no word of what the others did: $(cat "$work/output")"
finish
