#!/usr/bin/env python3
"""spikes.py FORGE: train.spike. Data with noise at known places: a run that goes back trains as one whose files never had them, one that
skips makes the same updates, on any layout and behind a restart on another one."""
import json
import os
import re
import struct
import tempfile
from pathlib import Path

from program import expect, finish, job, said, sets

T, G, STEPS, SPIKE = 16, 4, 14, 9
DECK = f"""model: {{layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 64, dropout: 0.1}}
train: {{steps: {STEPS}, global_batch_sequences: {G}, microbatch_sequences: 1, sequence_tokens: {T}, precision: fp64, spike_window: 4, spike_loss: 1.2, spike: log}}
optimizer: {{learning_rate: 2e-2, schedule: constant}}
data: {{files: [noisy.bin], dtype: uint16}}
output: {{directory: run, every_steps: 1}}
checkpoint: {{directory: saved, every_steps: 3, keep_last: 100}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1}}
"""
LAYOUTS = {1: [], 2: ["mesh.tp=2"], 4: ["mesh.pp=2", "mesh.dp_shard=2", "train.zero_stage=1"]}


def write_tokens(name, noisy_samples):
    """Samples of a pattern; where they are noise, their first token is still the pattern's, which is the label before it."""
    count = (STEPS + 4) * G
    ids = [at % 8 for at in range(count * T + 1)]
    for sample in range(count):  # no two samples are alike
        ids[sample * T + 5] = 8 + sample % 24
    for sample in noisy_samples:
        for at in range(sample * T + 1, (sample + 1) * T):
            ids[at] = 32 + at * at % 31
    Path(name).write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    return ids


def write_without(name, ids, samples):
    kept = [at for at in range(len(ids)) if at // T not in samples]
    Path(name).write_bytes(struct.pack(f"<{len(kept)}H", *[ids[at] for at in kept]))


def train(name, *settings, data="noisy", ranks=1, code=0, fault=None):
    """(lines of its steps, by number; log). The last line of a step counts."""
    here = os.getcwd()
    words = [f"output.directory={here}/{name}.run", f"checkpoint.directory={here}/{name}.saved", f"data.files=[{here}/{data}.bin]",
             "checkpoint.resume=auto", *LAYOUTS[ranks], *settings]
    out, err = job(f"{here}/deck.yaml", *sets(*words), ranks=ranks, code=code, fault=fault)
    lines = [json.loads(line) for line in Path(f"{name}.run", "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    expect(steps == sorted(set(steps)), f"{name}: steps {steps}")
    return {line["step"]: line for line in lines}, out + err


def near(a, b, share=1e-10):
    return abs(a - b) <= share * abs(b)


def same(name, lines, other, share, shift=0, first=1):
    for step in range(first, STEPS + 1 - shift):
        a, b = lines[step + shift]["loss"], other[step]["loss"]
        expect(a == b if share == 0 else near(a, b, share), f"{name}: step {step + shift} has the loss {a}, not {b}")


def check_one_spike():
    ids = write_tokens("noisy.bin", range((SPIKE - 1) * G, SPIKE * G))
    write_without("clean.bin", ids, set(range((SPIKE - 1) * G, SPIKE * G)))
    none = ["train.spike=none", "train.spike_loss=1.5", "train.spike_window=100"]
    clean, _ = train("clean", *none, data="clean")
    # A step that is left out has taken its samples, and with them their dropout.
    exact = ["model.dropout=0"]
    short, _ = train("short_clean", *none, *exact, data="clean")
    plain, _ = train("plain", *none, *exact)

    logged, log = train("logged", *exact)
    same("log", logged, plain, 0)
    expect([s for s in logged if "spike" in logged[s]] == [SPIKE] and logged[SPIKE]["updated"], f"log: {log}")
    expect(re.search(r"spike: loss [\d.]+ is [\d.]+ times the median of 4 steps\n", log), f"log: {log}")

    skipped, log = train("skipped", "train.spike=skip", *exact)
    same("skip", skipped, short, 0, shift=1, first=SPIKE)
    expect([s for s in skipped if not skipped[s]["updated"]] == [SPIKE] and "; no update\n" in log, f"skip: {log}")
    return clean


def check_back(clean):
    for ranks in LAYOUTS:
        name = f"back{ranks}"
        back, log = train(name, "train.spike=back", ranks=ranks)
        same(name, back, clean, 0 if ranks == 1 else 1e-10)
        expect(f"spike: of step {SPIKE}: loss " in log and f"step {SPIKE - 3}, written by" in log, f"{name}: {log}")
        expect([s for s in back if "spike" in back[s]] == [SPIKE - 2] and all(line["updated"] for line in back.values()), f"{name}: {back}")
        # A job that is killed behind the next checkpoint, and goes on elsewhere.
        killed, _ = train(f"{name}.killed", "train.spike=back", ranks=ranks, code=None, fault=f"kill:0:{SPIKE + 2}")
        expect(max(killed) < SPIKE + 2, f"{name}: the fault came too late")
        other = {1: 4, 2: 1, 4: 2}[ranks]
        again, log = train(f"{name}.killed", "train.spike=back", ranks=other)
        same(f"{name} on {other} ranks", again, clean, 1e-10)
        expect("spike: loss" not in log, f"{name} on {other} ranks: {log}")
    shown = said("show", "deck.yaml", "--samples", str(SPIKE), *sets(f"checkpoint.directory={os.getcwd()}/back1.saved"))
    expect(f"sample {SPIKE * G}" in shown and f"sample {SPIKE * G - 1} " not in shown, f"show --samples: {shown[:800]}")


def check_limits():
    early = range(6 * G, 7 * G)
    write_tokens("noisy.bin", [*early, *range((SPIKE - 1) * G, SPIKE * G)])
    lines, log = train("most", "train.spike=skip", "train.spike_most=1")
    expect([s for s in lines if not lines[s]["updated"]] == [7] and "spike" in lines[SPIKE], f"spike_most: {log}")
    lines, log = train("nowhere", "train.spike=back", "checkpoint.every_steps=8")
    expect(not lines[7]["updated"] and "no update, and no way back" in log, f"before the first checkpoint: {log}")
    expect(max(lines) == STEPS and "spike: of step" in log, f"behind it: {log}")
    lines, log = train("short", "train.spike=back", f"train.steps={STEPS + 4}", "data.at_end=error")
    expect("no way back" in log and [s for s in lines if not lines[s]["updated"]] == [7, SPIKE], f"data that would end: {log}")
    lines, log = train("norm", "train.spike=log", "train.spike_loss=0", "train.spike_norm=1.01")
    expect("spike: gradient norm" in log, f"by norm: {log}")


def check_wrong_input():
    for words, text in ((["train.spike=none"], "train.spike_window = 4 without train.spike; legal: 100, or spike: log | skip | back"),
                        (["train.spike_loss=0.5"], "train.spike_loss = 0.5: half of all steps are above the median; legal: 0, or more than 1"),
                        (["train.spike_loss=0", "train.spike_norm=0"], "there are no spikes"),
                        (["train.spike_window=1"], "train.spike_window"),
                        (["train.spike=stop"], "train.spike"),
                        (["train.spike=back", "checkpoint.directory="], "train.spike = back without checkpoint.directory")):
        output = said("show", "deck.yaml", *sets(*words), code=2)
        expect(text in output, f"{words}: {output}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("deck.yaml").write_text(DECK)
        clean = check_one_spike()
        check_back(clean)
        check_limits()
        check_wrong_input()
        os.chdir("/")
    finish()


main()
