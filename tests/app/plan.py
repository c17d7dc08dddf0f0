#!/usr/bin/env python3
"""plan.py FORGE: forge plan and forge calibrate as a person uses them: what they print and write, their tables, wrong input."""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from program import FORGE, expect, finish, run

LONG = os.environ.get("FORGE_LONG") == "1"
THIRD = os.environ.get("FORGE_VOLUME") == "third" and not LONG  # of the volume: one search with keys of ZeRO-3 instead of two
NOT_COMPARED = "no prediction for more than one GPU has been compared with a run of forge yet"


def refused(text, *arguments):
    code, output = run(*arguments)
    expect(code == 2 and text in output, f"{arguments}: code {code}, expected 2 and '{text}' in: {output.strip()[:300]}")


def check_deck(deck, machine, work):
    """What plan says of a deck agrees with itself, and its memory with show."""
    answer, trace = work / "answer.json", work / "trace.json"
    code, output = run("plan", deck, "--machine", machine, "--json", answer, "--trace", trace)
    expect(code == 0, f"plan {deck}: {output.strip()[:300]}")
    if code != 0:
        return
    told = json.loads(answer.read_text())
    expect(abs(sum(told["seconds"].values()) / told["step_seconds"] - 1) < 1e-3, f"{deck}: the parts of a step don't add up to it")
    expect(told["low"] < told["step_seconds"] < told["high"], f"{deck}: the interval")
    wire = told["wire_seconds"]
    expect(set(wire) == {"nvlink", "nic"} and max(wire.values()) <= told["step_seconds"], f"{deck}: {told['step_seconds']} s with {wire} on its links")
    expect(0 < told["mfu"] <= told["hfu"] * 1.001 and told["hfu"] < 1, f"{deck}: mfu {told['mfu']}, hfu {told['hfu']}")
    shown = run("show", "--all", "--deck", deck, FORGE_RANKS_PER_NODE="8")[1]  # which decide whether rows go in two hops
    planned = sum(size for name, size in told["memory"].items() if not name.startswith("NCCL") and name != "kernels")
    most = max(int(size) for size in re.findall(r"(?m)^  peak +(\d+) B", shown))
    expect(planned == most, f"{deck}: {planned} B planned, show says {most}")
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    ends = max(e["ts"] + e["dur"] for e in events)
    expect(abs(ends / told["step_seconds"] / 1e6 - 1) < 1e-6, f"{deck}: the trace ends at {ends} us")


def check_candidates(work):
    deck = "inputs/70b_32gpu_tp4.yaml"
    rows = [["4", "8", "2", "full"], ["3", "8", "2", "full"], ["", "", "", ""], ["8", "4", "2", "none"], ["4", "8", "64", "full"]]
    asked, told = work / "candidates.csv", work / "predicted.csv"
    with asked.open("w", newline="") as file:
        csv.writer(file).writerows([["mesh.tp", "mesh.dp_shard", "train.microbatch_sequences", "train.recompute"], *rows])
    code, output = run("plan", deck, "--machine", "h200_4", "--candidates", asked, "--output", told)
    expect(code == 0, f"candidates: {output.strip()[:300]}")
    answers = list(csv.reader(told.open()))
    new = ["step_seconds", "low", "high", "tokens_per_second_per_rank", "peak_bytes", "legal", "fits"]
    expect(answers[0][4:] == new, f"columns {answers[0]}")
    expect([row[:4] for row in answers[1:]] == rows, "the rows aren't those that were asked, in their order")
    expect([row[9] for row in answers[1:]] == ["true", "false", "true", "true", "false"], f"legal: {[r[9] for r in answers[1:]]}")
    expect(answers[2][4:] == ["", "", "", "", "", "false", ""], f"an illegal row has numbers: {answers[2]}")
    expect(answers[1][4:] == answers[3][4:], "empty cells are the deck's")
    expect(answers[4][10] in ("true", "false") and float(answers[4][4]) > 0, "a row that may not fit has a time")
    # Only rows are held to the number of ranks.
    with asked.open("w", newline="") as file:
        csv.writer(file).writerows([["mesh.dp_shard"], ["16"], ["8"]])
    run("plan", deck, "--machine", "h200_4", "--ranks", "64", "--candidates", asked, "--output", told)
    expect([row[-2] for row in csv.reader(told.open())][1:] == ["true", "false"], "--ranks 64")
    asked.write_text("train.precision\nfp64\n")
    refused("no rates for products in fp64", "plan", deck, "--machine", "h200_4", "--candidates", asked, "--output", told)
    asked.write_text("mesh.tq\n1\n")
    refused("column 'mesh.tq' is no key of the deck; nearest known key: mesh.tp", "plan", deck, "--machine", "h200_4", "--candidates", asked, "--output", told)
    asked.write_text("mesh.tp,mesh.cp\n1\n")
    refused(":2: has 1 cells, the head has 2", "plan", deck, "--machine", "h200_4", "--candidates", asked, "--output", told)
    asked.write_text('mesh.tp\n"1\n')
    refused("a quote that is not closed", "plan", deck, "--machine", "h200_4", "--candidates", asked, "--output", told)


