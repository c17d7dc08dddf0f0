#!/usr/bin/env python3
"""ranges.py FORGE TOOL: a profiler that listens to NVTX (TOOL, nvtx_tool.cpp) sees each task of each step by its name, as often as
`forge show --tasks` lists it, and each of them ends. Dense and with experts."""
import collections, os, re, subprocess, sys, tempfile

forge, tool = sys.argv[1:]
steps = 2
work = tempfile.TemporaryDirectory()
log = work.name + "/ranges.txt"


def run(arguments, **variables):
    done = subprocess.run([forge, *arguments], env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: forge {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def listed(text):
    """How often a step has each operation, and how many tasks it has in all. Rows that repeat stand behind "2x |", then "|"."""
    head, rows = re.search(r"rank 0 in a step: (\d+) tasks.*\n.*\n((?:.+\n)+)", text).groups()
    counts, times = collections.Counter(), 1
    for row in rows.splitlines():
        bar = row.find("|", 0, 49)
        repeated = re.search(r"(\d+)x \|", row[: bar + 1])
        times = int(repeated[1]) if repeated else times if bar >= 0 else 1
        # `open_state` and its like are one operation, open, of different buffers.
        counts[re.sub("^(open|close)_.*", r"\1", row[48:].split()[0])] += times
    return int(head), counts


failed = False
for problem in ("llama", "mixtral"):
    deck = [f"verify/{problem}/input.yaml", "--set", f"output.directory={work.name}/{problem}", "--set", "machine.workspace_mib=1"]
    deck += ["--set", f"train.steps={steps}", "--set", "optimizer.warmup_steps=1"]
    total, tasks = listed(run(["show", *deck, "--tasks", "0"]))
    run(deck, NVTX_INJECTION64_PATH=os.path.abspath(tool), FORGE_NVTX_LOG=log)
    names = open(log).read().splitlines()
    heard = collections.Counter(name.split()[0].rstrip(",") for name in names)
    expected = {name: steps * n for name, n in tasks.items()}
    layers = {name for name in names if re.fullmatch(r"forward F c0 m\d+, layer \d+", name)}
    fine = heard == expected and len(names) == steps * total and len(layers) == tasks["forward"]
    print(f"{problem}: {len(names)} ranges, {len(layers)} forwards of a layer: {'as listed' if fine else f'FAILED: {heard}, listed {expected}'}")
    failed |= not fine
sys.exit(failed)
