#!/usr/bin/env python3
"""steps.py FORGE: what a steady step of training asks an emulated GPU for (docs/notes/vgpu.md, "A steady step"): no memory, as many
collectives as `forge show` says, and the copies and waits that are listed there; every step the same. And that a block launches
what `forge show --cost` counts. FORGE_STEPS=REGEX takes what matches alone of the names that are printed."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FORGE = sys.argv[1]
THIRD = os.environ.get("FORGE_VOLUME") == "third"  # of the volume: of most lists each third, drawn by the commit's hash
SETTINGS = ["machine.workspace_mib=1", "machine.peak_tflops=1", "optimizer.warmup_steps=0"]
FEED = 6  # tokens, labels, positions, documents, samples, order of tokens
FP8 = [  # recipes, with what else is launched for them
    ("current",),
    ("current", "train.recompute=full"),
    ("row",),
    ("block", "train.fp8_transposed=true"),
    ("delayed",),
    ("delayed", "train.recompute=full"),
    ("current", "train.fp8_experts=true"),
    ("block", "train.fp8_experts=true"),
]
ONLY = os.environ.get("FORGE_STEPS", "")
CHOICES, FEW = "choices of algorithms", 8  # for products of a shape that no step before had
BLOCK_MICROBATCHES = 2  # one clears sums of gradients, one adds to them
FIRST, NEXT, LAST = 1, 2, 4  # steps of three runs: what happens at the beginning and the end is in all of them


def drawn(rows):
    """Each third, where a third of the volume is wanted; sources without a repository have the first ones."""
    if not THIRD:
        return rows
    shown = ["sh", "-c", "git rev-parse --short=4 HEAD 2> /dev/null || echo 0"]  # sources without a repository, or without git
    commit = subprocess.run(shown, capture_output=True, text=True).stdout.strip()
    return rows[int(commit, 16) % 3::3]


def wanted(name):
    """Whether FORGE_STEPS asks for it."""
    asked = re.search(ONLY, name) is not None
    wanted.found += asked
    return asked


wanted.found = 0


def run(command, environment=None):
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def parted(options):
    """The words of a command line that set keys, and what are variables of the environment (FORGE_…)."""
    variables = dict(option.split("=", 1) for option in options if option.startswith("FORGE_"))
    return [word for option in options if not option.startswith("FORGE_") for word in ("--set", option)], variables


def counts_of(deck, steps, variables):
    """What each device counted, by its number; launches of kernels under their names."""
    with tempfile.TemporaryDirectory() as work:
        report = pathlib.Path(work, "report")
        run([FORGE, *deck, "--set", f"train.steps={steps}", "--set", f"output.directory={work}/run"],
            {"FORGE_VGPU_REPORT": str(report), "FORGE_VGPU_SEED": str(steps), **variables})
        lines = [json.loads(line) for line in report.read_text().splitlines()]
    kernels = [{f"kernel {name}": n for name, n in line.pop("launches").items()} for line in lines]
    return {line.pop("device"): {**line, **launches} for line, launches in zip(lines, kernels)}


def planned_calls(deck):
    """Calls of all groups in the table of `forge show`."""
    table = re.search(r"^sent in a step.*?\n\n", run([FORGE, "show", "--all", *deck]), flags=re.M | re.S)
    rows = re.findall(r"^  \w+ +\d+ +(\d+)  ", table.group(0), flags=re.M) if table else []
    return sum(map(int, rows))


def planned_reads(deck, variables):
    """Times that the host waits for counts of experts' rows, by `forge show --cost`, which has no rates of fp64."""
    if not any(word.startswith("train.precision=") for word in deck):
        deck = [*deck, "--set", "train.precision=bf16"]
    said = re.search(r"waits for counts of experts' rows (\d+) times", run([FORGE, "show", *deck, "--cost", "h100_8"], variables))
    return int(said.group(1)) if said else 0


