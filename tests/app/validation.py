#!/usr/bin/env python3
"""validation.py FORGE: several held-out sets. Their losses are those of runs with one set each, on any layout and behind a restart; bits per
byte are this file's own count; what validates changes nothing of the training."""
import json
import math
import os
import struct
import tempfile
import time
from pathlib import Path

from program import expect, finish, said, sets

END, T = 256, 16
DECK = """model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 257}
train: {steps: 4, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 16, precision: fp64, validate_every_steps: 2}
optimizer: {learning_rate: 1e-2, schedule: constant, warmup_steps: 1}
data: {files: [tokens.bin], dtype: uint16, document_end_token: 256}
output: {directory: run, every_steps: 1}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
"""
SETS = "data.validation=[{name: long, files: [long.bin], sequences: 0}, {name: short, files: [short.bin], mask_files: [mask.npy]}]"
ALONE = {
    "long": ["data.validation_files=[long.bin]", "train.validation_sequences=0"],
    "short": ["data.validation_files=[short.bin]", "data.validation_mask_files=[mask.npy]", "train.validation_sequences=3"],
}


def metrics(folder="run"):
    return [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


def validations(lines):
    """{(set, step): line}; set "": without a name."""
    found = {}
    for line in lines:
        if "loss" not in line:
            key = (line.get("set", ""), line["step"])
            expect(key not in found, f"{key} has two lines")
            found[key] = line
    return found


def losses(lines):
    return [line["loss"] for line in lines if "loss" in line]


def write_tokens(name, ids):
    Path(name).write_bytes(struct.pack(f"<{len(ids)}H", *ids))


def text_of(source, documents, length):
    ids = []
    for i in range(documents):
        ids += [*source[i * 97 : i * 97 + length + i % 7], END]
    return ids


def write_mask(name, mask):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(mask)},), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    Path(name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(mask))


