#!/usr/bin/env bash
# chat.sh FORGE: chats become token files with a mask, a deck fine-tunes a Hugging Face directory on them, packed; adapters, the merged model,
# its scores and preferences go on from there. A stand-in for transformers, which is no package of Debian, has the templates.
set -euo pipefail
forge=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
python=${PYTHON:-python3}
prepare=(env "PYTHONPATH=$work/stub" "$python" jobscripts/prepare_chat.py)

# Bytes; \1, \2 and \3 are roles, 256 to 258, and \4 ends a turn, 259. A template is a list of words.
mkdir "$work/stub"
touch "$work/stub/jinja2.py"
cat > "$work/stub/transformers.py" << 'PY'
import os

class Tokenizer:
    is_fast, eos_token, all_special_ids = True, "\4", [256, 257, 258, 259]
    def __init__(self, directory, local_files_only):
        if directory.endswith("trained"):
            raise OSError("none of (1) …\n(2) …")
        path = os.path.join(directory, "chat_template.jinja")
        self.chat_template = open(path).read() if os.path.exists(path) else None
    def __len__(self):
        return 260
    def convert_ids_to_tokens(self, i):
        return chr(i - 255)
    def __call__(self, text, add_special_tokens, return_offsets_mapping=False):
        ids, starts = [], []
        for at, c in enumerate(text):
            codes = [255 + ord(c)] if "\0" < c < "\5" else list(c.encode())
            ids += codes
            starts += [(at, at + 1)] * len(codes)
        return {"input_ids": ids, "offset_mapping": starts}
    def apply_chat_template(self, messages, tokenize, return_dict=False, add_generation_prompt=False, return_assistant_tokens_mask=False, tools=None):
        words = self.chat_template.split()
        if not messages and "plain" not in words:
            raise IndexError("messages[0]")
        roles, text, mask = {"system": "\1", "user": "\2", "assistant": "\3"}, "", []
        for i, m in enumerate(messages):
            content = m["content"] or ""
            if "raises" in words and m["role"] == "system":
                raise ValueError("no system message")
            if "thinks" in words and m["role"] == "assistant" and i < len(messages) - 1:
                content = content.split("</think>")[-1]
            turn = roles[m["role"]] + content + ("" if "open" in words else "\4")
            text += turn
            mask += [0] + [int(m["role"] == "assistant")] * (len(turn) - 1)
        if add_generation_prompt:
            text, mask = text + "\3", mask + [0]
        return {"input_ids": self(text, False)["input_ids"], "assistant_masks": mask} if tokenize else text

class AutoTokenizer:
    from_pretrained = Tokenizer
PY
for template in "plain" "marks endgeneration plain" "open" "thinks" "raises" "none"; do
  mkdir "$work/${template%% *}"
  [ "$template" = none ] || echo "$template" > "$work/${template%% *}/chat_template.jinja"
done
"$python" - "$work/chats.jsonl" << 'PY'
import json, random, sys
random.seed(1)
word = lambda: "".join(random.choice("abcdefgh") for _ in range(random.randint(1, 9)))
with open(sys.argv[1], "w") as out:
    for _ in range(300):
        chat = [{"role": "system", "content": "repeat"}] if random.random() < 0.3 else []
        for _ in range(random.randint(1, 3)):
            said = word()
            chat += [{"role": "user", "content": said}, {"role": "assistant", "content": said}]
        out.write(json.dumps({"messages": chat}) + "\n")
PY
expect 0 "300 chats" "${prepare[@]}" "$work/plain" "$work/chats.jsonl" --output "$work/chat.bin"
expect 0 "300 chats" "${prepare[@]}" "$work/marks" "$work/chats.jsonl" --output "$work/marks.bin"
for end in bin idx mask.npy; do
  cmp -s "$work/chat.$end" "$work/marks.$end" || fail "marks and places differ in .$end"