def check(name, problem, options, ranks, layers_with_experts, microbatches, reads=1):
    """reads: passes in which the host waits for counts, of each layer with experts and microbatch: by default forward alone."""
    if not wanted(name):
        return
    settings, variables = parted(SETTINGS + options)
    deck = [f"verify/{problem}/input.yaml", "--ranks", str(ranks), *settings]
    first, following, last = (counts_of(deck, n, variables) for n in (FIRST, NEXT, LAST))
    if sorted(first) != list(range(ranks)):
        sys.exit(f"{name}: devices {sorted(first)} reported, not {ranks}")
    passes = reads * layers_with_experts * microbatches
    if (planned := planned_reads(deck, variables)) != passes:
        sys.exit(f"{name}: `forge show --cost` counts {planned} reads of counts, not {passes}")
    routers = 1 if layers_with_experts else 0
    expected = {
        "allocations": 0,
        "allocated bytes": 0,
        "most bytes in use": 0,
        "copies to the device": FEED * microbatches,
        "copies to the host": 1 + routers + passes,
        "host waits": 1 + passes,
        "pageable copies": 0,
        "launches of NCCL": planned_calls(deck) if ranks > 1 else 0,
    }
    if ranks > 1 and expected["launches of NCCL"] == 0:
        sys.exit(f"{name}: `forge show` has no table of calls")
    wrong = []
    for device in first:
        a, b, c = (counts.get(device, {}) for counts in (first, following, last))
        if not any(key.startswith("kernel ") and b[key] > a.get(key, 0) for key in b):
            wrong.append(f"device {device} has launched no kernel in a step")
        for key in sorted({*a, *b, *c, *expected}):
            step, two = b.get(key, 0) - a.get(key, 0), c.get(key, 0) - b.get(key, 0)
            if key == CHOICES:  # of numbers of rows that an algorithm of more of them doesn't serve
                if step > FEW:
                    wrong.append(f"device {device}, {key}: {step} in a step, more than {FEW}")
                continue
            if two != (LAST - NEXT) * step:
                wrong.append(f"device {device}, {key}: {step} in step {NEXT}, {two} in the {LAST - NEXT} behind it")
            if step != expected.get(key, step):
                wrong.append(f"device {device}, {key}: {step} in a step, not {expected[key]}")
    if wrong:
        sys.exit(f"{name}:\n  " + "\n  ".join(wrong))
    print(f"{name}: {expected}")


def launches_of(deck, variables):
    """Kernels and products of a step, but for the optimizer's: counted, and by `forge show --cost`."""
    first, following = (counts_of(deck, n, variables)[0] for n in (FIRST, NEXT))
    counted = 0
    for key, n in following.items():
        if key == "products" or key.startswith("kernel ") and not re.search("update_weights|sum_of_squares|sum_into", key):
            counted += n - first.get(key, 0)
    table = run([FORGE, "show", *deck, "--cost", "h100_8"], variables)
    planned = re.findall(r"^  \w+ +(?:products|attention|rows) +[0-9.]+ +[0-9.]+ +([0-9]+) ", table, flags=re.M)
    return counted, sum(map(int, planned))


def check_block(name, deck, options, most=None, precision="bf16", ranks=1):
    """What one block more adds to a step of two microbatches, at most `most` for each. Returns it."""
    if not wanted(name):
        return None
    settings = [*SETTINGS, f"train.precision={precision}", f"train.global_batch_sequences={BLOCK_MICROBATCHES * ranks}", *options]
    parts = (parted([*settings, f"model.layers={n}"]) for n in (2, 3))
    two, three = (launches_of([deck, "--ranks", str(ranks), *words], variables) for words, variables in parts)
    counted, planned = (b - a for a, b in zip(two, three))
    counted -= any(word.startswith("model.capacity_factor=") for word in options)  # a step's report of a layer's dropped assignments
    if counted <= 0 or counted != planned:
        sys.exit(f"{name}: a block launches {counted / BLOCK_MICROBATCHES}, not {planned / BLOCK_MICROBATCHES}")
    if most and counted > BLOCK_MICROBATCHES * most:
        sys.exit(f"{name}: a block launches {counted / BLOCK_MICROBATCHES}, more than {most}")
    print(f"{name}: a block launches {counted // BLOCK_MICROBATCHES} a microbatch")
    return counted


