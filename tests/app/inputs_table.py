#!/usr/bin/env python3
"""inputs_table.py FORGE [--write]: inputs/README.md has a row for each deck, as `forge show` and `forge plan` print them: sizes, axes, memory,
speed on the machine that the deck's header names (`# machine: NAME`), and the first sentence of that header. --write writes the page; without
it the page is compared, with FORGE_VOLUME=third a third of its decks, drawn by the commit's hash."""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FORGE = os.path.abspath(sys.argv[1])
PAGE = Path("inputs/README.md")
# Decks with dp_shard: -1 that don't fit one GPU: the column GPUs, and how they are shown.
ANY_RANKS = {"7b": ("2 and more", ["--ranks", "2", "--set", "train.global_batch_sequences=64"])}
HEAD = """# Decks

`tests/app/inputs_table.py build/cpu/forge --write` writes this page, and a test holds it to `forge show` and `forge plan`. **Speeds are predictions**
(+- 30 %) for the machine of the line `# machine:` in a deck's header, a file of inputs/machines; no deck has been run on several GPUs.
[choosing.md](../docs/choosing.md) has the rules and their reasons. On a deck of your own:

    build/cpu/forge show inputs/7b_4gpu.yaml --gpu h100-80        # does it fit, and if not, the nearest change that does
    build/cpu/forge plan inputs/7b_4gpu.yaml --machine h100_8 --search

## By number of GPUs

| GPUs | the guides | by `forge plan` | begin with |
|---|---|---|---|
| 1 | – | recompute full, states in bf16 | 7b_1gpu_80gb, finetune_lora_8b |
| 8 | tp 8, or ZeRO 3 | shards alone; experts with ep 8 | playbook_4b_8gpu, llama3_8b_8k_8gpu_cp2, olmoe_8gpu |
| 16–64 | tp 8 with pp or with ZeRO 3 | shards alone while a sequence fits a GPU, else tp up to 4; pp last | 7b_16gpu_adamw, 70b_32gpu, qwen3_30b_16gpu_fsdp |
| 128–512 | tp 8, pp, dp with ZeRO 1 or 2 | tp and pp with ZeRO 1: ZeRO 2 sums gradients after each microbatch | llama3_405b_256gpu, glm45_128gpu, qwen3_235b_256gpu |
| 1,024 and more | all axes: tp 8, pp, dp with ZeRO 2, cp for long sequences, ep for experts | pp by depth, ep by experts, tp by active parameters, ZeRO 1 | llama3_405b_1024gpu, deepseek_v3_1024gpu |

## All decks

Memory is the largest rank's, libraries included; tokens/s are a GPU's. [finetune/chat.yaml](finetune/chat.yaml) fine-tunes a Hugging Face model
on chats ([fine-tuning](../docs/finetuning.md#chats)); its size is that model's.
"""
SECTIONS = [("1 to 7 GPUs", 1), ("8 GPUs", 8), ("12 to 64 GPUs", 9), ("128 to 512 GPUs", 65), ("1,024 GPUs and more", 513)]
COLUMNS = """
| deck | GPUs | parameters | sequence | layout | memory | tokens/s | machine | purpose |
|---|---|---|---|---|---|---|---|---|
"""