def check_search(work):
    folder = work / "best"
    code, output = run("plan", "inputs/7b_4gpu.yaml", "--machine", "h200_4", "--search", "--best", "3", "--write", folder)
    expect(code == 0, f"search: {output.strip()[:300]}")
    found = [float(t) for t in re.findall(r"(?m)^ +\d +(\d+\.\d+) s", output)]
    expect(len(found) == 3 and found == sorted(found), f"search: {found}")
    for i in (1, 3):
        again = run("plan", folder / f"layout_{i}.yaml", "--machine", "h200_4")[1]
        seconds = re.search(r"a step +(\d+\.\d+) s", again)
        expect(seconds and abs(float(seconds[1]) / found[i - 1] - 1) < 1e-3, f"layout_{i}.yaml: {again[:200]}")
        expect(": fits" in again, f"layout_{i}.yaml doesn't fit")
        expect(run("show", folder / f"layout_{i}.yaml")[0] == 0, f"show refuses layout_{i}.yaml")


def check_search_of_several_ranks(work):
    """A table and an object of JSON for each number of ranks; the layouts are decks, and their keys are what --set takes."""
    deck, folder, answer = "inputs/7b_4gpu.yaml", work / "several", work / "searches.json"
    code, output = run("plan", deck, "--machine", "h200_4", "--search", "--ranks", "2,4", "--best", "1", "--json", answer, "--write", folder)
    expect(code == 0 and f"{deck} on 2 ranks of h200_4" in output and f"{deck} on 4 ranks of h200_4" in output, f"search on 2 and 4: {output.strip()[:300]}")
    expect(output.count(NOT_COMPARED) == 1, f"search says of what it was compared with: {output[-300:]}")
    told = json.loads(answer.read_text())["searches"]
    expect([one["ranks"] for one in told] == [2, 4] and all(one["layouts"] > 0 for one in told), f"searches: {str(told)[:300]}")
    for one in told:
        best = one["best"][0]
        settings = [word for key, value in best["layout"].items() for word in ("--set", f"{key}={value}")]
        for again in (["plan", deck, "--ranks", one["ranks"], *settings], ["plan", folder / f"ranks_{one['ranks']}_layout_1.yaml"]):
            code, output = run(*again, "--machine", "h200_4", "--json", work / "again.json")
            expect(code == 0 and json.loads((work / "again.json").read_text())["step_seconds"] == best["step_seconds"], f"{again}: {output[:300]}")


