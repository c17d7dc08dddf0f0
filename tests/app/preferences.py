#!/usr/bin/env python3
"""preferences.py FORGE: preference.name = dpo. The start makes the reference's log-probabilities once; losses, margins and validations are the
same on any layout and behind a restart on another one; what doesn't go together is refused."""
import json
import math
import os
import random
import struct
import tempfile
from pathlib import Path

from program import expect, finish, job, sets

T, STEPS, PAIRS, HELD_OUT = 32, 8, 22, 6
DECK = f"""model: {{layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 64, initial_std: 0.2}}
train: {{steps: {STEPS}, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: {T}, precision: fp64, validate_every_steps: 4}}
preference: {{name: dpo, beta: 0.5}}
optimizer: {{learning_rate: 1e-2, schedule: constant}}
data: {{document_ends: index, packing: pairs, positions: document, order: shuffled}}
output: {{every_steps: 1}}
checkpoint: {{every_steps: 4, keep_last: 100}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1}}
"""
LAYOUTS = {1: ["train.microbatch_sequences=2"], 2: ["mesh.cp=2"], 3: ["mesh.pp=2", "mesh.dp_shard=1"], 4: ["mesh.tp=2", "mesh.dp_shard=2", "train.zero_stage=3"]}
RANKS = {1: 1, 2: 2, 3: 2, 4: 4}


def npy(values):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(values)},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(values)


