#!/usr/bin/env bash
# chat.sh FORGE: chats become token files with a mask, and a deck fine-tunes a Hugging Face directory on them, packed. Where Python has no
# A stand-in for transformers, which is no package of Debian, has the template.
set -euo pipefail
forge=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
python=${PYTHON:-python3}
prepare=(env "PYTHONPATH=$work/stub" "$python" jobscripts/prepare_chat.py)

# Bytes; "<role>" is 256 + the role's number, 255 ends a turn.
mkdir "$work/stub" "$work/tokenizer"
cat > "$work/stub/transformers.py" << 'PY'
class Tokenizer:
    chat_template = "{% for m in messages %}…{% endfor %}"
    def __init__(self, directory):
        if directory.endswith("marks"):
            self.chat_template += "{% generation %}{% endgeneration %}"
    def __len__(self):
        return 260
    def apply_chat_template(self, messages, tokenize, return_dict, add_generation_prompt=False, return_assistant_tokens_mask=False):
        roles, ids, mask = {"system": 256, "user": 257, "assistant": 258}, [], []
        for m in messages:
            turn = [roles[m["role"]], *m["content"].encode(), 255]
            ids += turn
            mask += [0] + [int(m["role"] == "assistant")] * (len(turn) - 1)
        if add_generation_prompt:
            ids, mask = ids + [258], mask + [0]
        return {"input_ids": ids, "assistant_masks": mask}

class AutoTokenizer:
    from_pretrained = Tokenizer
PY
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
expect 0 "300 chats" "${prepare[@]}" "$work/tokenizer" "$work/chats.jsonl" --output "$work/chat.bin"
expect 0 "300 chats" "${prepare[@]}" "$work/tokenizer/marks" "$work/chats.jsonl" --output "$work/marks.bin"
for end in bin idx mask.npy; do
  cmp -s "$work/chat.$end" "$work/marks.$end" || fail "marks and prefixes differ in .$end"
done
# a label is what an assistant said, and the end of its turn
"$python" - "$work" << 'PY' || fail "the mask has other labels"
import json, sys
work = sys.argv[1]
ids = memoryview(open(f"{work}/chat.bin", "rb").read()).cast("H")
mask = open(f"{work}/chat.mask.npy", "rb").read()[-len(ids):]
said = [m["content"] for line in open(f"{work}/chats.jsonl") for m in json.loads(line)["messages"] if m["role"] == "assistant"]
kept = bytes(i for i, m in zip(ids, mask) if m)
assert kept == b"".join(s.encode() + b"\xff" for s in said)
PY
echo '{"messages": [{"role": "user", "content": "x"}]}' > "$work/bad.jsonl"
expect 1 "bad.jsonl:1: no turn of the assistant" "${prepare[@]}" "$work/tokenizer" "$work/bad.jsonl" --output "$work/bad.bin"
echo '{"messages": 5' > "$work/bad.jsonl"
expect 1 "bad.jsonl:1: no JSON object" "${prepare[@]}" "$work/tokenizer" "$work/bad.jsonl" --output "$work/bad.bin"
[ -z "$(ls "$work" | grep -E 'bad\.(bin|idx|mask)|partial')" ] || fail "a failure left files behind"

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
cat > "$work/chat.yaml" << YAML
model: {hf: $work/first/hf, load_weights: true}
train: {steps: 60, global_batch_sequences: 8, sequence_tokens: 64, precision: fp64, seed: 3}
optimizer: {learning_rate: 1e-2, warmup_steps: 5}
data: {files: [$work/chat.bin], mask_files: [$work/chat.mask.npy], document_ends: index, packing: best_fit, positions: document, order: shuffled}
output: {directory: $work/run, every_steps: 20}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
YAML
expect 0 "300 documents packed into" "$forge" "$work/chat.yaml"
cp "$work/run/metrics.jsonl" "$work/one"
expect 0 "300 documents packed into" mpirun -n 4 "$forge" "$work/chat.yaml" --set mesh.cp=2 --set mesh.pp=2 --set data.order=shuffled
"$python" - "$work/one" "$work/run/metrics.jsonl" << 'PY' || fail "fine-tuning differs on four ranks, or learns nothing"
import json, sys
one, four = ([json.loads(line)["loss"] for line in open(name)] for name in sys.argv[1:3])
assert len(one) == len(four) == 60 and one[-1] < 0.6 * one[0], (one[0], one[-1])
assert all(abs(a - b) < 1e-7 * a for a, b in zip(one, four)), [abs(a - b) / a for a, b in zip(one, four)]
PY
finish
