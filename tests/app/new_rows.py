#!/usr/bin/env python3
"""new_rows.py FORGE: a model is written, its vocabulary made larger by model.new_rows, and trained on: the losses of one rank on any layout, also
behind a restart on another one; the written model has the rows, and is a model like others."""
import json
import os
import struct
import tempfile
from pathlib import Path

from program import expect, finish, has_thread_ranks, job, sets

T, G, STEPS, OLD, NEW = 24, 12, 10, 50, 77
DECK = f"""model: {{MODEL}}
train: {{steps: {STEPS}, global_batch_sequences: {G}, microbatch_sequences: 1, sequence_tokens: {T}, precision: fp64}}
optimizer: {{learning_rate: 1e-2, schedule: constant}}
data: {{files: [WORK/NAME.bin], dtype: uint16}}
output: {{directory: WORK/run, every_steps: 1}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1}}
"""
LAYOUTS = {"tp 2": (2, ["mesh.tp=2"]), "tp 3": (3, ["mesh.tp=3"]), "tp 4": (4, ["mesh.tp=4"]),
           "pp 2, tp 2, zero 3": (8, ["mesh.pp=2", "mesh.dp_shard=2", "mesh.tp=2", "train.zero_stage=3"]),
           "cp 2, zero 1": (4, ["mesh.cp=2", "mesh.dp_shard=2", "train.zero_stage=1"])}
work = ""


def deck(name, model, tokens):
    Path(name).write_text(DECK.replace("MODEL", model).replace("WORK", work).replace("NAME", tokens))
    return f"{work}/{name}"


def losses(path, name, *settings, ranks=1):
    words = [f"output.directory={work}/{name}", *settings]
    job(path, *sets(*words), ranks=ranks)
    lines = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: (line["loss"], line["grad_norm"]) for line in lines if "loss" in line}


def compare(name, ours, reference):
    expect(sorted(ours) == sorted(reference), f"{name}: steps {sorted(ours)}")
    for step in ours:
        for a, b in zip(ours[step], reference[step]):
            expect(abs(a - b) <= 1e-10 * abs(b), f"{name}: step {step} has {ours[step]}, one rank has {reference[step]}")


def tables(directory):
    """The tables of a directory in F32, by name: rows of numbers."""
    raw = Path(directory, "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, info in json.loads(raw[8 : 8 + size]).items():
        if name not in ("model.embed_tokens.weight", "lm_head.weight"):
            continue
        rows, columns = info["shape"]
        begin, end = info["data_offsets"]
        values = struct.unpack(f"<{rows * columns}f", raw[8 + size + begin : 8 + size + end])
        found[name] = [values[r * columns : (r + 1) * columns] for r in range(rows)]
    return found


def check_rows(base, written):
    """No step has moved the rows by more than its rate: those behind the base's are the means of its columns."""
    for name, rows in tables(base).items():
        ours = tables(written)[name]
        expect((len(rows), len(ours)) == (OLD, NEW), f"{name}: {len(ours)} rows")
        for c in range(len(rows[0])):
            mean = sum(row[c] for row in rows) / OLD
            for row in ours[OLD:]:
                expect(abs(row[c] - mean) <= 1e-6, f"{name}: column {c} has {row[c]}, the mean is {mean}")


def check(tied):
    kind = "tied" if tied else "untied"
    base = f"{work}/{kind}"
    small = deck(f"{kind}.yaml", f"layers: 2, width: 24, heads: 12, ffn: 24, vocabulary: {OLD}, tied_embeddings: {str(tied).lower()}", "old")
    job(small, *sets("train.steps=2", f"output.directory={base}.run", "output.save_hf=true", "train.precision=fp32",
                     f"checkpoint.directory={base}.saved"))
    os.rename(f"{base}.run/hf", base)
    for way in ("mean", "noise"):
        large = deck(f"{kind}_{way}.yaml", f"hf: {base}, vocabulary: {NEW}, new_rows: {way}", "new")
        name = f"{kind}_{way}"
        reference = losses(large, f"{name}_one", f"checkpoint.directory={work}/{name}_saved", "checkpoint.every_steps=4",
                           "checkpoint.keep_last=100")
        if not has_thread_ranks():
            continue
        for layout, (ranks, words) in LAYOUTS.items():
            compare(f"{name}, {layout}", losses(large, f"{name}_{ranks}_{len(words)}", *words, ranks=ranks), reference)
        # Behind a restart nothing is extended again.
        again = f"checkpoint.directory={work}/{name}_again"
        losses(large, f"{name}_again", again, "train.steps=4", "mesh.tp=3", ranks=3)
        compare(f"{name}, restarted", losses(large, f"{name}_again", again, "checkpoint.resume=auto", "mesh.tp=2", ranks=2), reference)
    still = losses(large.replace("noise", "mean"), f"{kind}_still", "train.steps=1", "optimizer.learning_rate=1e-9", "output.save_hf=true",
                   "train.precision=fp32", f"checkpoint.directory={work}/{kind}_still_saved")
    expect(list(still) == [1], f"{still}")
    config = json.loads(Path(f"{kind}_still/hf/config.json").read_text())
    expect(config["vocab_size"] == NEW, f"config.json has {config['vocab_size']} ids")
    check_rows(base, f"{kind}_still/hf")
    # The written model goes on as its checkpoint does: by the deck, and without deck and base.
    tokens = ["--tokens", f"3,5,{NEW - 1}", "--length", "6", "--temperature", "0"]
    saved = f"{work}/{kind}_still_saved"
    by_deck = job("generate", large.replace("noise", "mean"), "--checkpoint", saved, *sets("train.precision=fp32"), *tokens)[0]
    os.rename(base, f"{base}_moved")
    texts = [job("generate", place, *tokens)[0] for place in (saved, f"{work}/{kind}_still/hf")]
    expect(texts == [by_deck, by_deck] and by_deck, f"other texts: {by_deck} {texts}")


def main():
    global work
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        count = (STEPS + 2) * G * T + 1
        for name, ids in (("old", OLD), ("new", NEW)):
            Path(f"{name}.bin").write_bytes(struct.pack(f"<{count}H", *[(at * at // 7 + at % 5) % ids for at in range(count)]))
        for tied in (False, True):
            check(tied)
        os.chdir("/")
    finish()


main()
