#!/usr/bin/env python3
"""replicas.py FORGE: train.check_replicas_steps. On layouts of every axis, optimizers and precisions ranks agree as long as nothing happens; a bit
that flips is found wherever another rank holds the tensor, with the rank's number, ends the run with 7, and is repaired where most ranks agree.
train.check_gradients_steps: gradients computed twice agree, and change nothing, unless a rank's products are wrong."""
import json
import os
import random
import re
import shutil
import tempfile
from pathlib import Path

from program import expect, finish, job, run, said, sets

DECK = """model: {layers: 4, width: 16, heads: 4, kv_heads: 2, ffn: 24, vocabulary: 66, qk_norm: true}
train: {steps: 4, global_batch_sequences: 8, microbatch_sequences: 1, sequence_tokens: 16, precision: fp32, check_replicas_steps: 1}
optimizer: {learning_rate: 2e-2, schedule: constant}
data: {files: [tokens.bin], dtype: uint16}
output: {directory: run, every_steps: 1}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
"""
EXPERTS = ["model.experts=4", "model.experts_per_token=2", "model.router_bias=true", "model.router_bias_rate=1e-3"]
# Ranks and settings of runs in which nothing happens.
QUIET = [
    (4, ["mesh.dp_shard=4"]),
    (4, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "train.zero_stage=3"]),
    (4, ["mesh.dp_shard=2", "mesh.tp=2", "train.zero_stage=1", "train.precision=bf16"]),
    (8, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "mesh.cp=2", "train.zero_stage=2", "train.precision=bf16", "optimizer.moments=bf16", "optimizer.master_weights=bf16"]),
    (8, ["mesh.pp=2", "mesh.tp=4", "model.tied_embeddings=true"]),
    (8, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "mesh.tp=2", "mesh.ep=4", "mesh.etp=1", "train.zero_stage=3", *EXPERTS]),
    (8, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "mesh.tp=2", "mesh.ep=2", "mesh.etp=2", *EXPERTS]),
    (4, ["mesh.dp_replicate=2", "mesh.tp=2", "optimizer.name=soap", "train.zero_stage=1"]),
    (8, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "mesh.tp=2", "optimizer.name=muon", "train.zero_stage=3"]),
    (8, ["mesh.dp_replicate=2", "mesh.dp_shard=4", "optimizer.name=adafactor", "train.zero_stage=1", "mesh.ep=8", "model.experts=8", "model.experts_per_token=2"]),
    (4, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "optimizer.name=schedule_free", "train.zero_stage=2", "train.validate_every_steps=2", "data.validation_files=[tokens.bin]", "train.validation_sequences=4"]),
    (4, ["mesh.dp_shard=4", "train.precision=fp8", "train.zero_stage=1"]),
    (4, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "train.frozen=[layers.0.*]", "train.zero_stage=3", "train.precision=bf16"]),
]
# Those in which a bit flips, and the rank that has it; whether all tensors of a rank have a copy elsewhere, and whether most of them agree.
FLIPS = [
    (3, 1, ["mesh.dp_replicate=3", "train.global_batch_sequences=12"], True, True),
    (6, 4, ["mesh.dp_replicate=3", "mesh.dp_shard=2", "train.zero_stage=3", "train.precision=bf16", "train.global_batch_sequences=12"], True, True),
    (4, 2, ["mesh.dp_shard=2", "mesh.tp=2"], True, False),
    (4, 3, ["mesh.tp=4"], False, True),
    (8, 5, ["mesh.dp_replicate=4", "mesh.dp_shard=2", "mesh.ep=2", "train.zero_stage=1", "train.precision=bf16", *EXPERTS], True, True),
]


def train(name, ranks, *settings, code=0, fault=None):
    here = os.getcwd()
    words = [f"output.directory={here}/{name}.run", f"data.files=[{here}/tokens.bin]"]
    shutil.rmtree(f"{name}.run", ignore_errors=True)
    settings = [setting.replace("[tokens.bin]", f"[{here}/tokens.bin]") for setting in settings]
    out, err = job(f"{here}/deck.yaml", *sets(*words, *settings), ranks=ranks, code=code, fault=fault)
    return out + err


