#!/usr/bin/env python3
"""score.py FORGE: forge score against references that share no code with it (verify/make_scores.py), on layouts of one, two and four
ranks; against forge evaluate's loss; rows that outlive a kill; standard input; text."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

from program import ENVIRONMENT, FORGE, LM_EVAL, ROOT, expect, finish, job, rows_of, sets

WORK = Path(tempfile.mkdtemp())


def near(a, b, tolerance=1e-12):
    return abs(a - b) <= tolerance * max(1, abs(b))


# ---- references, on layouts

TWO_LEVELS = ["mesh.cp=4", "mesh.cp_method=two_level", "mesh.cp_inner=2"]
LAYOUTS = {
    "llama": [(1, []), (2, ["mesh.tp=2"]), (2, ["mesh.pp=2"]), (2, ["mesh.dp_shard=2", "train.zero_stage=3"]), (4, ["mesh.cp=2", "mesh.tp=2"])],
    "gpt2": [(1, ["train.microbatch_sequences=1"]), (4, ["mesh.pp=2", "mesh.cp=2"])],
    "mistral": [(1, []), (2, ["mesh.cp=2", "mesh.cp_method=all_gather"])],
    "qwen3_moe": [(1, []), (2, ["mesh.ep=2", "mesh.dp_shard=2"]), (4, ["mesh.ep=2", "mesh.tp=2", "mesh.dp_shard=2", "mesh.etp=1"])],
    "deepseek_v3": [(1, []), (4, ["mesh.pp=2", "mesh.dp_replicate=2"]), (4, TWO_LEVELS)],
    "gpt_oss": [(1, []), (4, ["mesh.cp=2", "mesh.tp=2"]), (4, ["mesh.pp=2", "mesh.tp=2", "mesh.etp=1"])],
    "gemma3": [(1, []), (4, ["mesh.pp=2", "mesh.tp=2"]), (4, TWO_LEVELS)],
    "ministral3": [(1, []), (4, ["mesh.cp=2", "mesh.tp=2"])],
    "qwen3_5": [(1, []), (2, ["mesh.cp=2"]), (4, ["mesh.pp=2", "mesh.cp=2", "mesh.cp_method=all_gather"]), (2, ["mesh.tp=2", "mesh.etp=1"])],
    "olmo3": [(1, []), (4, ["mesh.cp=2", "mesh.tp=2"])],
}


def compare(problem, ranks, layout):
    reference, name = rows_of(ROOT / f"verify/{problem}/scores.jsonl"), f"{problem} {ranks} {layout}"
    output = WORK / "scores.jsonl"
    output.unlink(missing_ok=True)
    more = ["train.microbatch_sequences=1"] if any("mesh.dp_" in s for s in layout) else []
    job("score", f"verify/{problem}/input.yaml", f"verify/{problem}/scores.jsonl", "--output", output, "--per-token",
          *sets(*layout, *more, "machine.workspace_mib=1"), ranks=ranks)
    rows = rows_of(output)
    expect(len(rows) == len(reference), f"{name}: {len(rows)} rows of {len(reference)}")
    for number, (row, wanted) in enumerate(zip(rows, reference), 1):
        each, total = row["log_likelihoods"], 0.0
        for value in each:
            total += value
        expect(len(each) == row["tokens"] == len(wanted["log_likelihoods"]), f"{name}, line {number}: {len(each)} tokens")
        expect(row["log_likelihood"] == total, f"{name}, line {number}: the sum isn't that of its tokens, in order")
        for a, b in zip(each, wanted["log_likelihoods"]):
            expect(near(a, b), f"{name}, line {number}: {a}, the reference {b}")
        expect(row["greedy"] == wanted["greedy"], f"{name}, line {number}: greedy {row['greedy']}")
        expect(row.get("left_out", 0) == wanted["left_out"], f"{name}, line {number}: left out {row.get('left_out')}")


for problem, layouts in LAYOUTS.items():
    for ranks, layout in layouts:
        compare(problem, ranks, layout)

# ---- the likeliest of all tokens: one, whichever rank has its logit

vocabulary = int(re.search(r"V (\d+)", job("show", "verify/llama/input.yaml")[0])[1])
every = WORK / "every.jsonl"
every.write_text("".join(json.dumps({"context": [c], "continuation": [t]}) + "\n" for c in range(2, vocabulary, 6) for t in range(vocabulary)))
for ranks, layout in ((1, []), (2, ["mesh.tp=2"])):
    output = WORK / f"every_{ranks}.jsonl"
    job("score", "verify/llama/input.yaml", every, "--output", output, *sets(*layout), ranks=ranks)
    rows, halves = rows_of(output), set()
    for at in range(0, len(rows), vocabulary):
        some = rows[at : at + vocabulary]
        likeliest = max(range(vocabulary), key=lambda t: some[t]["log_likelihood"])
        halves.add(2 * likeliest > vocabulary)
        expect([t for t, row in enumerate(some) if row["greedy"]] == [likeliest], f"on {ranks} ranks: greedy {[t for t, row in enumerate(some) if row['greedy']]}, likeliest {likeliest}")
    expect(len(halves) == 2, f"on {ranks} ranks: the likeliest tokens are all of one half")

# ---- the loss of forge evaluate: of samples' labels behind their first token

tokens = array("H", (ROOT / "verify/llama/tokens.bin").read_bytes())
samples = [tokens[i : i + 33].tolist() for i in range(0, len(tokens) - 32, 32)][:20]
questions = WORK / "samples.jsonl"
questions.write_text("".join(json.dumps({"context": s[:1], "continuation": s[1:]}) + "\n" for s in samples))
out, _ = job("evaluate", "verify/llama/input.yaml", *sets("data.validation_files=[verify/llama/tokens.bin]", f"train.validation_sequences={len(samples)}"))
loss = float(re.search(r"^loss (\S+) nats", out, re.M)[1])
job("score", "verify/llama/input.yaml", questions, "--output", WORK / "s.jsonl")
mean = -sum(row["log_likelihood"] for row in rows_of(WORK / "s.jsonl")) / sum(row["tokens"] for row in rows_of(WORK / "s.jsonl"))
expect(near(mean, loss), f"the scores' mean is {mean}, the loss of evaluate {loss}")

# ---- a kill, and what the next start keeps

lines = (ROOT / "verify/llama/scores.jsonl").read_text() * 40
many, whole, cut = WORK / "many.jsonl", WORK / "whole.jsonl", WORK / "cut.jsonl"
many.write_text(lines)
call = ["score", "verify/llama/input.yaml", many]
job(*call, "--output", whole)
job(*call, "--output", cut, code=None, fault="kill:0:3")
expect(not cut.exists(), "a killed run has an output")
kept = len(rows_of(WORK / "cut.jsonl.partial"))
expect(0 < kept < len(lines.splitlines()), f"a killed run has left {kept} rows")
out, _ = job(*call, "--output", cut)
expect(f"goes on behind {kept} rows" in out, f"no word of the {kept} rows: {out}")
expect(cut.read_bytes() == whole.read_bytes(), "the rows of two runs aren't those of one")
expect(sorted(p.name for p in WORK.glob("cut*")) == ["cut.jsonl"], f"left over: {sorted(p.name for p in WORK.glob('*cut*'))}")
cut.unlink()
job(*call, "--output", cut, code=None, fault="kill:0:3")
out, _ = job(*call, "--output", cut, "--initial", "--set", "model.load_weights=false")
expect("it begins anew" in out and "goes on behind" not in out, f"rows of another model are kept: {out}")
expect(len(rows_of(cut)) == len(rows_of(whole)) and cut.read_bytes() != whole.read_bytes(), "rows of another model")
cut.unlink()
job(*call, "--output", cut, code=None, fault="kill:0:3")
out, _ = job(*call, "--output", cut, "--set", "data.document_end_token=5")
expect("it begins anew" in out, f"rows of another end of documents are kept: {out}")
adapter = WORK / "adapter"
shutil.copytree(ROOT / "verify/lora/adapter", adapter)
adapted = ["score", "verify/lora/input.yaml", many, "--output", WORK / "adapted.jsonl", "--set", f"adapter.load={adapter}"]
job(*adapted, code=None, fault="kill:0:3")
tensors = adapter / "adapter_model.safetensors"
tensors.write_bytes(tensors.read_bytes()[:-4] + array("f", [0.5]).tobytes())
out, _ = job(*adapted)
expect("it begins anew" in out, f"rows of another adapter are kept: {out}")

# ---- standard input: batches, answered one by one

first, second = lines.splitlines()[:3], lines.splitlines()[3:9]
out, said = job("score", "verify/llama/input.yaml", "-", "--output", "-", "--set", "train.microbatch_sequences=1",
                  text="\n".join([*first, "", *second]) + "\n", ranks=2)
answers = [json.loads(row)["log_likelihood"] for row in out.splitlines()]
expect(len(answers) == 9 and all(near(a, row["log_likelihood"]) for a, row in zip(answers, rows_of(whole))), f"standard output: {out}")
expect("9 lines" in said, f"no count on standard error: {said}")
pipe = subprocess.Popen([FORGE, "score", "verify/llama/input.yaml", "-", "--output", "-"], cwd=ROOT, env=ENVIRONMENT, text=True,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
for batch in (first, second):
    pipe.stdin.write("".join(line + "\n" for line in batch) + "\n")
    pipe.stdin.flush()
    answers = [json.loads(pipe.stdout.readline()) for _ in batch]
    expect(all("log_likelihood" in answer for answer in answers), f"no answer to a batch: {answers}")
pipe.stdin.close()
expect(pipe.wait() == 0, "the end of standard input isn't the end of the run")

# ---- text: of bytes, whose ids are known

deck = WORK / "bytes.yaml"
deck.write_text(f"""model: {{layers: 2, width: 32, heads: 4, kv_heads: 2, ffn: 64, vocabulary: 257}}
train: {{steps: 4, global_batch_sequences: 1, sequence_tokens: 64, precision: fp64}}
optimizer: {{learning_rate: 1e-2, schedule: constant}}
data: {{files: [{WORK}/none.bin], dtype: uint16, document_end_token: 256}}
output: {{directory: {WORK}/run}}
machine: {{threads: 1, peak_tflops: 1}}
""")
questions.write_text("".join(json.dumps(line) + "\n" for line in [
    {"context": "It was  ", "continuation": "late."},
    {"context": list(b"It was"), "continuation": list(b"  late.")},
    {"context": "", "continuation": "é"},
    {"context": [256], "continuation": list("é".encode())},
    {"continuation": "é"},
]))
job("score", deck, questions, "--output", WORK / "s.jsonl", "--initial")
rows = rows_of(WORK / "s.jsonl")
expect(len(rows) == 5 and rows[0]["tokens"] == 7 and all(near(rows[i]["log_likelihood"], rows[j]["log_likelihood"]) for i, j in ((0, 1), (2, 3), (3, 4))),
      f"texts and their ids: {rows}")

# ---- lm-eval's class, on a stand-in for the package's base

asked = LM_EVAL + """
from lm_eval_forge import ForgeLM
model = ForgeLM.create_from_arg_obj({"deck": sys.argv[1], "command": sys.argv[2], "options": "--initial"})
request = lambda *args: types.SimpleNamespace(args=args)
print(model.loglikelihood([request("It was  ", "late."), request("", "\u00e9")]), model.loglikelihood_rolling([request("\u00e9")]))
model.scores.close()
"""
done = subprocess.run([sys.executable, "-c", asked, deck, FORGE], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
wanted = f"{[(rows[i]['log_likelihood'], rows[i]['greedy']) for i in (0, 2)]} {[rows[4]['log_likelihood']]}"
expect([float(n) for n in re.findall(r"-\d[^,)\]]*", done.stdout)] != [] and all(
    near(float(a), float(b)) for a, b in zip(re.findall(r"-\d[^,)\]]*", done.stdout), re.findall(r"-\d[^,)\]]*", wanted))),
    f"lm_eval_forge.py answers {done.stdout}{done.stderr}, not {wanted}")
done = subprocess.run([sys.executable, "-I", "-S", "verify/lm_eval_forge.py"], cwd=ROOT, capture_output=True, text=True)
expect(done.returncode == 1 and "needs lm-eval, which is not installed" in done.stderr, f"without lm-eval: {done.stderr}")

finish()
