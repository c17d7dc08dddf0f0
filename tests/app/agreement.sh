#!/usr/bin/env bash
# agreement.sh FORGE: ranks that don't have the same deck, environment, token files or weights say so before the first step, once, and
# name the odd rank and the difference. Nodes that see other files stand for it as ranks in other working directories.
set -euo pipefail
forge=$(realpath "$1")  # the ranks have working directories of their own
. "$(dirname "$0")/expect.sh"

head -c 4000 docs/running.md > "$work/text"
mkdir "$work/one" "$work/two"
expect 0 "tokens" "$forge" tokenize "$work/text" --output "$work/one/tokens.bin"
cat > "$work/deck.yaml" << YAML
model: {layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 256}
train: {steps: 2, global_batch_sequences: 6, sequence_tokens: 16, precision: fp32, validate_every_steps: 2}
optimizer: {learning_rate: 1e-3}
data: {files: [tokens.bin], validation_files: [tokens.bin], dtype: uint16}
output: {directory: $work/run, save_hf: true}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
# job SET ENV ARGUMENTS…: three ranks; `set` and `env` of the middle one, or of rank $odd. (Open MPI 5.0.7's mpirun ends with SIGSEGV where it is given two programs.)
cat > "$work/rank" << 'SH'
#!/usr/bin/env bash
work=$1 set=$2 env=$3 odd=$4
shift 4
[ "$OMPI_COMM_WORLD_RANK" -eq "$odd" ] || { cd "$work/one" && exec "$@"; }
cd "$work/two" && exec env $env "$@" $set
SH
chmod +x "$work/rank"
job() {
  local set=$1 env=$2
  shift 2
  rm -rf "$work/run"
  timeout -s KILL 90 mpirun -n 3 "$work/rank" "$work" "$set" "$env" "${odd:-1}" "$forge" "$@" < /dev/null
}
refuses() { # WORDS LINE JOB…
  local words=$1 line=$2
  shift 2
  expect 2 "$words" "$@"
  grep -qF "$line" "$work/output" || fail "'$line' isn't said: $(cat "$work/output")"
  [ "$(grep -c "forge: error" "$work/output")" -eq 1 ] || fail "$words is said more than once"
  [ ! -e "$work/run" ] || fail "$words leaves a run"
}

cp "$work/one/tokens.bin" "$work/two"
expect 0 "model written" job "" "" "$work/deck.yaml"
refuses "the resolved deck of rank 1" '"train.steps: 3" there, "train.steps: 2" here' job "--set train.steps=3" "" "$work/deck.yaml"
odd=0 refuses "the resolved deck of rank 0" 'that of rank 1 and 1 more: "train.steps: 3" there' job "--set train.steps=3" "" "$work/deck.yaml"
refuses "the environment of rank 1" '"NCCL_ALGO=Tree" there, "nothing" here' job "" "NCCL_ALGO=Tree" "$work/deck.yaml"
refuses "the environment of rank 1" "NCCL_ALGO" job "" "NCCL_ALGO=Tree" gradients "$work/deck.yaml" --output "$work/g.st"
expect 0 "model written" job "" "NCCL_DEBUG_FILE=of_this_node" "$work/deck.yaml"

# The same number of other tokens, and more of them.
tr 'a-m' 'n-z' < "$work/text" > "$work/other"
expect 0 "tokens" "$forge" tokenize "$work/other" --output "$work/two/tokens.bin"
refuses "the training data of rank 1" "every node must see the same files" job "" "" "$work/deck.yaml"
refuses "the training data of rank 1" "every node must see the same files" job "" "" evaluate "$work/deck.yaml" --initial
cat "$work/text" "$work/text" > "$work/longer"
expect 0 "tokens" "$forge" tokenize "$work/longer" --output "$work/two/tokens.bin"
refuses "the training data of rank 1" "8000 tokens" job "" "" "$work/deck.yaml"
# Documents by an index, adapters and optimizer states that differ from node to node.
cp "$work/one/tokens.bin" "$work/two"
for set in one two; do
  python3 - "$work/$set" $([ $set = one ] && echo 100 || echo 50) << 'PY'
import struct, sys
folder, length = sys.argv[1], int(sys.argv[2])
count = 4000 // length
with open(f"{folder}/indexed.idx", "wb") as file:
    file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, count + 1))
    file.write(struct.pack(f"<{count}i", *[length] * count) + struct.pack(f"<{count}q", *[2 * length * i for i in range(count)]))
    file.write(struct.pack(f"<{count + 1}q", *range(count + 1)))
PY
  cp "$work/one/tokens.bin" "$work/$set/indexed.bin"
  mkdir -p "$work/$set/adapter"
  echo "{\"of\": \"$set\"}" > "$work/$set/adapter/adapter_config.json"
done
refuses "the documents of the training data of rank 1" "ends" job "" "" "$work/deck.yaml" --set "data.files=[indexed.bin]" --set data.dtype=none --set data.document_ends=index --set "data.validation_files=[]" --set train.validate_every_steps=0
refuses "adapter.load = adapter of rank 1" "adapter_config.json" job "" "" "$work/deck.yaml" --set adapter.name=lora --set adapter.load=adapter --set output.save_hf=false
# Of held-out sets each is compared.
cp "$work/one/tokens.bin" "$work/two"
for folder in one two; do cp "$work/one/tokens.bin" "$work/$folder/held_out.bin"; done
sed 's/validation_files: [^ ]* /validation: [{name: same, files: [tokens.bin]}, {name: other, files: [held_out.bin]}], /' "$work/deck.yaml" > "$work/sets.yaml"
expect 0 "validation other" job "" "" "$work/sets.yaml"
expect 0 "tokens" "$forge" tokenize "$work/other" --output "$work/two/held_out.bin"
refuses "the validation data other of rank 1" "every node must see the same files" job "" "" "$work/sets.yaml"

expect 0 "model written" job "" "" "$work/deck.yaml"
for folder in one two; do cp -r "$work/run/hf" "$work/$folder/base"; done
sed '/^model:/d' "$work/deck.yaml" > "$work/tune.yaml"
echo "model: {hf: base}" >> "$work/tune.yaml"
expect 0 "model written" job "" "" "$work/tune.yaml"
printf '\x40' | dd of="$work/two/base/model.safetensors" bs=1 seek="$(($(stat -c %s "$work/two/base/model.safetensors") - 1))" conv=notrunc 2> /dev/null
refuses "model.hf = base of rank 1" "model.safetensors" job "" "" "$work/tune.yaml"
finish
