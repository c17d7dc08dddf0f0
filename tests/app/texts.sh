#!/usr/bin/env bash
# tests/app/texts.sh FORGE: the walk from a folder of texts to a trained model, as README and docs/data.md have it but for fewer steps; text in
# and out of the model; a killed forge tokenize goes on. The curve and the chats need Python's packages: verify/ has those tests.
set -euo pipefail
forge=$(realpath "$1")
root=$PWD
. tests/app/expect.sh
mkdir -p "$work/texts"
for doc in docs/*.md; do cp "$doc" "$work/texts/$(basename "${doc%.md}").txt"; done
ln -s "$root/inputs" "$root/jobscripts" "$work/"
cd "$work"
mkdir -p build/cpu bin
ln -s "$forge" build/cpu/forge
ln -s "$forge" bin/forge
export PATH=$work/bin:$PATH FORGE=$forge

mapfile -t commands < <({
  sed -n '/^## Your own texts/,/^## Your Hugging/p' "$root/README.md"
  sed -n '/^## From a folder of texts/,/^## Making token files/p' "$root/docs/data.md"
} | sed -n 's/^    //p' | sed 's/ *#.*//; s/ FOLDER / texts /')
[ "${#commands[@]}" -eq 6 ] || fail "README.md and docs/data.md have ${#commands[@]} commands, not 6"
few=(--set train.steps=12 --set train.validate_every_steps=6 --set optimizer.warmup_steps=4 --set output.sample_tokens=8)
for command in "${commands[@]}"; do
  words=()
  eval "words=($command)"
  if [ "${words[0]}" = build/cpu/forge ] && [ "${words[1]}" != report ]; then words+=("${few[@]}"); fi
  expect 0 "" "${words[@]}"
  if [ "${words[1]}" = evaluate ]; then cp output evaluated; fi
done
grep -qE "^perplexity [0-9]" evaluated || fail "no perplexity: $(cat evaluated)"
grep -qE "^bits per byte [0-9.]+ \([0-9]+ bytes of text\)" evaluated || fail "no bits per byte: $(cat evaluated)"
grep -q '"last_step": 12' report.html || fail "the report has another last step"
grep -q "sample (temperature 0.70):" runs/texts/log.txt || fail "no sample in the log"
cmp data/texts/tokenizer.json runs/texts/hf/tokenizer.json || fail "the tokenizer isn't in the exported directory"

# packed, the same text has labels for all of its bytes but each document's first token's and end
packed=(--set data.packing=best_fit --set data.positions=document)
expect 0 "" forge evaluate inputs/texts.yaml "${few[@]}" --initial "${packed[@]}"
grep -qE "^bits per byte [0-9.]+ \([0-9]+ bytes of text\)" output || fail "no bits per byte of packed text: $(cat output)"
python3 - "$(sed -nE 's/^bits per byte .*\(([0-9]+) bytes.*/\1/p' output)" << 'PYTHON' || fail "packed text has another number of bytes"
import array, json, os, sys
ids = array.array("H", open("data/texts/validation.bin", "rb").read())
vocabulary = {id: text for text, id in json.load(open("data/texts/tokenizer.json"))["model"]["vocab"].items()}
bytes_of, first, total = lambda id: 0 if id == 0 else len(vocabulary[id]), True, 0
for id in ids:
    total += 0 if first else bytes_of(id)
    first = id == 0
assert total == int(sys.argv[1]), (total, sys.argv[1])
PYTHON