def losses(name):
    rows = [json.loads(line) for line in Path(f"{name}.run", "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def check_quiet():
    for ranks, settings in QUIET:
        log = train("quiet", ranks, *settings)
        expect("replicas  none" not in log, f"{settings}: {log}")
    log = train("shards", 2, "mesh.dp_shard=2", "train.zero_stage=3")
    expect("each rank is the only one that holds its weights" in log, f"no replicas: {log}")


def check_flips():
    draw = random.Random(os.environ.get("FORGE_SEED", "1"))
    tensors = range(400) if os.environ.get("FORGE_LONG") == "1" else draw.sample(range(400), 4)
    for ranks, odd, settings, copies, majority in FLIPS:
        train("clean", ranks, *settings)
        clean = losses("clean")
        found = 0
        for tensor in tensors:
            fault = f"upset:{odd}:2:{tensor}"
            log = train("flipped", ranks, *settings, code=None, fault=fault)
            if "differ after step 2" not in log:
                expect(not copies, f"{settings}, {fault} is not found: {log}")
                continue
            found += 1
            expect(f"rank {odd} differs" in log if majority else "no value has a majority" in log, f"{settings}, {fault}: {log}")
            expect(len(losses("flipped")) == 2, f"{settings}, {fault}: {len(losses('flipped'))} steps")
        expect(found > 0 or not copies, f"{settings}: none of {list(tensors)} is found")
        if not copies:
            continue
        train("flipped", ranks, *settings, code=7, fault=f"upset:{odd}:2:0")
        repair = train("repaired", ranks, *settings, "train.replicas_differ=repair", code=0 if majority else 7, fault=f"upset:{odd}:2:{tensors[0]}")
        if majority:
            expect("the odd ranks have the numbers of most now" in repair and f"rank {odd} differs" in repair, f"{settings}: {repair}")
            expect(losses("repaired") == clean, f"{settings}: losses {losses('repaired')}, not {clean}")
        else:
            expect("no value has a majority" in repair, f"{settings}: {repair}")
    # Between two comparisons the bit stays, and spreads to no other rank's weights.
    log = train("late", 3, "mesh.dp_replicate=3", "train.global_batch_sequences=12", "train.check_replicas_steps=4", code=7, fault="upset:2:1:0")
    expect("differ after step 4" in log and "rank 2 differs from 2 ranks like rank 0 (data-parallel ranks)" in log, f"late: {log}")
    # No checkpoint has it, and neither has the run's end.
    log = train("saved", 3, "mesh.dp_replicate=3", "train.global_batch_sequences=12", "train.check_replicas_steps=100", "checkpoint.every_steps=3", f"checkpoint.directory={os.getcwd()}/saved", code=7, fault="upset:2:2:0")
    expect("differ after step 3" in log and not list(Path("saved").glob("step_*")), f"saved: {log}")
    log = train("end", 3, "mesh.dp_replicate=3", "train.global_batch_sequences=12", "train.check_replicas_steps=100", code=7, fault="upset:2:2:0")
    expect("differ after step 4" in log, f"end: {log}")
    # A norm's weight, which tp ranks hold alike.
    logs = (train("late", 4, "mesh.tp=4", code=None, fault=f"upset:3:2:{tensor}") for tensor in range(6, 20))
    expect(any(re.search(r"norm\S*, weights: rank 3 differs from 3 ranks like rank 0 \(tp ranks\)", log) for log in logs), "tp: no norm's weight is found")


# Settings beside those of QUIET under which two data-parallel groups have the same gradients.
TWICE = [
    (4, ["mesh.dp_replicate=2", "mesh.pp=2", "model.dropout=0.1", "train.z_loss_coefficient=1e-3", "train.recompute=full"]),
    (4, ["mesh.dp_shard=4", "train.zero_stage=2", "train.accumulate=sharded", "train.precision=bf16", "optimizer.gradients=bf16", "data.document_end_token=7", "data.packing=best_fit"]),
    (4, ["mesh.dp_shard=4", "train.precision=fp8", "train.fp8_recipe=delayed", "model.mtp_depth=1"]),
]
# The rank whose products are wrong, and those that must be named: its data-parallel group, or of two groups both.
WRONG = [
    (3, 1, ["mesh.dp_replicate=3", "train.global_batch_sequences=12"], "rank 1"),
    (4, 2, ["mesh.dp_shard=4", "train.zero_stage=3", "train.precision=bf16"], "rank 2"),
    (6, 3, ["mesh.dp_replicate=3", "mesh.tp=2", "train.global_batch_sequences=12", "train.recompute=selective"], "ranks 2, 3"),
    (6, 4, ["mesh.dp_shard=3", "mesh.pp=2", "train.global_batch_sequences=12"], "ranks 1, 4"),
    (8, 5, ["mesh.dp_replicate=4", "mesh.dp_shard=2", "mesh.ep=2", "train.zero_stage=1", *EXPERTS], "ranks 4, 5"),
    (2, 1, ["mesh.dp_shard=2"], "ranks 0, 1"),
]


def check_gradients():
    twice = ["train.check_replicas_steps=0", "train.check_gradients_steps=2"]
    for ranks, settings in QUIET + TWICE:
        output = run("show", "deck.yaml", "--ranks", str(ranks), *sets(*settings, *twice))[1]
        if "no second data-parallel group" in output:
            continue
        train("once", ranks, *settings, "train.check_replicas_steps=0")
        train("twice", ranks, *settings, *twice)
        expect(losses("twice") == losses("once"), f"{settings}: {losses('twice')}, not {losses('once')}")
    for ranks, wrong, settings, named in WRONG:
        log = train("wrong", ranks, *settings, *twice, code=7, fault=f"miscompute:{wrong}:4")
        expect(f"gradients of step 4 are others where a second data-parallel group computes them: of {named}" in log, f"{settings}: {log}")
        two = ranks == 2
        expect(("of one of the two groups is broken" if two else "there is broken") in log and "a checkpoint of step 2," in log, f"{settings}: {log}")
        expect(len(losses("wrong")) == 3, f"{settings}: {losses('wrong')}")
    # Without the check a wrong product changes the weights of all ranks alike.
    log = train("wrong", 3, *WRONG[0][2], fault="miscompute:1:2:2")
    train("clean", 3, *WRONG[0][2])
    expect(losses("wrong") != losses("clean"), "the fault changes nothing")


def check_wrong_input():
    experts = ["mesh.dp_shard=4", "mesh.ep=4", *EXPERTS]
    for ranks, words, text in ((1, [], "legal: 0, or more than 1 as mesh.dp_replicate x mesh.dp_shard"), (2, ["mesh.tp=2"], "legal: 0, or more than 1 as"),
                               (4, experts, "legal: 0, or more than 4 as mesh.dp_replicate x mesh.dp_shard (so many exchange rows of experts)")):
        output = said("show", "deck.yaml", "--ranks", str(ranks), *sets(*words, "train.check_gradients_steps=5"), code=2)
        expect("train.check_gradients_steps = 5" in output and text in output, f"{words}: {output}")
    for words, text in ((["train.check_replicas_steps=0", "train.replicas_differ=repair"], "train.replicas_differ = repair without train.check_replicas_steps"),
                        (["train.check_replicas_steps=-1"], "train.check_replicas_steps"), (["train.replicas_differ=vote"], "train.replicas_differ")):
        output = said("show", "deck.yaml", *sets(*words), code=2)
        expect(text in output, f"{words}: {output}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("deck.yaml").write_text(DECK)
        draw = random.Random(7)
        Path("tokens.bin").write_bytes(b"".join(draw.randrange(66).to_bytes(2, "little") for _ in range(4000)))
        check_quiet()
        check_flips()
        check_gradients()
        check_wrong_input()
        os.chdir("/")
    finish()


main()