done
# a label is what an assistant said, and the end of its turn
"$python" - "$work" << 'PY' || fail "the mask has other labels"
import json, sys
work = sys.argv[1]
ids = memoryview(open(f"{work}/chat.bin", "rb").read()).cast("H")
mask = open(f"{work}/chat.mask.npy", "rb").read()[-len(ids):]
said = [m["content"] for line in open(f"{work}/chats.jsonl") for m in json.loads(line)["messages"] if m["role"] == "assistant"]
assert [i for i, m in zip(ids, mask) if m] == [i for s in said for i in [*s.encode(), 259]]
PY

# labels_of TEMPLATE TEXT LABELS [LINE…]: the chats as text, marks as digits, and their labels.
labels_of() {
  local template=$1 text=$2 labels=$3
  shift 3
  printf '%s\n' "${@:1:1}" > "$work/line.jsonl"
  expect 0 "1 chats" "${prepare[@]}" "$work/$template" "$work/line.jsonl" --output "$work/one.bin" "${@:2}"
  "$python" - "$work" "$text" "$labels" << 'PY' || fail "$template: other labels of ${*:1:1}"
import sys
work, text, labels = sys.argv[1:]
ids = memoryview(open(f"{work}/one.bin", "rb").read()).cast("H")
mask = open(f"{work}/one.mask.npy", "rb").read()[-len(ids):]
shown = lambda kept: b"".join(str(i - 255).encode() if i > 255 else bytes([i]) for i in kept).decode()
assert (shown(ids), shown(i for i, m in zip(ids, mask) if m)) == (text, labels), (shown(ids), shown(i for i, m in zip(ids, mask) if m))
PY
}
q='{"role": "user", "content": "q"}'
labels_of plain 2q43a4 a4 "{\"messages\": [$q, {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]}"
labels_of thinks 3hi42q43a4 hi4a4 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi\"}, $q, {\"role\": \"assistant\", \"content\": \"a\"}]}"
labels_of open 2q3a2q3b a2b "{\"messages\": [$q, {\"role\": \"assistant\", \"content\": \"a\"}, $q, {\"role\": \"assistant\", \"content\": \"b\"}]}"
labels_of plain 2q43a4 a4 '{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}'
labels_of plain 2q43a4 a4 '{"prompt": "q", "completion": "a"}'
labels_of plain 2q�43a4 a4 '{"prompt": "q\ud83d", "completion": "a"}'
labels_of plain 2q�43a4 a4 "$(printf '{"prompt": "q\xe9", "completion": "a"}')"
labels_of none 2q43a4 a4 '{"prompt": "q", "completion": "a"}' --chat-template "$work/plain/chat_template.jinja"
cmp -s "$work/one_tokenizer/chat_template.jinja" "$work/plain/chat_template.jinja" || fail "the template isn't in the tokenizer for the deck"
expect 0 "one_tokenizer had another template: it is replaced" "${prepare[@]}" "$work/none" "$work/line.jsonl" --output "$work/one.bin" \
  --chat-template "$work/thinks/chat_template.jinja"
thinking="{\"messages\": [$q, {\"role\": \"assistant\", \"content\": \"<think>w</think>a\"}, $q, {\"role\": \"assistant\", \"content\": \"b\"}]}"
labels_of thinks 2q43a42q43b4 b4 "$thinking"
grep -q "1 earlier turns have no labels" "$work/output" || fail "turns that are rewritten are not counted"
echo "$thinking" > "$work/line.jsonl"
expect 0 "2 chats" "${prepare[@]}" "$work/thinks" "$work/line.jsonl" --output "$work/one.bin" --every-turn