def check_one_change(work):
    """What "one change" lists is what --set predicts, with memory; each kind of choice is there, and warnings follow from it."""
    answer, again = work / "answer.json", work / "again.json"
    deck = "inputs/moe_ep_32gpu.yaml"
    code, output = run("plan", deck, "--machine", "h200_4", "--json", answer)
    expect(code == 0 and NOT_COMPARED in output, f"plan {deck}: {output[:300]}")
    told = json.loads(answer.read_text())
    expect(told["note"] == NOT_COMPARED, f"note of {deck}: {told.get('note')}")
    changes = told["one_change"]
    expect({"tp", "ep", "etp", "microbatch", "recompute", "zero", "dispatch"} <= {c["kind"] for c in changes}, f"kinds of {deck}: {changes}")
    for kind in ("tp", "etp", "zero"):
        change = next(c for c in changes if c["kind"] == kind)
        expect(re.search(rf"% .*  {re.escape(change['change'])}( |$)", output, re.M), f"one change lacks {change}: {output[-2000:]}")
        code, text = run("plan", deck, "--machine", "h200_4", "--json", again, *[w for s in change["change"].split() for w in ("--set", s)])
        other = json.loads(again.read_text())
        same = {key: other[key] for key in ("step_seconds", "peak_bytes", "fits")} == {key: change[key] for key in ("step_seconds", "peak_bytes", "fits")}
        expect(code == 0 and same, f"{deck} with {change}: {text[:300]}")
    expect(any(w.startswith("mesh.etp = 4: ") and "better: mesh.etp = 1" in w for w in told["warnings"]), f"warnings of {deck}: {told['warnings']}")
    code, output = run("plan", "inputs/7b_1gpu.yaml", "--machine", "h200_4", "--json", again)
    expect(code == 0 and NOT_COMPARED not in output and "note" not in json.loads(again.read_text()), f"plan of one GPU: {output[:300]}")


def check_odd_meshes(work):
    """Groups that straddle nodes are slower and warned of; experts on a number of ranks with an odd factor are searched."""
    code, output = run("plan", "inputs/moe_24gpu.yaml", "--machine", "h200_4", "--search", "--best", "1")
    expect(code == 0 and re.search(r"(?m)^ +1 ", output), f"a search on 24 ranks with nodes of 4: {output[-600:]}")
    deck, answer = "inputs/13b_24gpu_validation.yaml", work / "odd.json"
    seconds = {}
    for tp, shard in (("6", "4"), ("8", "3")):
        odd = ["--set", f"mesh.tp={tp}", "--set", f"mesh.dp_shard={shard}", "--set", "mesh.dp_replicate=1", "--set", "model.heads=48", "--set", "model.kv_heads=48",
               "--set", "model.width=6144", "--set", "model.ffn=18432", "--set", "train.global_batch_sequences=24", "--set", "train.microbatch_sequences=1", "--set", "train.sequence_tokens=4104", "--ranks", "24"]
        code, output = run("plan", deck, "--machine", "h100_8", *odd, "--json", answer)
        expect(code == 0, f"tp {tp}: {output[-600:]}")
        seconds[tp] = json.loads(answer.read_text())["step_seconds"]
        expect(("mesh.tp = 6 has groups on 2 nodes" in output) == (tp == "6"), f"the warning of tp {tp}: {output[-600:]}")
    expect(seconds["6"] > 1.2 * seconds["8"], f"a tp group on two nodes costs {seconds}")
    refused("--blocks is of the kernel of --wire time", "replay", deck, "--rank", "0", "--wire", "copy", "--blocks", "4")
    refused("legal are mesh.ep 4, or for ep 6", "show", "inputs/moe_24gpu.yaml", *[w for s in ("ep=6", "etp=1", "tp=1", "pp=1", "dp_replicate=1", "dp_shard=16") for w in ("--set", f"mesh.{s}")], "--set", "model.experts=12", "--ranks", "16")


def check_faster_headers(work):
    """What a deck's header calls faster is, on the machine that it names, and fits."""
    decks = [deck for deck in sorted(pathlib.Path("inputs").glob("*.yaml")) if "# faster by forge plan:" in deck.read_text()]
    expect(len(decks) >= 5, f"headers that name something faster: {decks}")
    for deck in decks if LONG else decks[:2]:
        text = deck.read_text()
        machine, faster = re.search(r"(?m)^# machine: (\S+)$", text)[1], re.search(r"(?m)^# faster by forge plan: (.*)$", text)[1]
        told = []
        for words in ([], faster.split()):
            code, output = run("plan", deck, "--machine", machine, "--json", work / "faster.json", *words)
            expect(code == 0, f"{deck} {words}: {output[-400:]}")
            told.append(json.loads((work / "faster.json").read_text()))
        expect(told[1]["fits"] and told[1]["step_seconds"] < 0.95 * told[0]["step_seconds"], f"{deck} {faster}: {told[1]['step_seconds']} for {told[0]['step_seconds']} s")


