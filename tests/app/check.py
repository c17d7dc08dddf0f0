#!/usr/bin/env python3
"""check.py FORGE: forge check. Ranks of layouts of every axis have nothing wrong; a rank whose products, memory, sums, messages or files are slow or
wrong is named, with code 8; nothing stays behind, and bad input is refused."""
import os
import re
import tempfile
from pathlib import Path

from program import ROOT, expect, finish, job, sets

DECK = """model: {layers: 4, width: 16, heads: 4, kv_heads: 2, ffn: 24, vocabulary: 66}
train: {steps: 4, global_batch_sequences: 16, microbatch_sequences: 1, sequence_tokens: 32, precision: fp32}
optimizer: {learning_rate: 2e-2, schedule: constant}
data: {files: [tokens.bin], dtype: uint16}
output: {directory: run}
machine: {workspace_mib: 1, threads: 1}
"""
EXPERTS = ["model.experts=8", "model.experts_per_token=2"]
LAYOUTS = [
    (1, []),
    (2, ["mesh.tp=2"]),
    (4, ["mesh.dp_replicate=2", "mesh.dp_shard=2", "train.zero_stage=3", "train.precision=bf16"]),
    (4, ["mesh.pp=2", "mesh.cp=2", "schedule.name=zb_v"]),
    (4, ["mesh.pp=2", "mesh.tp=2", "schedule.name=interleaved", "schedule.virtual_stages=2", "train.precision=fp64"]),
    (4, ["mesh.cp=4", "mesh.cp_method=all_to_all"]),
    (4, ["mesh.cp=4", "mesh.cp_method=two_level", "mesh.cp_inner=2"]),
    (8, ["mesh.dp_shard=2", "mesh.tp=2", "mesh.cp=2", "mesh.ep=4", "mesh.etp=1", "train.zero_stage=1", *EXPERTS]),
]
# The fault, the ranks, the row, its verdict, and what it says.
FAULTS = [
    ("slow:1:products:0.4", 3, "products, time", "slow", "rank 1"),
    ("slow:2:memory:0.4", 3, "memory, time", "slow", "rank 2"),
    ("slow:1:pairs:0.4", 4, "neighbours, time", "slow", "rank 1"),
    ("wrong:2:products", 4, "products, again", "WRONG", "rank 2: a product has other bits"),
    ("wrong:2:products", 4, "products, on all ranks", "WRONG", "rank 2: "),
    ("wrong:0:memory", 2, "memory, contents", "WRONG", "rank 0: a copy differs"),
    ("wrong:3:sums", 4, "gradients, contents", "WRONG", "rank 3: a sum over the group is wrong"),
    ("wrong:0:pairs", 2, "neighbours, contents", "WRONG", "rank 0: a message has arrived changed"),
    ("wrong:0:files", 2, "files, contents", "WRONG", "rank 0: "),
]


def check(*words, ranks=1, code=0, fault=None):
    out, err = job("check", *words, ranks=ranks, code=code, fault=fault)
    expect(not list(Path(".").rglob("check.*")), f"{words} leave {list(Path('.').rglob('check.*'))}")
    return out, err


def row_of(out, name):
    """(verdict, text)"""
    found = re.search(rf"^  {re.escape(name)} +(\S+) +(.*)$", out, re.M)
    return found.groups() if found else ("none", out)


def check_layouts(deck):
    for ranks, settings in LAYOUTS:
        out, _ = check(deck, *sets(*settings), "--slow", 1000, ranks=ranks)
        expect("nothing slow or wrong" in out, f"{settings}: {out}")
        verdict, text = row_of(out, "step")
        expect(verdict == "ok", f"{settings}: the step is {verdict}: {text}")
        losses = re.findall(r"\d\.\d{9,}", text)
        expect(len(losses) >= 3 and 5 < float(losses[0]) < 6, f"{settings}: a tiny model of 256 tokens has the losses {losses}")
    out, _ = check("--slow", 1000, ranks=2)
    expect("nothing slow or wrong" in out and row_of(out, "step")[0] == "ok", f"without a deck: {out}")
    out, _ = check(deck, "--machine", "h100_8", "--slow", 1000, ranks=2)
    expect("times as long as by" in row_of(out, "gradients, time")[1], f"no machine beside the sums: {out}")


def check_faults(deck):
    for place in ("0:files", "1:gradients"):  # a rank that fails ends the others, and leaves nothing behind
        _, err = check(deck, "--slow", 1000, ranks=2, code=1, fault=f"throw:{place}")
        expect("fails on purpose" in err, f"a failure in the middle: {err}")
    for fault, ranks, row, verdict, text in FAULTS:
        settings = ["mesh.dp_replicate=2", f"mesh.dp_shard={ranks // 2}"] if ranks % 2 == 0 else []
        out, err = check(deck, *sets(*settings), *(["--set", "train.global_batch_sequences=12"] if ranks == 3 else []),
                         "--slow", 5, "--output", os.path.abspath("nodes"), ranks=ranks, code=8, fault=fault)
        had = row_of(out, row)
        # On a busy machine other ranks may be slow, too.
        named = set(re.findall(r"\d+", had[1].split(": ")[-1])) if verdict == "slow" else set()
        expect(had[0] == verdict and (text in had[1] or text.split()[1] in named), f"{fault}: {row} is {had}, not {verdict} with \"{text}\"\n{out}")
        expect(re.search(r"found something slow or wrong", err), f"{fault} ends with {err}")
        expect(Path("nodes").read_text() == "", f"ranks that are threads have nodes: {Path('nodes').read_text()}")
        os.remove("nodes")


def check_refusals(deck):
    for words, text in [([deck, deck], "takes one deck"), ([deck, "--slow", 1], "--slow must be more than 1"),
                        (["none.yaml"], "none.yaml"), (["--set", "train.steps=3"], "or none"),
                        ([deck, "--set", "mesh.tp=3"], "mesh"),
                        ([deck, "--machine", "nowhere"], "nowhere")]:
        out, err = check(*words, code=2)
        expect(text in err, f"{words}: {err}")
        expect("products" not in out, f"{words} was checked: {out}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    here = Path(folder)
    (here / "deck.yaml").write_text(DECK.replace("{directory: run}", f"{{directory: {here}/run}}"))
    check_layouts(here / "deck.yaml")
    check_faults(here / "deck.yaml")
    check_refusals(here / "deck.yaml")
    finish()