# pairs: the chosen chat, then the rejected one, whose labels are the last turns
echo '{"prompt": "q", "chosen": "ab", "rejected": "c"}' > "$work/pairs.jsonl"
echo "{\"chosen\": [$q, {\"role\": \"assistant\", \"content\": \"d\"}, $q, {\"role\": \"assistant\", \"content\": \"e\"}], \"rejected\": [$q, {\"role\": \"assistant\", \"content\": \"ffffffff\"}]}" >> "$work/pairs.jsonl"
expect 0 "2 pairs, the longest of 25 tokens" "${prepare[@]}" "$work/plain" "$work/pairs.jsonl" --pairs --output "$work/pairs.bin"
grep -q "packing: pairs" "$work/output" || fail "no lines for a deck of pairs: $(cat "$work/output")"
"$python" - "$work" << 'PY' || fail "pairs have other labels"
import sys
ids = memoryview(open(f"{sys.argv[1]}/pairs.bin", "rb").read()).cast("H")
mask = open(f"{sys.argv[1]}/pairs.mask.npy", "rb").read()[-len(ids):]
shown = lambda kept: b"".join(str(i - 255).encode() if i > 255 else bytes([i]) for i in kept).decode()
texts = ("2q43ab42q43c42q43d42q43e42q43ffffffff4", "ab4c4e4ffffffff4")
assert (shown(ids), shown(i for i, m in zip(ids, mask) if m)) == texts, (shown(ids), shown(i for i, m in zip(ids, mask) if m))
PY
expect 0 "1 pairs are left out, which are longer than --most-tokens 13" "${prepare[@]}" "$work/plain" "$work/pairs.jsonl" --pairs --most-tokens 13 --output "$work/pairs.bin"
expect 2 "its keys are messages" "${prepare[@]}" "$work/plain" "$work/chats.jsonl" --pairs --output "$work/bad.bin"
expect 2 "without --pairs" "${prepare[@]}" "$work/plain" "$work/chats.jsonl" --most-tokens 9 --output "$work/bad.bin"

# files, and bad chats: named, counted and limited
gzip -c "$work/chats.jsonl" > "$work/chats.other"
expect 0 "300 chats" "${prepare[@]}" "$work/plain" "$work/chats.other" --output "$work/packed.bin"
cmp -s "$work/chat.bin" "$work/packed.bin" || fail "compressed chats are others"
{ cat "$work/chats.jsonl"; echo '{"text": "x", "id": 3}'; echo '{"messages": 5'; } > "$work/some.jsonl"
expect 0 "2 of 302 chats are left out" "${prepare[@]}" "$work/plain" "$work/some.jsonl" --output "$work/some.bin"
grep -q "some.jsonl:301: no messages; its keys are text, id" "$work/output" || fail "no keys of a line: $(cat "$work/output")"
grep -q "some.jsonl:302: no JSON object" "$work/output" || fail "no line that isn't JSON: $(cat "$work/output")"
expect 2 "legal: at most 0.5 %" "${prepare[@]}" "$work/plain" "$work/some.jsonl" --output "$work/bad.bin" --most-bad 0.5
expect 2 "the template fails: no system message" "${prepare[@]}" "$work/raises" "$work/chats.jsonl" --output "$work/bad.bin"
bad_line() { # CODE TEXT TEMPLATE LINE
  printf '%s\n' "$4" > "$work/bad.jsonl"
  expect "$1" "$2" "${prepare[@]}" "$work/$3" "$work/bad.jsonl" --output "$work/bad.bin"
}
bad_line 2 "bad.jsonl:1: no turn of the assistant" plain '{"messages": [{"role": "user", "content": "x"}]}'
bad_line 2 "a part of a content is of the type image_url" plain '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}'
bad_line 2 "a turn from someone; legal: human" plain '{"conversations": [{"from": "someone", "value": "x"}]}'
bad_line 2 "puts no special token behind any turn" open '{"prompt": "q", "completion": "a"}'
bad_line 2 "has no chat template; legal: --chat-template" none '{"prompt": "q", "completion": "a"}'
expect 2 "hf download org/model" "${prepare[@]}" org/model "$work/chats.jsonl" --output "$work/bad.bin"
expect 2 "no_such.jsonl" "${prepare[@]}" "$work/plain" "$work/no_such.jsonl" --output "$work/bad.bin"
expect 2 "--chat-template llama3: no file; legal: a file with a template, or chatml" "${prepare[@]}" "$work/plain" "$work/chats.jsonl" --chat-template llama3 --output "$work/bad.bin"
expect 2 "plain/chat_template.jinja: a file; legal: its directory" "${prepare[@]}" "$work/plain/chat_template.jinja" "$work/chats.jsonl" --output "$work/bad.bin"
mkdir "$work/trained"
expect 2 "trained: no tokenizer that transformers reads: none of (1)" "${prepare[@]}" "$work/trained" "$work/chats.jsonl" --output "$work/bad.bin"
mkdir "$work/trained/hf"
expect 2 "trained: a directory without a tokenizer; legal: a Hugging Face directory, here $work/trained/hf" "${prepare[@]}" "$work/trained" "$work/chats.jsonl" --output "$work/bad.bin"
printf '[\n{"messages": []}\n]\n' > "$work/array.json"
expect 2 "array.json: an array of JSON; legal: an object on each line, as jq" "${prepare[@]}" "$work/plain" "$work/array.json" --output "$work/bad.bin"
{ printf '\377\376'; iconv -t UTF-16LE "$work/chats.jsonl"; } > "$work/wide.jsonl"
expect 2 "wide.jsonl: UTF-16 text" "${prepare[@]}" "$work/plain" "$work/wide.jsonl" --output "$work/bad.bin"
mkdir "$work/empty"
echo 'raise ImportError("no", name="transformers")' > "$work/empty/transformers.py"
expect 2 "the package transformers is missing: pip install -r" env "PYTHONPATH=$work/empty" "$python" jobscripts/prepare_chat.py "$work/plain" "$work/chats.jsonl" --output "$work/bad.bin"
[ -z "$(ls "$work" | grep -E 'bad\.(bin|idx|mask)|bad_|partial')" ] || fail "a failure left files behind"