def check_nodes_of_gpu(work):
    """show --gpu MACHINE plans what plan --machine does: rows go to experts in two hops where its nodes say so."""
    deck, machine = "inputs/qwen3_235b_256gpu.yaml", "h200_8"
    bytes_of = {}
    told = json.loads(run("show", deck, "--gpu", machine, "--json")[1])["gpu"]
    code, output = run("plan", deck, "--machine", machine, "--json", work / "nodes.json")
    bytes_of = told["needed_bytes"], json.loads((work / "nodes.json").read_text())["peak_bytes"]
    expect(code == 0 and bytes_of[0] == bytes_of[1], f"{deck} on {machine}: show and plan have {bytes_of}")
    code, output = run("show", deck, "--gpu", machine, "--set", "model.dispatch=two_level")
    expect(code == 0, f"two_level on the nodes of {machine}: {output[-300:]}")


def check_fewest_gpus(work):
    """show --gpu of a deck that doesn't fit: the number of GPUs and the layout that it names do, and so does its nearest change."""
    deck, large = "inputs/7b_1gpu.yaml", ["--set", "model.layers=80"]
    code, output = run("show", deck, "--gpu", "h100-80", *large)
    fewest = re.search(r"fewest GPUs that it fits on: (\d+), with (.*) \(", output)
    expect(code == 0 and "doesn't fit on h100-80" in output and fewest and int(fewest[1]) > 1, f"show --gpu: {output[-600:]}")
    if fewest:
        settings = [word for one in fewest[2].split() for word in ("--set", one)]
        code, output = run("show", deck, "--gpu", "h100-80", *large, "--ranks", fewest[1], *settings)
        expect(code == 0 and "\nfits on h100-80" in output, f"on {fewest[1]} with {fewest[2]}: {output[-600:]}")
        told = json.loads(run("show", deck, "--gpu", "h100-80", *large, "--json")[1])["gpu"]
        expect(told["fewest_gpus"] == int(fewest[1]) and told["layout_of_fewest"] == fewest[2], f"show --json: {told}")
    # The deck's own number of GPUs is tried, too. Time may be up below the deck's own number, which is known to be enough.
    fewest = re.search(r"fewest GPUs that it fits on: (?:(\d+), with |more than \d+ and at most (\d+), as far as)", run("show", "inputs/kimi_k2_512gpu.yaml", "--gpu", "40GiB")[1])
    expect(fewest and int(fewest[1] or fewest[2]) <= 512, f"Kimi K2 on GPUs of 40 GiB: {fewest}")
    told = json.loads(run("show", "inputs/llama3_405b_256gpu.yaml", "--gpu", "40GiB", "--json")[1])["gpu"]
    expect(told["too_few_gpus"] < told["enough_gpus"] <= 256 and told["fewest_gpus"] in (0, told["enough_gpus"]), f"405B on GPUs of 40 GiB: {told}")
    # Only a stage's part of the layers has room.
    mesh = ["--ranks", "8", "--set", "mesh.dp_replicate=8", "--set", "train.zero_stage=0", "--set", "train.recompute=full",
            "--set", "train.microbatch_sequences=1", "--set", "train.global_batch_sequences=32", "--set", "model.layers=32"]
    code, output = run("show", deck, "--gpu", "h100-80", *mesh)
    nearest = re.search(r"nearest change that fits: (.*) \(", output)
    expect(code == 0 and nearest and "mesh." in nearest[1], f"nearest change of a mesh: {output[-600:]}")
    if nearest:
        code, output = run("show", deck, "--gpu", "h100-80", *mesh, *[word for one in nearest[1].split() for word in ("--set", one)])
        expect(code == 0 and "\nfits on h100-80" in output, f"with {nearest[1]}: {output[-600:]}")