def main():
    check_block("dense", "tests/gpu/dense.yaml", [], 27)
    for name, model, options, most in drawn([
            ("dense, biases and QK-norm", "dense", ["model.qk_norm=true", "model.qkv_bias=true", "model.attention_out_bias=true"], 36),
            ("dense, norms and activations recomputed", "dense", ["train.recompute=selective"], 29),
            ("dense, all recomputed", "dense", ["train.recompute=full"], 34),
            ("dense, LayerNorm", "dense", ["model.norm=layernorm"], None),
            ("experts, one by one", "experts", ["model.forced_balance=true", "FORGE_GROUPED=library"], 95)]):
        check_block(name, f"tests/gpu/{model}.yaml", options, most)
    grouped = ["model.forced_balance=true", "FORGE_GROUPED=tensor_cores", "model.expert_ffn=24"]
    eight = check_block("experts, grouped products", "tests/gpu/experts.yaml", grouped, 53)
    four = check_block("4 experts, grouped products", "tests/gpu/experts.yaml", [*grouped, "model.experts=4"])
    if eight and four and eight != four:
        sys.exit("grouped products: launches of a block grow with the number of experts")
    # Rows that travel: the same launches, whatever the number of ranks. ZeRO 0: nothing else of a block is launched for several ranks.
    split = [*grouped, "mesh.dp_shard=2", "train.zero_stage=0"]
    for name, *options in drawn([
            ("experts, two ranks", "mesh.ep=2"),
            ("experts, two ranks of etp", "mesh.dp_shard=1", "mesh.tp=2", "mesh.etp=2"),
            ("experts, all rows gathered, dropped rows", "mesh.ep=2", "model.dispatch=all_gather", "model.capacity_factor=1"),
            ("experts, two ranks, recomputed", "mesh.ep=2", "train.recompute=full"),
            ("experts, two ranks, behind shared ones", "mesh.ep=2", "model.shared_expert_ffn=32", "model.capacity_factor=1")]):
        check_block(name, "tests/gpu/experts.yaml", [*split, *options], ranks=2)
    for recipe, *more in drawn(FP8):
        experts = "train.fp8_experts=true" in more
        options = [f"train.fp8_recipe={recipe}", *more, *(grouped if experts else [])]
        most = {"current": 43, "delayed": 35}.get(recipe) if not more else None
        check_block(", ".join(["fp8", recipe, *more]), f"tests/gpu/{'experts' if experts else 'dense'}.yaml", options, most, "fp8")
    grouped = ["train.precision=bf16"]  # by itself
    rows = ["train.precision=fp8", "train.fp8_experts=true", "train.fp8_dispatch=true"]
    single = "train.microbatch_sequences=1"
    for step in drawn([
            ("dense, one rank", "llama", [single], 1, 0, 2),
            ("experts, two ranks", "qwen3_moe", ["mesh.dp_shard=2", "mesh.ep=2", single], 2, 2, 2),
            ("experts, two ranks, recomputed", "qwen3_moe", ["mesh.dp_shard=2", "mesh.ep=2", "train.recompute=full", single], 2, 2, 2, 2),
            ("grouped products in rounds", "mixtral", [*grouped, "model.dispatch_rows=0.4", "train.recompute=full"], 1, 2, 2, 0),
            ("grouped products of rows sent as codes", "mixtral", rows, 1, 2, 2, 0),
            ("dense, two ranks", "llama", ["mesh.dp_shard=2", "train.zero_stage=3", single], 2, 0, 1),
            ("experts one by one, one rank", "mixtral", ["FORGE_GROUPED=library"], 1, 2, 2),
            ("grouped products, dropped rows", "mixtral", [*grouped, "model.capacity_factor=0.5"], 1, 2, 2, 0)]):
        check(*step)
    if not wanted.found:
        sys.exit(f"FORGE_STEPS={ONLY} matches none of the names")


main()