# a model to begin with, then fine-tuning
cat > "$work/first.yaml" << YAML
model: {layers: 2, width: 32, heads: 4, ffn: 48, vocabulary: 260}
train: {steps: 2, global_batch_sequences: 4, sequence_tokens: 64, precision: fp32}
optimizer: {learning_rate: 1e-3}
data: {files: [$work/chat.bin]}
output: {directory: $work/first, save_hf: true}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
expect 0 "step" "$forge" "$work/first.yaml"
deck=(inputs/finetune/chat.yaml)
for setting in "model.hf=$work/first/hf" "model.tokenizer=" "data.files=[$work/chat.bin]" "data.mask_files=[$work/chat.mask.npy]" train.steps=60 \
  train.sequence_tokens=64 train.precision=fp64 train.seed=3 train.microbatch_sequences=1 optimizer.learning_rate=1e-2 optimizer.warmup_steps=5 \
  "output.directory=$work/run" output.save_hf=false "checkpoint.directory=$work/saved" machine.workspace_mib=1 machine.peak_tflops=1 machine.threads=1; do
  deck+=(--set "$setting")
done
expect 0 "300 documents packed into" "$forge" "${deck[@]}"
rm -rf "$work/saved"
cp "$work/run/metrics.jsonl" "$work/one"
expect 0 "300 documents packed into" mpirun -n 4 "$forge" "${deck[@]}" --set mesh.cp=2 --set mesh.pp=2
"$python" - "$work/one" "$work/run/metrics.jsonl" << 'PY' || fail "fine-tuning differs on four ranks, or learns nothing"
import json, sys
one, four = ([json.loads(line)["loss"] for line in open(name)] for name in sys.argv[1:3])
assert len(one) == len(four) == 60 and one[-1] < 0.6 * one[0], (one[0], one[-1])
assert all(abs(a - b) < 1e-7 * a for a, b in zip(one, four)), [abs(a - b) / a for a, b in zip(one, four)]
PY