def check_blocks_recomputed_whole(work):
    """Where no policy below full has room, the nearest change and the search recompute a few blocks of each stage whole, and as few as do."""
    deck = "inputs/qwen3_235b_256gpu.yaml"
    nearest = re.search(r"nearest change that fits: (.*train.recompute_full_layers=(\d+)) \(", run("show", deck, "--gpu", "h100_8")[1])
    expect(nearest, f"nearest change of {deck}")
    if nearest:
        for blocks, fits in ((int(nearest[2]), True), (int(nearest[2]) - 1, False)):
            words = [word for one in nearest[1].split() for word in ("--set", one)]
            output = run("show", deck, "--gpu", "h100_8", *words, "--set", f"train.recompute_full_layers={blocks}")[1]
            expect(("\nfits on h100_8" in output) == fits, f"{deck} with {nearest[1]}, but {blocks}: {output[-600:]}")
    folder = work / "blocks"
    code, output = run("plan", "inputs/13b_8gpu.yaml", "--machine", "a100_40_8", "--search", "--ranks", "16", "--seconds", "10", "--best", "1", "--write", folder)
    blocks = re.search(r"recompute selective, (\d+) of a stage full", output)
    written = [path.read_text() for path in folder.glob("*.yaml")]
    expect(code == 0 and blocks and len(written) == 1 and f"recompute_full_layers: {blocks[1]}\n" in written[0], f"search with blocks: {output[-600:]}")


def check_search_of_zero3(work):
    """Keys of ZeRO-3 in the deck: what is found has them with that stage alone, and is legal."""
    for key in ("train.fp8_gather=true", "train.gather=step")[THIRD:]:
        folder, name = work / key.split("=")[0], key.split("=")[0].split(".")[1]
        keys = [word for one in ("train.precision=fp8", "train.zero_stage=3", key) for word in ("--set", one)]
        code, output = run("plan", "inputs/7b_4gpu.yaml", "--machine", "h200_4", "--search", "--best", "40", "--write", folder, *keys)
        expect(code == 0, f"search with {key}: {output.strip()[:300]}")
        stages = set()
        for i, deck in enumerate(sorted(folder.glob("*.yaml"))):
            text = deck.read_text()
            stage = (re.search(r"zero_stage: (\d)", text) or "00")[1]  # 0, the default, isn't written
            has = f"{name}: {key.split('=')[1]}" in text
            stages.add((stage == "3", has))
            expect(i % 5 or run("show", deck)[0] == 0, f"show refuses {deck.name} of the search with {key}")
        expect(stages == {(False, False), (True, True)}, f"search with {key}: ZeRO-3, and the key: {stages}")


def check_wrong_input(work):
    deck = "inputs/7b_4gpu.yaml"
    refused("no machine 'h100'; legal: a file, or of inputs/machines: a100_40_8", "plan", deck, "--machine", "h100")
    if not os.path.exists("inputs/machines/this.yaml"):
        refused("give --machine, a file or one of inputs/machines: a100_40_8", "plan", deck)
    refused("--candidates and --output go together", "plan", deck, "--machine", "h200_4", "--candidates", "x.csv")
    refused("--imbalance must be from 1 (all ranks get as many rows) to 1000", "plan", deck, "--machine", "h200_4", "--imbalance", "0.9")
    refused("--imbalance is of experts, and inputs/7b_4gpu.yaml has none", "plan", deck, "--machine", "h200_4", "--imbalance", "1.2")
    refused("--best must be from 1 to 1000", "plan", deck, "--machine", "h200_4", "--search", "--best", "0")
    refused("no rates for products in fp64", "plan", deck, "--machine", "h200_4", "--set", "train.precision=fp64")
    one_node = work / "one.yaml"
    text = pathlib.Path("inputs/machines/h200_4.yaml").read_text()
    one_node.write_text(text[:text.index("\nnetwork:")] + "\n")
    refused("is one node of 4 ranks", "plan", "inputs/70b_32gpu_tp4.yaml", "--machine", one_node)
    one_node.write_text(text.replace("ranks: 4", "ranks: four"))
    refused("one.yaml:4:10: node.ranks = 'four': legal: a number", "plan", deck, "--machine", one_node)


