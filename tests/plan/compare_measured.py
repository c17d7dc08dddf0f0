#!/usr/bin/env python3
"""compare_measured.py FORGE [LAYOUTS [REPEATS [RANKS,…]]]: what `forge plan` says of drawn layouts of two small models on this machine,
against training them. Measures the machine with `forge calibrate` for each number of ranks, then trains each layout REPEATS times in
turn (median of the steps behind the second, then of the runs), and prints ratios. Needs mpirun and a quiet machine; not a test."""
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

FORGE = os.path.abspath(sys.argv[1])
LAYOUTS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
REPEATS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
RANKS = [int(n) for n in sys.argv[4].split(",")] if len(sys.argv) > 4 else [1, 2]
STEPS = 6
BASE = ["optimizer.warmup_steps=2", f"train.steps={STEPS}", "data.validation_files=[]", "train.validate_every_steps=0",
        "train.validation_sequences=0", "output.sample_prompt=", "output.sample_tokens=0", "output.save_hf=false", "data.dtype=uint16",
        "checkpoint.directory=", "checkpoint.every_steps=0", "checkpoint.keep_last=0", "checkpoint.resume=never",
        "machine.peak_tflops=1", "train.global_batch_sequences=8"]
MODELS = {"dense": [], "experts": ["model.family=mixtral", "model.experts=8", "model.experts_per_token=2", "model.expert_ffn=352"]}
MPIRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpirun.sh")


def command(ranks, *arguments):
    launcher = [MPIRUN, str(ranks)] if ranks > 1 else []
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks)), **os.environ}
    return subprocess.run([*launcher, FORGE, *arguments], capture_output=True, text=True, env=environment)


def options(settings):
    return [word for setting in settings for word in ("--set", setting)]


def drawn(ranks, model, draw):
    """Keys of a layout; perhaps not legal."""
    axes = {"pp": 1, "dp_shard": 1, "cp": 1, "tp": 1}
    left = ranks
    while left > 1:
        axes[draw.choice(list(axes))] *= 2
        left //= 2
    keys = [f"mesh.{axis}={n}" for axis, n in axes.items()]
    if model == "experts":
        keys.append(f"mesh.ep={draw.choice([n for n in (1, 2, 4, 8) if (ranks // axes['pp']) % n == 0])}")
    keys.append(f"train.microbatch_sequences={draw.choice([1, 2, 4])}")
    keys.append(f"train.recompute={draw.choice(['none', 'selective', 'full'])}")
    if axes["dp_shard"] * axes["cp"] > 1:
        keys.append(f"train.zero_stage={draw.choice([0, 1, 2, 3])}")
    if axes["pp"] > 1:
        keys.append(f"schedule.name={draw.choice(['1f1b', 'gpipe', 'zero_bubble'])}")
    return keys


def predicted(machine, settings):
    done = subprocess.run([FORGE, "plan", "inputs/quickstart.yaml", "--machine", machine, "--json", machine + ".json",
                           *options(settings)], capture_output=True, text=True)
    return json.load(open(machine + ".json"))["step_seconds"] if done.returncode == 0 else None


def trained(ranks, settings, work):
    run = work / "run"
    done = command(ranks, "inputs/quickstart.yaml", *options([*settings, f"output.directory={run}"]))
    if done.returncode != 0:
        sys.exit(f"training failed: {done.stdout}{done.stderr}")
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    subprocess.run(["rm", "-r", str(run)], check=True)
    return statistics.median(step["step_seconds"] for step in steps if step.get("step", 0) > 2)


def main():
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        tokens = work / "tokens.bin"
        tokens.write_bytes(bytes(b for _ in range(200000) for b in (draw.randrange(256), 0)))
        base = [*BASE, f"data.files=[{tokens}]"]
        machines, cases = {}, []
        for ranks in RANKS:
            machines[ranks] = str(work / f"machine_{ranks}.yaml")
            done = command(ranks, "calibrate", "--output", machines[ranks])
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)
        cells = [(ranks, model) for ranks in RANKS for model in MODELS]
        while len(cases) < LAYOUTS:
            ranks, model = cells[len(cases) % len(cells)]
            keys = drawn(ranks, model, draw)
            settings = [*base, *MODELS[model], *keys]
            seconds = predicted(machines[ranks], settings)
            name = f"{model} on {ranks}: " + " ".join(re.sub(r"^\w+\.", "", key) for key in keys if not key.endswith("=1") or "micro" in key)
            if seconds and all(name != case[0] for case in cases):
                cases.append((name, ranks, model, settings, seconds, []))
        for repeat in range(REPEATS):
            print(f"repeat {repeat + 1} of {REPEATS}", file=sys.stderr)
            for name, ranks, model, settings, seconds, times in cases:
                times.append(trained(ranks, settings, work))
    report([(name, ranks, model, seconds, statistics.median(times)) for name, ranks, model, settings, seconds, times in cases])


def report(results):
    """Errors of the layouts, apart for more ranks than this machine has processors, and whether the plan finds each cell's best."""
    groups, cells = {}, {}
    for name, ranks, model, seconds, measured in results:
        print(f"{1e3 * measured:9.1f} ms measured {1e3 * seconds:9.1f} ms predicted {seconds / measured - 1:+7.1%}  {name}")
        group = "up to" if ranks <= os.cpu_count() else "more than"
        groups.setdefault(group, []).append(abs(seconds / measured - 1))
        cells.setdefault((ranks, model), []).append((seconds, measured))
    for group, errors in groups.items():
        print(f"{len(errors)} layouts on {group} {os.cpu_count()} ranks: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    found = 0
    for cell in cells.values():
        best = min(measured for _, measured in cell)
        found += best in [measured for _, measured in sorted(cell)[:3]]
    print(f"the fastest is one of the three that the plan puts first in {found} of {len(cells)} pairs of model and ranks")


main()
