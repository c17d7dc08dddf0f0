#!/usr/bin/env python3
"""compare_profile.py FORGE MACHINE DECK PROFILE [KEY=VALUE …]: what `forge plan` says of each task of a step on one rank, against a file that a run
wrote with output.profile: both number tasks alike. DECK is a file, or the name of a model of tests/benchmark/models.py, whose steps
tests/gpu/steps.py runs. Tasks of a kind whose layers are predicted alike stand together, those below 0.1 ms in one row."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benchmark"))
from compare import Forge
from models import GPU_MODELS

LEAST = 100  # microseconds


def tasks_of(path):
    """Events of the first rank's compute stream, by the number of their task."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    return {e["args"]["task"]: e for e in events if e["ph"] == "X" and e["pid"] == e["tid"] == 0 and "task" in e.get("args", {})}


def predicted_of(forge, machine, deck, keys, work):
    if deck in GPU_MODELS:
        text = Forge(forge, deck, "bf16", 1, str(work)).deck(1)
        deck = work / "deck.yaml"
        deck.write_text(text)
    told = work / "predicted.json"
    settings = [word for key in keys for word in ("--set", key)]
    subprocess.run([forge, "plan", deck, "--machine", machine, "--ranks", "1", "--trace", told, *settings], check=True, stdout=subprocess.DEVNULL)
    return tasks_of(told)


def main():
    forge, machine, deck, profile, *keys = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        predicted = predicted_of(forge, machine, deck, keys, pathlib.Path(folder))
    measured, groups = tasks_of(profile), {}
    for number, task in predicted.items():
        if number not in measured and not task["name"].startswith("read"):
            sys.exit(f"{profile} has no task {number}, {task['name']}, of the deck's step")
    for number, task in measured.items():
        seconds, name = predicted.get(number, {"dur": 0})["dur"], task["name"].split()[0]
        group = groups.setdefault((name, round(seconds)) if max(seconds, task["dur"]) >= LEAST else "others", [name, [], 0, 0])
        group[1] += [task["args"]["layer"]]
        group[2] += seconds
        group[3] += task["dur"]
    print(f"{'task':18} {'of layers':>10} {'predicted, ms':>14} {'measured':>9} {'':>7}")

    def row(name, layers, a, b):
        print(f"{name:18} {layers:>10} {a / 1e3:14.2f} {b / 1e3:9.2f} {a / b - 1:+7.1%}")

    for key, (name, layers, a, b) in groups.items():
        alone = key != "others" and layers[0] >= 0
        row("others" if key == "others" else name, f"{min(layers)} to {max(layers)}" if alone and len(layers) > 1 else str(layers[0]) if alone else "", a, b)
    row("all", "", *(sum(group[i] for group in groups.values()) for i in (2, 3)))
    host = sum(task["dur"] for number, task in predicted.items() if number not in measured) / 1e3
    print(f"and {host:.2f} ms, predicted of the host at the step's end, which is no task of a stream")


if __name__ == "__main__":
    main()