def run(arguments):
    done = subprocess.run([FORGE, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"forge {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def header(deck):
    """Machine ("": none) and first sentence of the comments before the first key."""
    comments = re.match(r"(#.*\n)*", Path(f"inputs/{deck}.yaml").read_text()).group()
    machine = re.search(r"^# machine: (\w+)$", comments, re.M)
    first = " ".join(comments.split("\n#\n")[0].replace("#", " ").split())
    first = re.sub(r"^KempnerForge's preset \w+: ", "", re.sub(r" \([^)]*\)", "", first))
    first = re.split(r"\.(?= |$)", first)[0]
    return machine.group(1) if machine else "", first[0].upper() + first[1:]


def layout(shown):
    mesh, deck = shown["layout"]["mesh"], shown["deck"]
    axes = [f"{axis} {mesh[axis]}" for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp") if mesh[axis] > 1]
    if deck["schedule"]["virtual_stages"] > 1:
        axes[0] += f" of {deck['schedule']['virtual_stages']} chunks"
    if deck["model"]["experts"] > 0 and (mesh["ep"] > 1 or mesh["etp"] > 1):
        axes += [f"{axis} {mesh[axis]}" for axis in ("ep", "etp") if mesh[axis] > 1]
    if mesh["dp_shard"] > 1:
        axes.append(f"ZeRO {deck['train']['zero_stage']}")
    return ", ".join(axes) or "–"


def speed(deck, machine, options):
    """Bytes of the largest rank and tokens a second and GPU, by forge plan."""
    with tempfile.TemporaryDirectory() as work:
        asked, told = os.path.join(work, "asked.csv"), os.path.join(work, "told.csv")
        Path(asked).write_text("train.seed\n1\n")
        run(["plan", f"inputs/{deck}.yaml", "--machine", machine, *options, "--candidates", asked, "--output", told])
        row = next(csv.DictReader(open(told)))
    if row["fits"] != "true":
        sys.exit(f"inputs/{deck}.yaml doesn't fit the GPUs of {machine}")
    return int(row["peak_bytes"]), float(row["tokens_per_second_per_rank"])


def billions(count):
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"


def row(deck):
    """(ranks, line of the table)."""
    machine, purpose = header(deck)
    gpus, options = ANY_RANKS.get(deck, ("", []))
    shown = json.loads(run(["show", f"inputs/{deck}.yaml", "--json", *options]))
    ranks = shown["layout"]["mesh"]["ranks"]
    size = billions(shown["model"]["parameters"])
    if shown["deck"]["model"]["experts"] > 0:
        size += f", {billions(shown['model']['active_parameters'])} active"
    peak, tokens = max(rank["total_bytes"] for rank in shown["memory"]["ranks"]), "–"
    if machine:
        peak, each = speed(deck, machine, options)
        tokens = f"{float(f'{each:.3g}'):,.0f}"
    memory = f"{peak / 2**30:.1f} GiB" if peak >= 2**30 else f"{peak / 2**20:.0f} MiB"
    sequence = f"{shown['deck']['train']['sequence_tokens']:,}"
    cells = (f"[{deck}]({deck}.yaml)", gpus or f"{ranks:,}", size, sequence, layout(shown), memory, tokens, machine or "any", purpose)
    return ranks, "| " + " | ".join(cells) + " |"


def drawn(decks):
    if os.environ.get("FORGE_VOLUME") != "third" or os.environ.get("FORGE_LONG") == "1":
        return decks
    commit = subprocess.run(["git", "rev-parse", "--short=4", "HEAD"], capture_output=True, text=True).stdout.strip() or "0"
    return decks[int(commit, 16) % 3::3]


def page(rows):
    text, bounds = HEAD, [first for _, first in SECTIONS] + [1 << 30]
    for (title, first), end in zip(SECTIONS, bounds[1:]):
        lines = [line for _, line in sorted(((ranks, deck), line) for deck, (ranks, line) in rows.items() if first <= ranks < end)]
        text += f"\n### {title}\n{COLUMNS}" + "\n".join(lines) + "\n"
    return text


def main():
    decks = sorted(path.stem for path in Path("inputs").glob("*.yaml"))
    write = sys.argv[2:] == ["--write"]
    asked = decks if write else drawn(decks)
    with ThreadPoolExecutor(2) as threads:
        rows = dict(zip(asked, threads.map(row, asked)))
    for deck in re.findall(r"\b\w+gpu\w*\b", HEAD.split("## All decks")[0].split("begin with |")[1]):
        if deck not in decks:
            sys.exit(f"the page's head names {deck}, which is no deck")
    if write:
        PAGE.write_text(page(rows))
        return
    there = PAGE.read_text()
    for line, deck, gpus in re.findall(r"^(\| \[(\w+)\]\S+ \| ([^|]*) \|.*)$", there, re.M):
        rows.setdefault(deck, (int(re.sub(r"\D", "", gpus)), line))  # of the others the page's own line
    wanted = page(rows)
    wrong = sorted(set(wanted.split("\n")) ^ set(there.split("\n")))
    for line in wrong:
        print("inputs/README.md", "has" if line in there else "doesn't have", line)
    if wanted != there or len(rows) != len(decks):
        sys.exit(f"inputs/README.md isn't what tests/app/inputs_table.py {sys.argv[1]} --write writes")
    print(f"{len(asked)} of {len(decks)} decks are as inputs/README.md has them")


if __name__ == "__main__":
    main()
