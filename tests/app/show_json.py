#!/usr/bin/env python3
"""show_json.py FORGE: what `forge show --json` says of every deck of inputs/ is what show prints."""
import json
import os
import pathlib
import re
import subprocess

from program import expect, finish, run



def check_deck(deck):
    code, text = run("show", deck, "--all", "--deck", "--tasks", 0, "--rates")
    expect(code == 0, f"{deck}: {text[-300:]}")
    code, answer = run("show", deck, "--json", "--tasks", 0, "--rates")
    expect(code == 0, f"{deck} --json: {answer[-300:]}")
    told = json.loads(answer)
    number = lambda pattern: int(re.search(pattern, text, flags=re.M).group(1))
    model, memory, mesh = told["model"], told["memory"], told["layout"]["mesh"]
    expect(model["parameters"] == number(r"^  all +(\d+)  = "), f"{deck}: parameters")
    tensors = [tensor for group in model["groups"] for tensor in group["tensors"]]
    expect(sum(tensor["elements"] for tensor in tensors) == model["parameters"], f"{deck}: the tensors are not all parameters")
    shown = sum(1 for line in re.findall(r"(?m)^parameters \(.*\n(?:  .*\n)+", text)[0].splitlines() if re.search(r"\) +\d+  ", line))
    expect(len(tensors) == shown, f"{deck}: {len(tensors)} tensors, {shown} are shown")
    expect(mesh["ranks"] == number(r"^mesh of (\d+) ranks?$"), f"{deck}: ranks")
    expect(mesh["ranks"] == mesh["pp"] * mesh["edp"] * mesh["ep"] * mesh["etp"], f"{deck}: the view of experts")
    expect(sum(stage["layers"] for stage in told["layout"]["stages"]) == told["deck"]["model"]["layers"], f"{deck}: layers of the stages")
    peak = max(rank["total_bytes"] for rank in memory["ranks"])
    expect(peak == number(r"^  peak +(\d+) B"), f"{deck}: memory")
    expect(all(sum(rank["bytes"].values()) == rank["total_bytes"] for rank in memory["ranks"]), f"{deck}: categories")
    table = re.search(r"^sent in a step.*?\n\n", text, flags=re.M | re.S)
    rows = re.findall(r"^  (\w+) +(\d+) +(\d+)  ", table.group(0), flags=re.M) if table else []
    sent = {group: (values["bytes"], values["calls"]) for group, values in told["sent"]["groups"].items()}
    expect(sent == {group: (int(size), int(calls)) for group, size, calls in rows}, f"{deck}: bytes sent")
    first = told["work"][0]["rows"]
    expect(sum(row["tasks"] for row in first) == len(told["tasks"]) == number(r"in a step: (\d+) tasks"), f"{deck}: tasks")
    flops = sum(task.get("flops", 0) for task in told["tasks"])
    expect(abs(sum(row["product_flops"] + row["attention_flops"] for row in first) - flops) <= 1e-9 * flops, f"{deck}: FLOP")
    for group in {group for row in first for group in row["sent_bytes"]}:
        bytes_sent = sum(row["sent_bytes"].get(group, 0) for row in first)
        expect(bytes_sent == sum(task["sent"].get(group, 0) for task in told["tasks"]), f"{deck}: {group} of the tasks")
    expect(len(told["rates"]) == len(re.findall(r"(?m)^ +\d+ +\d+ +\d+ +\d\.\d{4}e", text)), f"{deck}: rates")
    expect(len(told["warnings"]) == len(re.findall(r"(?m)^  warning ", text)), f"{deck}: warnings")
    keys = sum(map(len, told["deck"].values()))
    expect(keys == len(re.findall(r"(?m)^  \w+: ", text[text.index("\nresolved deck\n"):])), f"{deck}: {keys} keys")


def check_options():
    deck = "inputs/7b_4gpu.yaml"
    for option in ["--all", "--deck"]:
        code, output = run("show", deck, "--json", option)
        expect(code == 2 and "legal: --json without them" in output, f"--json {option}: code {code}, {output}")
    code, output = run("show", deck, "--json", "--schedule", "text")
    expect(code == 2 and "exclude each other" in output, f"--json --schedule: code {code}, {output}")
    told = json.loads(run("show", deck, "--json", "--gpu", "a100-80", "--cost", "h100_8")[1])
    expect(told["gpu"]["fits"] == (told["gpu"]["needed_bytes"] <= told["gpu"]["usable_bytes"]), "--gpu")
    launches = sum(row["launches"] for row in told["cost"]["rows"])
    expect(re.search(rf"(?m)^  all .* {launches} ", run("show", deck, "--cost", "h100_8")[1]), f"--cost: {launches} launches")


def main():
    decks = sorted(pathlib.Path("inputs").glob("*.yaml"))
    expect(len(decks) >= 60, f"only {len(decks)} decks under inputs/")
    if os.environ.get("FORGE_VOLUME") == "third" and os.environ.get("FORGE_LONG") != "1":  # drawn by the commit's hash
        draw = subprocess.run(["bash", "-c", ". tests/volume.sh; draw_below 3"], capture_output=True, text=True, check=True).stdout
        decks = decks[int(draw)::3]
    for deck in decks:
        check_deck(deck)
    check_options()
    finish(f"{len(decks)} decks; ")


main()