def check_launches_of_experts():
    """A product of all experts is one launch, by CUTLASS two: a block has two forward, and for each two gradients."""
    deck, blocks, microbatches = "inputs/qwen3_30b_16gpu.yaml", 4, 2
    small = ["model.layers=4", "mesh.dp_shard=1", "mesh.ep=1", "mesh.pp=1", "train.recompute=none", "train.recompute_full_layers=0", "train.overlap=none", "train.microbatch_sequences=1",
             "train.global_batch_sequences=2"]

    def launches(machine, grouped, *settings):
        asked = [word for setting in [*small, *settings] for word in ("--set", setting)]
        code, output = run("show", "--all", "--deck", deck, "--ranks", "1", "--cost", machine, *asked, FORGE_GROUPED=grouped)
        expect(code == 0, f"show --cost {machine} {grouped} {settings}: {output.strip()[:300]}")
        rows = re.findall(r"(?m)^  \w+ +products +[0-9.]+ +[0-9.]+ +([0-9]+) ", output)
        return sum(map(int, rows)), "are taken to be CUTLASS's, of two launches each" in output

    one, two = launches("h200_4", "tensor_cores"), launches("h200_4", "cutlass")
    expect(two[0] - one[0] == 6 * blocks * microbatches and not one[1] and not two[1], f"launches of experts' products: {one}, {two}")
    for machine in ("h200_4", "h100_8_efa"):
        told = launches(machine, "automatic")
        expect(told == (two[0], True), f"launches of experts' products on {machine}: {told}, not {two[0]}")
    for machine, settings in (("a100_8", []), ("b200_8", []), ("h200_4", ["machine.workspace_mib=0"])):
        told = launches(machine, "automatic", *settings)
        expect(told == (one[0], False), f"launches of experts' products on {machine} {settings}: {told}, not {one[0]}")


def check_profile(work):
    """tests/plan/compare_profile.py finds a task whose time is another one."""
    trace, deck = work / "trace.json", "inputs/7b_1gpu.yaml"
    run("plan", deck, "--machine", "h200_4", "--trace", trace)
    told = json.loads(trace.read_text())
    changed = [event for event in told["traceEvents"] if event["name"] == "update"]
    expect(len(changed) == 1, f"{len(changed)} updates in a step")
    changed[0]["dur"] *= 2
    trace.write_text(json.dumps(told))
    command = [sys.executable, "tests/plan/compare_profile.py", FORGE, "h200_4", deck, str(trace)]
    rows = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    off = [row.split()[0] for row in rows[1:-1] if not row.endswith("+0.0%")]
    expect(off == ["update", "all"] and rows[-2].startswith("all "), f"compare_profile.py: {rows}")


def check_imbalance(work):
    """Of the deck, of candidates, and of the search's layouts."""
    deck, answer, asked, told = "inputs/olmoe_8gpu.yaml", work / "answer.json", work / "asked.csv", work / "told.csv"
    asked.write_text("mesh.ep\n8\n1\n")
    steps, rows = [], []
    for options in ([], ["--imbalance", "1.3"]):
        code, output = run("plan", deck, "--machine", "h100_8", "--set", "mesh.ep=8", "--json", answer, *options)
        expect(code == 0 and ("get 1.30 x the mean's rows, in 1 round;" in output) == bool(options), f"imbalance: {output[:400]}")
        steps.append(json.loads(answer.read_text()))
        run("plan", deck, "--machine", "h100_8", "--candidates", asked, "--output", told, *options)
        rows.append([float(row["step_seconds"]) for row in csv.DictReader(told.open())])
    expect(steps[1]["step_seconds"] > 1.02 * steps[0]["step_seconds"] and steps[1]["peak_bytes"] == steps[0]["peak_bytes"], "imbalance of ep 8")
    expect(steps[0]["expert_load"] == 1 and abs(steps[1]["expert_load"] - 1.3) < 1e-3, f"expert_load: {steps}")
    expect(abs(rows[1][0] / steps[1]["step_seconds"] - 1) < 1e-5 and rows[1][1] == rows[0][1], f"candidates with imbalance: {rows}")


