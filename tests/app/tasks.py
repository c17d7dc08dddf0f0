#!/usr/bin/env python3
"""tasks.py FORGE: data.tasks. Accuracies are those that forge score's log-likelihoods give, the same on any layout and with documents in the
training; they change nothing of it. The script that prepares a file makes the ids of context and choice together."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from program import FORGE, ROOT, expect, finish, has_thread_ranks, job, rows_of, said, sets

T, V = 16, 64
DECK = """model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 64}
train: {steps: 4, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 16, precision: fp64, validate_every_steps: 2}
optimizer: {learning_rate: 3e-2, schedule: constant}
data: {files: [WORK/a.bin], dtype: uint16, tasks: [WORK/first.jsonl, WORK/second.jsonl]}
output: {directory: WORK/run, every_steps: 1}
checkpoint: {directory: WORK/saved}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
"""
LAYOUTS = {"tp 2": (2, ["mesh.tp=2"]), "cp 2": (2, ["mesh.cp=2"]), "pp 2, dp 2": (4, ["mesh.pp=2", "mesh.dp_shard=2", "train.zero_stage=1"]),
           "zero 3, tp 2": (4, ["mesh.tp=2", "mesh.dp_shard=2", "train.zero_stage=3"])}
DOCUMENTS = ["data.document_end_token=0", "data.positions=document"]
work = ""


def questions(seed, count, most):
    draw = random.Random(seed)
    ids = lambda n: [draw.randrange(V) for _ in range(n)]
    rows = []
    for _ in range(count):
        choices = [ids(draw.randint(1, 4)) for _ in range(draw.randint(2, 5))]
        rows.append({"context": ids(draw.randint(1, most)), "choices": choices, "characters": [draw.randint(1, 9) for _ in choices],
                     "answer": draw.randrange(len(choices))})
    return rows


def train(name, *settings, ranks=1):
    """(losses by step, {(task, step): (accuracy, normalised, questions)})."""
    words = [f"output.directory={work}/{name}", f"checkpoint.directory={work}/{name}_saved", *settings]
    job(f"{work}/deck.yaml", *sets(*words), ranks=ranks)
    lines = rows_of(Path(name, "metrics.jsonl"))
    tasks = {(line["set"], line["step"]): (line["validation_accuracy"], line["validation_accuracy_normalised"], line["validation_questions"])
             for line in lines if "validation_accuracy" in line}
    return {line["step"]: line["loss"] for line in lines if "loss" in line}, tasks


def by_score(name, rows):
    """The accuracies from forge score."""
    lines = [{"context": row["context"][-(T + 1 - len(choice)):], "continuation": choice} for row in rows for choice in row["choices"]]
    Path("lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job("score", f"{work}/deck.yaml", f"{work}/lines.jsonl", "--checkpoint", f"{work}/{name}_saved", "--output", f"{work}/scores.jsonl")
    scores = iter([row["log_likelihood"] for row in rows_of(Path("scores.jsonl"))])
    Path("scores.jsonl").unlink()
    right = [0, 0]
    for row in rows:
        own = [next(scores) for _ in row["choices"]]
        shares = [score / length for score, length in zip(own, row["characters"])]
        right[0] += own.index(max(own)) == row["answer"]
        right[1] += shares.index(max(shares)) == row["answer"]
    return right[0] / len(rows), right[1] / len(rows), len(rows)


def check_training():
    rows = {"first": questions(1, 60, 9), "second": questions(2, 25, 30)}
    for name, own in rows.items():
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    losses, tasks = train("one")
    expect(sorted(tasks) == [(name, step) for name in ("first", "second") for step in (0, 2, 4)], f"{sorted(tasks)}")
    for name, own in rows.items():
        expect(by_score("one", own) == tasks[name, 4], f"{name}: {tasks[name, 4]}, forge score gives {by_score('one', own)}")
    plain, none = train("plain", "data.tasks=[]", "train.validate_every_steps=0")
    expect(plain == losses and not none, f"tasks change the training: {losses} {plain}")
    expect(len({tasks[key] for key in tasks}) > 2, f"accuracies don't move: {tasks}")
    packed_losses, packed = train("packed", *DOCUMENTS)
    expect(packed[("first", 0)] == tasks[("first", 0)], f"with documents {packed[('first', 0)]}, without {tasks[('first', 0)]}")
    expect(len(packed_losses) == 4, "no losses with documents")
    for layout, (ranks, words) in LAYOUTS.items() if has_thread_ranks() else ():
        expect(train(f"many_{ranks}_{len(words)}_{words[0][5]}", *words, ranks=ranks)[1] == tasks, f"{layout}: other accuracies")
        again = train(f"docs_{ranks}_{len(words)}_{words[0][5]}", *words, *DOCUMENTS, ranks=ranks)[1]
        expect(again == packed, f"{layout}: other accuracies with documents")
    log = Path("one/log.txt").read_text()
    expect("task first accuracy " in log and "of 60 questions" in log, "log.txt doesn't say the task")
    said("report", f"{work}/one", "--output", f"{work}/page.html")
    expect("accuracy of tasks" in Path("page.html").read_text(), "the report has no accuracies")


def check_refusals():
    refused = lambda *words: said(f"{work}/deck.yaml", *sets(f"output.directory={work}/no", "checkpoint.directory=none", *words), code=2)
    row = {"context": [1], "choices": [[2], [3]], "characters": [1, 1], "answer": 0}
    for change, text in (({"context": []}, "context has no ids"), ({"answer": 2}, "answer is no number of a choice"),
                         ({"choices": [[2], [64]]}, "choices has 64; legal: ids from 0 to 63"), ({"characters": [1]}, "2 choices and 1 characters"),
                         ({"choices": [[2], [3] * 17]}, "a choice has 17 tokens; legal: at most train.sequence_tokens = 16")):
        Path("bad.jsonl").write_text(json.dumps(row) + "\n\n" + json.dumps({**row, **change}) + "\n")
        output = refused(f"data.tasks=[{work}/bad.jsonl]")
        expect("bad.jsonl, line 3: " in output and text in output, f"{change}: {output}")
    Path("empty.jsonl").write_text("\n")
    expect("empty.jsonl has no questions" in refused(f"data.tasks=[{work}/empty.jsonl]"), "an empty file")
    expect("data.tasks with train.validate_every_steps = 0" in refused("train.validate_every_steps=0"), "no validations")
    expect("is called 'first'" in refused(f"data.tasks=[{work}/first.jsonl, {work}/b/first.jsonl]"), "two of one name")


def prepared(*words, code=0):
    done = subprocess.run([sys.executable, f"{ROOT}/jobscripts/prepare_tasks.py", *words, "--forge", FORGE], capture_output=True, text=True)
    expect(done.returncode == code, f"{words}: code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check_script():
    lines = [{"question": "How so?", "choices": ["this", "that"], "answer": "B"}, {"context": "a b ", "choices": [" c", "the d"], "answer": " c"}]
    Path("q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tokenizer = f"{ROOT}/tests/tokenizer/data/gpt2"
    expect("2 questions" in prepared(tokenizer, "q.jsonl", "--output", "t.jsonl"), "it says nothing")
    Path("whole.txt").write_text("Question: How so?\nAnswer: that")
    said("tokenize", "whole.txt", "--tokenizer", tokenizer, "--output", "whole.bin")
    raw = Path("whole.bin").read_bytes()
    rows = rows_of(Path("t.jsonl"))
    expect(rows[0]["context"] + rows[0]["choices"][1] == list(struct.unpack(f"<{len(raw) // 2}H", raw)), f"other ids: {rows[0]}")
    expect([row["answer"] for row in rows] == [1, 0] and rows[1]["characters"] == [1, 5], f"{rows}")
    expect("begins a document" in prepared(tokenizer, "q.jsonl", "--output", "u.jsonl", "--begin", code=2), "no begin is refused")
    Path("q.jsonl").write_text('{"question": "q", "choices": ["a", "b"], "answer": "C"}\n')
    expect("q.jsonl, line 1: answer" in prepared(tokenizer, "q.jsonl", "--output", "u.jsonl", code=2), "a wrong answer is refused")
    expect(not Path("u.jsonl").exists() and not Path("u.jsonl.partial").exists(), "a failure leaves something")


def main():
    global work
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        Path("deck.yaml").write_text(DECK.replace("WORK", work))
        ids = [(at * at // 3 + at % 7) % V for at in range(40 * T)]
        Path("a.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        check_training()
        check_refusals()
        check_script()
        os.chdir("/")
    finish()


main()