def labels_and_bytes(ids, mask, sequences):
    """Of the first sequences, all of 0: labels are the tokens that follow, but behind an end of document and where the mask has 0."""
    count = bytes_of_text = 0
    for sample in range(sequences or (len(ids) - 1) // T):
        for at in range(sample * T, sample * T + T):
            if ids[at] != END and mask[at + 1]:
                count += 1
                bytes_of_text += ids[at + 1] != END
    return count, bytes_of_text


def near(a, b, share=1e-10):
    return abs(a - b) <= share * abs(b)


def check_one_set_each(optimizer):
    said("deck.yaml", *sets(SETS, *optimizer))
    both, found = metrics(), validations(metrics())
    expect(sorted(found) == [(name, step) for name in ALONE for step in (0, 2, 4)], f"other validations: {sorted(found)}")
    for name, options in ALONE.items():
        said("deck.yaml", *sets(*optimizer, *options))
        alone = validations(metrics())
        expect(sorted(alone) == [("", 2), ("", 4)], f"{name} alone has {sorted(alone)}")
        expect(losses(metrics()) == losses(both), f"validations change the training with {optimizer}")
        for step in (2, 4):
            expect(found[name, step]["validation_loss"] == alone["", step]["validation_loss"], f"{name} has another loss alone, {optimizer}")
        expect("validation_bits_per_byte" not in alone["", 2] and "set" not in alone["", 2], f"{name} alone has keys of sets")
    return found


def check_bits(found, texts):
    for (name, step), line in found.items():
        labels, size = labels_and_bytes(*texts[name])
        expect(line["validation_labels"] == labels, f"{name} has {line['validation_labels']} labels, not {labels}")
        bits = line["validation_loss"] * labels / math.log(2) / size
        expect(near(line["validation_bits_per_byte"], bits), f"{name}, step {step}: {line}, not {bits} bits per byte")
        expect(near(line["validation_perplexity"], math.exp(line["validation_loss"])), f"perplexity of {line}")


def check_evaluate(found, step, *words):
    text = said("evaluate", "deck.yaml", *words, *sets(SETS)).splitlines()
    for name in ALONE:
        at = next((i for i, line in enumerate(text) if line.startswith(f"{name}, ")), None)
        expect(at is not None, f"evaluate has no set {name}: {text}")
        if at is None:
            continue
        line = found[name, step]
        expect(text[at].endswith(f", {line['validation_labels']} labels"), f"{text[at]} of {line}")
        expect(near(float(text[at + 1].split()[1]), line["validation_loss"]), f"{name}: {text[at + 1]}, not {line}")
        expect(near(float(text[at + 3].split()[3]), line["validation_bits_per_byte"], 1e-8), f"{name}: {text[at + 3]}, not {line}")


def check_layouts(found):
    for options in (["train.zero_stage=3"], ["mesh.tp=2"], ["mesh.pp=2"], ["mesh.cp=2"]):
        said("deck.yaml", "--ranks", "2", *sets(SETS, *options))
        for key, line in validations(metrics()).items():
            expect(near(line["validation_loss"], found[key]["validation_loss"], 1e-9), f"{options}: {line}, not {found[key]}")
            expect(line["validation_labels"] == found[key]["validation_labels"], f"{options}: other labels")
            expect(near(line["validation_bits_per_byte"], found[key]["validation_bits_per_byte"], 1e-9), f"{options}: other bits")


def check_restart(found):
    saved = sets(SETS, "checkpoint.directory=saved", "checkpoint.every_steps=2")
    said("deck.yaml", *saved, *sets("train.steps=3"))
    text = said("deck.yaml", *saved, "--restart", "saved/step_00000002")
    expect("validation long" in text, f"the log has no validation of a set: {text}")
    again = validations(metrics())
    expect(sorted(again) == sorted(found), f"a restart has {sorted(again)}")
    for key, line in again.items():
        expect(line["validation_loss"] == found[key]["validation_loss"], f"behind a restart {line}, not {found[key]}")
    check_evaluate(found, 4, "--checkpoint", "saved")


def check_leaving():
    """Time is short before the first step: the job leaves from the validation there, and the next one starts anew."""
    end = str(int(time.time()) + 30)
    limited = sets(SETS, "checkpoint.directory=left", "checkpoint.end_margin_seconds=60")
    text = said("deck.yaml", *limited, code=75, SLURM_JOB_END_TIME=end)
    for words in ("validation broken off behind 1 of ", "left before step 1: the job's time limit is near"):
        expect(words in text, f"'{words}' isn't said: {text}")
    expect("total_loss" not in Path("run/metrics.jsonl").read_text(), "a step ran")


def main():
    with tempfile.TemporaryDirectory() as work:
        source = Path("docs/data.md").read_bytes()
        os.chdir(work)
        Path("deck.yaml").write_text(DECK)
        write_tokens("tokens.bin", text_of(source, 40, 50))
        long, short = text_of(source[5000:], 5, 40), text_of(source[9000:], 3, 21)
        mask = [int(i % 5 != 2) for i in range(len(short))]
        write_tokens("long.bin", long)
        write_tokens("short.bin", short)
        write_mask("mask.npy", mask)
        few = ["train.validation_sequences=3"]
        found = check_one_set_each(few)
        check_bits(found, {"long": (long, [1] * len(long), 0), "short": (short, mask, 3)})
        Path("deck.yaml").write_text(DECK.replace("train: {", "train: {validation_sequences: 3, "))
        check_evaluate(found, 0, "--initial")
        check_layouts(found)
        check_restart(found)
        check_leaving()
        check_one_set_each(["optimizer.name=schedule_free"])
        said("deck.yaml", *sets(SETS, "train.precision=fp8", "train.fp8_recipe=delayed", "model.ffn=32"))
        expect(("long", 0) not in validations(metrics()), "delayed scales have no step 0")
    finish()


if __name__ == "__main__":
    main()