def check_fit(work):
    """Two runs, whose steps are those of a slower machine: its factors are found. One run on one GPU has no network."""
    slow, fitted, answer = work / "slow.yaml", work / "fitted.yaml", work / "answer.json"
    slow.write_text("like: h200_4\ncompute_speed: 0.8\nnetwork_speed: 0.5\n")
    runs = []
    for deck in ("7b_1gpu", "13b_32gpu_tp4"):
        path = f"inputs/{deck}.yaml"
        run("plan", path, "--machine", slow, "--json", answer)
        seconds = json.loads(answer.read_text())["step_seconds"]
        folder = work / deck
        folder.mkdir()
        (folder / "deck.yaml").write_text(pathlib.Path(path).read_text())
        steps = [3 * seconds] + [seconds * (1 + 0.001 * (i % 3 - 1)) for i in range(9)]  # the first one is slow
        (folder / "metrics.jsonl").write_text("".join(json.dumps({"step": i + 1, "step_seconds": s}) + "\n" for i, s in enumerate(steps)))
        runs += ["--fit", folder]
    deck = "inputs/70b_32gpu_tp4.yaml"
    code, output = run("plan", deck, "--machine", "h200_4", *runs, "--output", fitted)
    found = re.search(r"compute_speed ([\d.]+), network_speed ([\d.]+), of", output)
    expect(code == 0 and found and abs(float(found[1]) / 0.8 - 1) < 0.01 and abs(float(found[2]) / 0.5 - 1) < 0.02, f"fit: {output[:600]}")
    last = lambda text: re.search(r"a step +(\d+\.\d+) s", text)
    again = run("plan", deck, "--machine", fitted)[1]
    expect(last(output) and last(again) and abs(float(last(output)[1]) / float(last(again)[1]) - 1) < 1e-4, f"the fitted machine's file: {again[:200]}")
    code, output = run("plan", deck, "--machine", "h200_4", *runs[:2])
    found = re.search(r"compute_speed ([\d.]+), network_speed ([\d.]+), of", output)
    expect(found and abs(float(found[1]) / 0.8 - 1) < 0.01 and found[2] == "1.000", f"fit of one GPU: {output[:600]}")
    own = work / "own.yaml"
    own.write_text("like: h200_4\n")
    refused("is the machine's own file", "plan", deck, "--machine", own, *runs, "--output", own)
    expect(own.read_text() == "like: h200_4\n", "--fit changed the machine's own file")
    lines = (work / "7b_1gpu" / "metrics.jsonl").read_text()
    other = "".join(json.dumps({"step": i, "step_seconds": 99.0, "peak_bytes": 7}) + "\n" for i in range(40))  # of another layout
    (work / "7b_1gpu" / "metrics.jsonl").write_text(other + lines)
    again = run("plan", deck, "--machine", "h200_4", *runs[:2])[1]
    expect(re.search(r"compute_speed ([\d.]+), network", again)[1] == found[1], f"steps of an earlier layout count: {again[:400]}")
    (work / "7b_1gpu" / "metrics.jsonl").write_text(re.sub(r"([0-9.]+)}", lambda m: f"{1e6 * float(m[1])}}}", lines))
    refused("of runs on such a machine", "plan", deck, "--machine", "h200_4", *runs[:2])
    (work / "7b_1gpu" / "metrics.jsonl").write_text('{"step": 1, "step_seconds": 1.5}\n')
    refused("has 1 step; legal: more than 3", "plan", deck, "--machine", "h200_4", *runs)
    refused("--candidates and --fit exclude each other", "plan", deck, "--machine", "h200_4", *runs, "--candidates", "x.csv", "--output", "y.csv")
    refused("--output is where", "plan", deck, "--machine", "h200_4", "--output", "y.csv")


def calibrates():
    """Half a minute of two cores: where a third of the volume is wanted, of each third commit, by its hash."""
    draw = subprocess.run(["bash", "-c", ". tests/volume.sh; draw_below 3"], capture_output=True, text=True, check=True).stdout
    return not THIRD or int(draw) == 0