# docs/checkpoint.md's way: a base directory and chats, adapters, PEFT's directory, the merged model, its scores beside the base's; and from
# there to preferences
small=()
for setting in train.sequence_tokens=64 train.precision=fp32 train.global_batch_sequences=8 train.microbatch_sequences=1 optimizer.warmup_steps=5 \
  optimizer.learning_rate=1e-2 machine.workspace_mib=1 machine.peak_tflops=1 machine.threads=1; do
  small+=(--set "$setting")
done
# of_model DECK DIRECTORY: the deck with that directory in the place of its dimensions
of_model() { sed "/^model:/,/^$/c\\model: {hf: $2, load_weights: true}\n" "$1"; }
of_model inputs/finetune_lora_8b.yaml "$work/first/hf" > "$work/lora.yaml"
expect 0 "saved step_00000040" "$forge" "$work/lora.yaml" "${small[@]}" --set "data.files=[$work/chat.bin]" --set train.steps=40 \
  --set "data.mask_files=[$work/chat.mask.npy]" --set "output.directory=$work/lora" --set "checkpoint.directory=$work/lora_saved"
expect 0 "written to" "$forge" export "$work/lora_saved" --output "$work/adapter"
expect 0 "written to" "$forge" export "$work/lora_saved" --output "$work/merged" --merge
"$python" - "$work" << 'PY'
import json, sys
work = sys.argv[1]
ids = memoryview(open(f"{work}/chat.bin", "rb").read()).cast("H")
mask = open(f"{work}/chat.mask.npy", "rb").read()[-len(ids):]
with open(f"{work}/lines.jsonl", "w") as lines:
    for at in [i for i in range(1, len(ids)) if mask[i] and not mask[i - 1]][:20]:
        end = next((i for i in range(at, len(ids)) if not mask[i]), len(ids))
        print(json.dumps({"context": list(ids[max(0, at - 4):at]), "continuation": list(ids[at:end])[:20]}), file=lines)
PY
expect 0 "" "$forge" score "$work/first/hf" "$work/lines.jsonl" --output "$work/base.jsonl"
expect 0 "" "$forge" score "$work/merged" "$work/lines.jsonl" --output "$work/merged.jsonl"
"$python" - "$work" << 'PY' || fail "the merged model scores the chats' answers no higher than the base"
import json, sys
base, merged = ([json.loads(line)["log_likelihood"] for line in open(f"{sys.argv[1]}/{name}.jsonl")] for name in ("base", "merged"))
assert len(base) == len(merged) == 20 and sum(merged) > sum(base) + 10, (base, merged)
PY
for i in $(seq 16); do echo "{\"prompt\": \"q$i\", \"chosen\": \"ab$i\", \"rejected\": \"c$i\"}"; done > "$work/pairs.jsonl"
expect 0 "16 pairs" "${prepare[@]}" "$work/plain" "$work/pairs.jsonl" --pairs --most-tokens 64 --output "$work/pairs.bin"
of_model inputs/finetune_dpo_8b.yaml "$work/merged" > "$work/dpo.yaml"
expect 0 "reference $work/dpo/reference.logp" "$forge" "$work/dpo.yaml" "${small[@]}" --set "data.files=[$work/pairs.bin]" --set train.steps=8 \
  --set "data.mask_files=[$work/pairs.mask.npy]" --set "output.directory=$work/dpo" --set "checkpoint.directory=$work/dpo_saved" --set mesh.dp_shard=1
"$python" - "$work/dpo/metrics.jsonl" << 'PY' || fail "preferences aren't learned"
import json, math, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert abs(lines[0]["loss"] - math.log(2)) < 1e-5 and lines[7]["reward_margin"] > 0.1, lines
PY
[ -f "$work/dpo/hf/model.safetensors" ] || fail "no model behind preferences"
finish