# a prompt, from the deck's tokenizer and from that of an exported directory; a tokenizer that isn't there
expect 0 "A rank " forge generate inputs/texts.yaml "${few[@]}" --checkpoint latest --prompt "A rank " --length 5
expect 0 "A rank " forge generate inputs/texts.yaml "${few[@]}" --initial --prompt "A rank " --length 5 --tokenizer runs/texts/hf
expect 0 "written to" forge export checkpoints/texts --output exported
cmp data/texts/tokenizer.json exported/tokenizer.json || fail "export has not copied the tokenizer"
# on another machine, say
mv data/texts/tokenizer.json data/texts/elsewhere.json
expect 0 "the model's tokenizer is not where the checkpoint's deck has it" forge export checkpoints/texts --output exported_alone
[ -s exported_alone/config.json ] || fail "a model was not exported without its tokenizer"
mv data/texts/elsewhere.json data/texts/tokenizer.json
expect 2 "the tokenizer none" forge generate inputs/texts.yaml "${few[@]}" --initial --prompt a --tokenizer none

# what forge tokenize refuses
tokenize=(forge tokenize texts/data.txt --tokenizer data/texts/tokenizer.json)
expect 2 "--document-end-token 'nothing at all'" "${tokenize[@]}" --document-end-token "nothing at all" --output x.bin
expect 2 "--document-begin-token 'nothing at all'" "${tokenize[@]}" --document-begin-token "nothing at all" --output x.bin
expect 0 "1 document begin, 0 document ends" "${tokenize[@]}" --document-begin-token "<|endoftext|>" --output x.bin
expect 2 "--format npy and a name" "${tokenize[@]}" --format npy --output x.bin
expect 2 "has its own" "${tokenize[@]}" --pattern gpt2 --output x.bin
expect 2 "need --tokenizer" forge tokenize texts/data.txt --format npy --output x.npy
expect 0 "tokens" "${tokenize[@]}" --format npy --output x.npy
expect 2 "--threads needs --tokenizer" forge tokenize texts/data.txt --threads 2 --output x.bin
printf 'texts/data.txt\r\n\r\n' > windows.list
expect 0 "1 document, 0 document ends" forge tokenize --files-from windows.list --tokenizer data/texts/tokenizer.json --output x.bin
python3 - << 'PYTHON' || fail "x.npy is no array of what x.bin has"
import subprocess
subprocess.run("forge tokenize texts/data.txt --tokenizer data/texts/tokenizer.json --output x.bin".split(), check=True, stdout=subprocess.DEVNULL)
a, b = open("x.npy", "rb").read(), open("x.bin", "rb").read()
assert a[:6] == b"\x93NUMPY" and a[128:] == b and f"({len(b) // 2},)".encode() in a[:128]
PYTHON

# an output doesn't take the place of the tokenizer
mkdir -p own
cp data/texts/tokenizer.json own/tokenizer.json
cp data/texts/tokenizer.json own/x.bin.partial
expect 2 "own/tokenizer.json: is the output file too" forge tokenize texts/data.txt --tokenizer own --output own/tokenizer.json
expect 2 "is written with own/x.bin" forge tokenize texts/data.txt --tokenizer own/x.bin.partial --output own/x.bin
cmp data/texts/tokenizer.json own/tokenizer.json && cmp data/texts/tokenizer.json own/x.bin.partial || fail "a tokenizer was written over"

# killed at some moment, then the same command
python3 - << 'PYTHON'
import json
with open("many.jsonl", "w") as f:
    for i in range(400000):
        f.write(json.dumps({"text": f"document {i}: " + "the quick brown fox " * (i % 9)}) + "\n")
PYTHON
many=(forge tokenize many.jsonl --tokenizer data/texts/tokenizer.json --document-end --threads 1)
"${many[@]}" --output whole.bin > /dev/null
"${many[@]}" --output out.bin > /dev/null 2>&1 &
process=$!
for _ in $(seq 200); do
  [ -f out.bin.progress ] && break
  sleep 0.02
done
kill -9 $process 2> /dev/null || true
wait $process 2> /dev/null || true
[ -f out.bin ] || expect 0 "tokens" "${many[@]}" --output out.bin
cmp whole.bin out.bin || fail "a run that was killed and went on has other ids"
[ ! -e out.bin.partial ] && [ ! -e out.bin.progress ] || fail "something is left beside out.bin"
finish