def check_calibration(work):
    """Two ranks measure this machine; the file is read back, and a deck is planned with it."""
    machine = work / "measured.yaml"
    code, output = run("calibrate", "--ranks", "2", "--output", machine)
    expect(code == 0, f"calibrate: {output.strip()[:300]}")
    text = machine.read_text()
    for key, kinds in (("gflops", 3), ("input_gradient_gflops", 3), ("weight_gradient_gflops", 3), ("weighted_swiglu_forward", 1), ("all_to_all", 1)):
        expect(len(re.findall(rf"(?m)^ +{key}: ", text)) == kinds, f"{key} of what was measured: {text[:2000]}")
    code, output = run("plan", "inputs/quickstart.yaml", "--machine", machine, "--set", "mesh.tp=2")
    expect(code == 0 and re.search(r"(?m)^  tp +\d", output), f"plan with it: {output.strip()[:400]}")
    refused("is one node of 2 ranks", "plan", "inputs/quickstart.yaml", "--machine", machine, "--set", "mesh.tp=2", "--set", "mesh.pp=2")


def check_links(work):
    """Four ranks measure the calls of two decks; the file differs from the machine that it is like in these alone."""
    machine = work / "links.yaml"
    twins = []
    for name, mesh in (("dense", ["mesh.tp=2", "train.zero_stage=3"]), ("experts", ["mesh.pp=2", "mesh.ep=2"])):
        words = [word for key in mesh for word in ("--set", key)]
        twin = work / f"{name}.yaml"
        twin.write_text(run("show", f"tests/gpu/{name}.yaml", "--ranks", "4", "--deck", *words)[1].split("resolved deck\n")[1])
        twins.append(twin)
    code, output = run("calibrate", *twins, "--ranks", "4", "--machine", "h100_8", "--output", machine)
    expect(code == 0, f"calibrate of decks: {output.strip()[:300]}")
    for row in (r"tp +all-gather +2 +1 ", r"parameter_shards +all-gather +2 +1 ", r"ep +all-to-all +2 +1 ", r"pp +send +2 +1 ", r"scalars +all-reduce +4 +1 "):
        expect(re.search(rf"(?m)^{row}", output), f"no call {row} in {output[:3000]}")
    # How well it fits times of a busy machine is no test's matter; that a fit finds factors is tests/plan's.
    expect(re.search(r"median error of \d+ calls: [\d.]+ % before, [\d.]+ % after", output), f"the fit: {output[-500:]}")
    text = machine.read_text()
    expect("like: h100_8" in text and "node: {ranks: 4}" in text, f"the measured machine: {text[:500]}")
    code, output = run("plan", twins[0], "--ranks", "4", "--machine", machine, "--set", "train.precision=bf16")
    expect(code == 0 and "fits" in output, f"plan with it: {output.strip()[:400]}")
    refused("but the world is 1 rank", "calibrate", twins[0], "--machine", "h100_8", "--output", machine)
    refused("takes decks, whose collectives it measures", "calibrate", twins[0])
    refused("takes decks, whose collectives it measures", "calibrate", "--machine", "h100_8")


def main():
    decks = sorted(map(str, pathlib.Path("inputs").glob("*gpu*.yaml"))) if LONG else ["inputs/7b_1gpu.yaml",
        "inputs/7b_8gpu_tp4.yaml", "inputs/70b_32gpu_tp4_pp4.yaml", "inputs/qwen3_30b_16gpu.yaml", "inputs/deepseek_v3_256gpu.yaml"]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for deck in decks:
            check_deck(deck, "h100_8", work)
        check_candidates(work)
        check_search(work)
        check_search_of_several_ranks(work)
        check_one_change(work)
        check_odd_meshes(work)
        check_faster_headers(work)
        check_nodes_of_gpu(work)
        check_fewest_gpus(work)
        check_blocks_recomputed_whole(work)
        check_search_of_zero3(work)
        check_imbalance(work)
        check_launches_of_experts()
        check_profile(work)
        check_fit(work)
        check_wrong_input(work)
        check_links(work)
        if calibrates():
            check_calibration(work)
    finish(f"{len(decks)} decks; ")


main()
