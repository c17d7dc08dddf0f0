#!/usr/bin/env python3
"""generate.py FORGE: forge generate --prompts against references that share no code with it (verify/make_texts.py), greedy and sampled, on
layouts of one to eight ranks; stop texts and end tokens; rows that outlive a kill; standard input; lm-eval's generate_until."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from program import ENVIRONMENT, FORGE, LM_EVAL, ROOT, expect, finish, job, rows_of, sets

WORK = Path(tempfile.mkdtemp())


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ---- references, on layouts; --piece 1 and 8 and batches of one to eight texts

ONE = "train.microbatch_sequences=1"
LAYOUTS = {
    "llama": [(1, [], 8), (1, ["train.microbatch_sequences=8", "train.global_batch_sequences=8"], 1), (2, ["mesh.tp=2"], 3), (2, ["mesh.pp=2"], 8),
              (2, ["mesh.dp_shard=2", "train.zero_stage=3", ONE], 5), (8, ["mesh.dp_replicate=2", "mesh.pp=2", "mesh.tp=2", ONE], 2)],
    "gpt2": [(1, [ONE], 8), (4, ["mesh.pp=2", "mesh.dp_replicate=2", ONE], 4)],
    "mistral": [(1, [], 8), (2, ["mesh.tp=2"], 1)],
    "qwen3_moe": [(1, [], 8), (2, ["mesh.ep=2", "mesh.dp_shard=2"], 3), (4, ["mesh.ep=2", "mesh.tp=2", "mesh.dp_shard=2", "mesh.etp=1"], 8)],
    "deepseek_v3": [(1, [], 8), (4, ["mesh.pp=2", "mesh.dp_replicate=2", ONE], 4)],
    "gpt_oss": [(1, [], 8), (4, ["mesh.pp=2", "mesh.tp=2", ONE], 2)],
    "gemma3": [(1, [], 8), (4, ["mesh.pp=2", "mesh.tp=2", ONE], 2)],
    "ministral3": [(1, [], 8), (2, ["mesh.tp=2"], 2)],
    "qwen3_5": [(1, [], 76), (1, ["train.microbatch_sequences=8", "train.global_batch_sequences=8"], 1), (2, ["mesh.tp=2", "mesh.etp=1"], 3), (2, ["mesh.pp=2"], 8),
                (4, ["mesh.pp=2", "mesh.tp=2", "mesh.etp=1", ONE], 2)],
    "olmo3": [(1, [], 8), (2, ["mesh.tp=2"], 3), (4, ["mesh.pp=2", "mesh.tp=2", ONE], 1)],
}


def compare(problem, ranks, layout, piece):
    reference, name = rows_of(ROOT / f"verify/{problem}/texts.jsonl"), f"{problem} {ranks} {layout} {piece}"
    output = WORK / "texts.jsonl"
    output.unlink(missing_ok=True)
    job("generate", f"verify/{problem}/input.yaml", "--prompts", f"verify/{problem}/texts.jsonl", "--output", output, "--piece", piece,
          "--ignore-end", *sets(*layout, "machine.workspace_mib=1"), ranks=ranks)
    rows = rows_of(output)
    expect(len(rows) == len(reference), f"{name}: {len(rows)} rows of {len(reference)}")
    for number, (row, wanted) in enumerate(zip(rows, reference), 1):
        expect(row["ids"] == wanted["ids"], f"{name}, line {number}: {row['ids']}, the reference {wanted['ids']}")
        expect(row["end"] == "length" and row.get("left_out", 0) == wanted["left_out"], f"{name}, line {number}: {row}")


for problem, layouts in LAYOUTS.items():
    for ranks, layout, piece in layouts:
        compare(problem, ranks, layout, piece)

# ---- draws by sample: of one prompt and one seed other texts; line 1 is that of --prompt

same = write(WORK / "same.jsonl", [{"prompt": [3, 1, 4]}] * 7)
call = ["generate", "verify/llama/input.yaml", "--prompts", same, "--length", "8", "--temperature", "1", "--ignore-end"]
job(*call, "--output", WORK / "one.jsonl")
job(*call, "--output", WORK / "many.jsonl", *sets("mesh.dp_shard=2", "mesh.pp=2", ONE), ranks=4)
one, many = (rows_of(WORK / name) for name in ("one.jsonl", "many.jsonl"))
expect(one == many, f"draws depend on the layout: {one}, {many}")
expect(len({tuple(row["ids"]) for row in one}) == 7, f"two samples have one key: {one}")
out, _ = job("generate", "verify/llama/input.yaml", "--tokens", "3,1,4", "--length", "8", "--temperature", "1", "--ignore-end")
expect([int(i) for i in out.strip().split(",")] == one[0]["ids"], f"--tokens draws {out}, line 1 {one[0]}")

# ---- text of bytes: stops, end tokens, on any layout

deck = WORK / "bytes.yaml"
deck.write_text(f"""model: {{layers: 2, width: 32, heads: 4, kv_heads: 2, ffn: 64, vocabulary: 257, initial_std: 0.2}}
train: {{steps: 4, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 64, precision: fp64}}
optimizer: {{learning_rate: 1e-2, schedule: constant}}
data: {{files: [{WORK}/none.bin], dtype: uint16, document_end_token: 256}}
output: {{directory: {WORK}/run}}
machine: {{threads: 1, peak_tflops: 1, workspace_mib: 1}}
""")
LINES = [{"prompt": f"text {i}", "seed": i} for i in range(8)]
call = ["generate", deck, "--initial", "--length", "40", "--temperature", "1.5"]


def texts(name, lines, *more, ranks=1):
    job(*call, "--prompts", write(WORK / f"{name}.jsonl", lines), "--output", WORK / f"{name}.rows", *more, ranks=ranks)
    return rows_of(WORK / f"{name}.rows")


whole = texts("whole", LINES, "--ignore-end")
expect(all(len(row["ids"]) == 40 and row["end"] == "length" for row in whole), f"without an end: {whole}")
expect(all(row["text"] == bytes(i for i in row["ids"] if i < 256).decode(errors="replace") for row in whole), "ids and text differ")
ended = texts("ended", LINES)
for row, all_of_it in zip(ended, whole):
    at = all_of_it["ids"].index(256) + 1 if 256 in all_of_it["ids"] else 40
    expect(row["ids"] == all_of_it["ids"][:at] and row["end"] == ("token" if 256 in all_of_it["ids"] else "length"), f"an end token: {row}, {all_of_it}")
# Each line's own stop, two bytes of its text, of which the second is the 9th token; and one that never comes.
stops = [next(t for t in (row["text"][at : at + 2] for at in range(4, 30)) if t.isascii() and row["text"].count(t) == 1) for row in whole]
asked = [{**line, "stop": [stop, "never there"] if i % 2 else stop} for i, (line, stop) in enumerate(zip(LINES, stops))]
for ranks, layout in ((1, []), (2, ["mesh.tp=2"]), (2, ["mesh.dp_shard=2"]), (4, ["mesh.pp=2", "mesh.dp_replicate=2"])):
    rows = texts(f"stopped{ranks}{len(layout)}", asked, "--ignore-end", *sets(*layout), ranks=ranks)
    for row, all_of_it, stop in zip(rows, whole, stops):
        wanted = all_of_it["text"][: all_of_it["text"].index(stop)]
        expect(row["text"] == wanted and row["end"] == "stop" and row["stop"] == stop, f"on {ranks} ranks {row}, not {wanted!r} before {stop!r}")
        expect(len(row["ids"]) < 40, f"a text goes on behind its stop: {row}")

# ---- a kill, and what the next start keeps

many = write(WORK / "lines.jsonl", [{"prompt": f"text {i}", "length": 3 + i % 7} for i in range(40)])
of_many = ["generate", deck, "--initial", "--prompts", many]
job(*of_many, "--output", WORK / "w.jsonl")
job(*of_many, "--output", WORK / "cut.jsonl", code=None, fault="kill:0:60")
expect(not (WORK / "cut.jsonl").exists(), "a killed run has an output")
kept = len(rows_of(WORK / "cut.jsonl.partial"))
expect(0 < kept < 40, f"a killed run has left {kept} rows")
out, _ = job(*of_many, "--output", WORK / "cut.jsonl", *sets("mesh.tp=2"), ranks=2)
expect(f"goes on behind {kept} rows" in out, f"no word of the {kept} rows: {out}")
expect((WORK / "cut.jsonl").read_bytes() == (WORK / "w.jsonl").read_bytes(), "the rows of two runs aren't those of one")
expect(sorted(p.name for p in WORK.glob("cut*")) == ["cut.jsonl"], "something is left over")

# ---- standard input: batches, answered one by one; their lines are numbered through

lines = [json.dumps(line) for line in ({"prompt": f"text {i}", "length": 3 + i % 7} for i in range(9))]
out, said = job(*of_many[:4], "-", "--output", "-", text="\n".join([*lines[:3], "", *lines[3:]]) + "\n", ranks=2, *sets("mesh.dp_shard=2"))
expect([json.loads(row) for row in out.splitlines()] == rows_of(WORK / "w.jsonl")[:9], f"standard output: {out}")
expect("9 texts" in said, f"no count on standard error: {said}")

# ---- lm-eval's class, on a stand-in for the package's base

asked = LM_EVAL + """
from lm_eval_forge import ForgeLM
model = ForgeLM.create_from_arg_obj({"deck": sys.argv[1], "command": sys.argv[2], "options": sys.argv[3]})
request = lambda *args: types.SimpleNamespace(args=args)
print(repr(model.generate_until([request("text 0", {"until": [sys.argv[4]], "max_gen_toks": 40, "do_sample": True, "temperature": 1.5}),
                                 request("text 1", {"until": ["never there"], "max_gen_toks": 4, "do_sample": False})])))
print(model.loglikelihood([request("text", " 1")])[0][0] < 0, len(model.generate_until([request("text", {"max_gen_toks": 2})])[0]) <= 8)
model.close()
"""
greedy = texts("greedy", [{"prompt": "text 1", "length": 4, "temperature": 0}])
stop = whole[0]["text"][5:7] if whole[0]["text"][5:7].isascii() else stops[0]
wanted = [whole[0]["text"][: whole[0]["text"].index(stop)] if 256 not in whole[0]["ids"][:9] else ended[0]["text"], greedy[0]["text"]]
for options in ("--initial", "--initial --ranks 2 --set mesh.tp=2"):
    done = subprocess.run([sys.executable, "-c", asked, deck, FORGE, options, stop], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    expect(done.stdout == f"{wanted!r}\nTrue True\n", f"lm_eval_forge.py {options} answers {done.stdout}{done.stderr}, not {wanted}")

finish()