def write_pairs(stem, pairs, key, lengths=(4, T // 2)):
    """A prompt, which is no label, and two answers to it."""
    draw = random.Random(key)
    texts = []
    for _ in range(pairs):
        prompt = [draw.randrange(64) for _ in range(draw.randint(1, 3))]
        texts += [(prompt, [draw.randrange(64) for _ in range(draw.randint(lengths[0], lengths[1]) - len(prompt))]) for _ in range(2)]
    ids = [i for prompt, answer in texts for i in prompt + answer]
    Path(f"{stem}.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    Path(f"{stem}.mask.npy").write_bytes(npy([m for prompt, answer in texts for m in [0] * len(prompt) + [1] * len(answer)]))
    sizes = [len(prompt + answer) for prompt, answer in texts]
    starts = [2 * sum(sizes[:i]) for i in range(len(sizes))]
    n = len(sizes)
    Path(f"{stem}.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, n, n + 1) + struct.pack(f"<{n}i", *sizes) +
                                    struct.pack(f"<{n}q", *starts) + struct.pack(f"<{n + 1}q", *range(n + 1)))


def words(name, data="pairs", held_out="held_out"):
    here = os.getcwd()
    return [f"output.directory={here}/{name}.run", f"checkpoint.directory={here}/{name}.saved", "checkpoint.resume=auto",
            f"data.files=[{here}/{data}.bin]", f"data.mask_files=[{here}/{data}.mask.npy]",
            f"data.validation_files=[{here}/{held_out}.bin]", f"data.validation_mask_files=[{here}/{held_out}.mask.npy]"]


def train(name, *settings, layout=1, code=0, **data):
    out, err = job(f"{os.getcwd()}/deck.yaml", *sets(*words(name, **data), *LAYOUTS[layout], *settings), ranks=RANKS[layout], code=code)
    metrics = Path(f"{name}.run", "metrics.jsonl")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    return lines, out + err


def figures(lines):
    steps = {line["step"]: [line[key] for key in ("loss", "reward_margin", "reward_accuracy", "grad_norm")] for line in lines if "loss" in line}
    held_out = {line["step"]: [line[f"validation_{key}"] for key in ("loss", "reward_margin", "reward_accuracy", "labels")] for line in lines if "loss" not in line}
    return steps, held_out


def expect_same(name, lines, wanted):
    for found, other in zip(figures(lines), figures(wanted)):
        expect(found.keys() == other.keys(), f"{name}: steps {list(found)}, not {list(other)}")
        for step in found.keys() & other.keys():
            near = all(abs(a - b) <= 1e-10 * max(abs(b), 1e-3) for a, b in zip(found[step], other[step]))
            expect(near, f"{name}: step {step} has {found[step]}, not {other[step]}")


def check_training():
    one, log = train("one")
    steps, held_out = figures(one)
    expect(abs(steps[1][0] - math.log(2)) < 1e-12 and abs(steps[1][1]) < 1e-12, f"step 1: {steps[1]}")
    expect(steps[STEPS][0] < steps[1][0] and steps[STEPS][1] > 0, f"no margin is learned: {steps}")
    expect(set(held_out) == {4, STEPS} and held_out[4][3] == HELD_OUT and "validation_perplexity" not in str(one), f"validation: {held_out}")
    expect("pairs: margin" in log and f"of {HELD_OUT} pairs" in log, f"log: {log}")
    expect(f"log-probabilities of {2 * (PAIRS + HELD_OUT)} texts, of which 0 were there" in log, f"log: {log}")
    file = Path("one.run/reference.logp").read_bytes()
    expect(len(file) == 32 + 8 * 2 * (PAIRS + HELD_OUT) + 8, f"{len(file)} bytes")
    for layout in LAYOUTS:
        name = f"layout{layout}"
        lines, _ = train(name, "train.steps=4", layout=layout)
        other = Path(f"{name}.run/reference.logp").read_bytes()
        expect(other[:32] == file[:32], f"{name}: other keys of data and weights")
        values = [struct.unpack(f"<{2 * (PAIRS + HELD_OUT)}d", text[32:-8]) for text in (other, file)]
        expect(all(abs(a - b) < 1e-10 for a, b in zip(*values)), f"{name}: other log-probabilities")
        lines, _ = train(name, layout=layout % 4 + 1)  # goes on behind step 4
        expect_same(name, lines, one)
    return one, file


def check_reference(one, file):
    done = 10
    os.mkdir("go_on.run")
    Path("go_on.run/reference.logp.partial").write_bytes(file[: 32 + 8 * done + 3])
    lines, log = train("go_on")
    expect(f"of which {done} were there" in log, f"go on: {log}")
    expect_same("go on", lines, one)
    kept, log = train("kept", f"preference.reference={os.getcwd()}/one.run/reference.logp")
    expect("were there" not in log, f"kept: {log}")
    expect_same("kept", kept, one)
    reference = f"preference.reference={os.getcwd()}/one.run/reference.logp"
    for name, settings, message in (("rope", ["model.rope_theta=77"], "by another model"), ("seed", ["train.seed=5"], "by another model"), ("longer", ["train.sequence_tokens=34"], None)):
        _, log = train(name, reference, *settings, code=2 if message else 0)
        expect(message is None or message in log, f"{name}: {log}")
    there = lambda: (sorted(p.name for p in Path("one.saved").iterdir()), Path("one.run/metrics.jsonl").read_bytes())
    before = there()
    _, err = job(f"{os.getcwd()}/deck.yaml", "--fresh", *sets(*words("one"), "train.seed=5"), code=2)
    expect("by another model" in err and there() == before, f"a refused start has changed checkpoints or metrics: {err}")
    write_pairs("other", PAIRS, 3)
    _, log = train("other", reference, data="other", code=2)
    expect("of other pairs" in log, f"other: {log}")
    train("damaged", "train.steps=4")
    path = Path("damaged.run/reference.logp")
    path.write_bytes(file[:40] + bytes([file[40] ^ 1]) + file[41:])
    _, log = train("damaged", code=2)
    expect("is damaged" in log, f"damaged: {log}")
    values = [v + 1 for v in struct.unpack(f"<{2 * (PAIRS + HELD_OUT)}d", file[32:-8])]
    bits = sum(struct.unpack("<Q", struct.pack("<d", v))[0] for v in values) % 2**64
    path.write_bytes(file[:32] + struct.pack(f"<{len(values)}dQ", *values, bits))
    _, log = train("damaged", code=2)
    expect("reference" in log and "contents" in log, f"another reference: {log}")


def check_verbs(one):
    deck, here = f"{os.getcwd()}/deck.yaml", os.getcwd()
    out, _ = job("evaluate", deck, *sets(*words("one")), ranks=2)
    last = figures(one)[1][STEPS]
    found = {line.rsplit(" ", 1)[0]: line.rsplit(" ", 1)[1] for line in out.splitlines() if line.startswith("reward")}
    expect(abs(float(found["reward margin"]) - last[1]) < 1e-8 and abs(float(found["reward accuracy"]) - last[2]) < 1e-8, f"evaluate: {out}")
    out, _ = job("gradients", deck, "--output", f"{here}/g.safetensors", *sets(*words("one"), "checkpoint.directory=none"))
    expect(f"loss {figures(one)[0][1][0]:.6f}"[:12] in out, f"gradients: {out}")
    _, err = job("gradients", deck, "--output", f"{here}/h.safetensors", *sets(*words("nowhere"), "checkpoint.directory=none"), code=2)
    expect("preference.reference" in err, f"gradients without a file: {err}")
    out, _ = job("show", deck, "--all", *sets(*words("one")))
    expect("runs forward a second time" in out, "show says nothing of the second run")


def check_refusals():
    for settings, message in (
            (["data.packing=best_fit"], "preference.name = dpo with data.packing = best_fit"),
            (["data.positions=sample"], "data.positions = sample"),
            (["preference.name=none"], "data.packing = pairs without preference.name = dpo"),
            (["preference.name=none", "data.packing=best_fit"], "preference.beta = 0.5 without preference.name = dpo"),
            (["preference.beta=0"], "preference.beta"),
            (["preference.label_smoothing=0.5"], "preference.label_smoothing"),
            (["model.mtp_depth=1"], "preference.name = dpo with model.mtp_depth = 1"),
            (["train.z_loss_coefficient=1e-4"], "preference.name = dpo with train.z_loss_coefficient"),
            (["data.phases=[{from_step: 3, sequence_tokens: 16}]"], "preference.name = dpo with data.phases"),
            (["train.sequence_tokens=8"], "legal")):
        _, log = train("refused", *settings, code=2)
        expect(message in log, f"{settings}: {log}")
    write_pairs("long", 3, 4, (20, 25))
    _, log = train("long", data="long", code=2)
    expect("data.packing = pairs: pair 0 of the set has" in log, f"long: {log}")


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    Path("deck.yaml").write_text(DECK)
    write_pairs("pairs", PAIRS, 1)
    write_pairs("held_out", HELD_OUT, 2)
    one, file = check_training()
    check_reference(one, file)
    check_verbs(one)
    check_refusals()
    os.chdir("/")
finish("preferences")
