#!/usr/bin/env python3
"""forge against PyTorch in the same run: whole training steps of four models, the contenders in turn.

    python3 tests/benchmark/compare.py [--models tiny 32m 162m moe22m] [--precision fp32 bf16] [--repeats 5]

Every repeat runs each contender once: PyTorch eager and compiled, forge, in the precisions asked for, and the plain
fp32 matrix products of a step as the limit. A contender's time of a repeat is the median of its steps after warm-up;
what is printed is the median over the repeats, and of the ratios forge / PyTorch within a repeat. FLOPs are 6 per
weight of a matrix product (with the head, without the input embedding) plus causal attention counted half.
Needs torch, and forge's build for the CPU.
"""

import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from models import GPU_MODELS, MODELS

HERE = os.path.dirname(os.path.abspath(__file__))
MPIRUN = os.path.join(HERE, "..", "mpirun.sh")  # what it sets serves Open MPI 4 and 5
WARM_UP = 3


class Peer:
    """A PyTorch process that stays, so that its model is compiled once."""

    def __init__(self, name, precision, compiled, threads):
        command = [
            sys.executable,
            os.path.join(HERE, "peer.py"),
            "--serve",
            "--model",
            name,
            "--precision",
            precision,
            "--threads",
            str(threads),
        ] + ["--compile"] * compiled
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(threads)
        )
        self.label = f"PyTorch {precision}{' compiled' if compiled else ''}"
        self.ask(f"steps {WARM_UP}")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.label} ended with {self.process.wait()}")
        return json.loads(line)

    def step_seconds(self, steps):
        return statistics.median(self.ask(f"steps {steps}")["seconds"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Forge:
    """One `forge train` for each repeat, with a deck made here."""

    def __init__(self, program, name, precision, threads, folder):
        self.program, self.threads, self.label = program, threads, f"forge {precision}"
        self.model, self.name, self.precision, self.folder = (MODELS | GPU_MODELS)[name], name, precision, folder

    def deck(self, steps):
        m = self.model
        dense = "qwen2" if m.qkv_bias else "llama"
        family = dense if not m.experts else "qwen3_moe" if m.qk_norm else "mixtral"
        experts = f",\n   experts: {m.experts}, experts_per_token: {m.active}" if m.experts else ""
        heads = f",\n   head_dim: {m.head_dim}, qk_norm: {str(m.qk_norm).lower()}" if m.head or m.qk_norm else ""
        heads += ", qkv_bias: true" * m.qkv_bias + ", tied_embeddings: true" * m.tied
        states = ", moments: bf16, master_weights: bf16, gradients: bf16" * m.bf16_states
        return f"""\
model:
  {{family: {family}, layers: {m.layers}, width: {m.width}, heads: {m.heads}, kv_heads: {m.kv_heads}, ffn: {m.ffn},
   vocabulary: {m.vocabulary}{experts}{heads}}}
train:
  {{steps: {steps}, global_batch_sequences: {m.batch}, microbatch_sequences: {m.batch // m.microbatches}, sequence_tokens: {m.tokens},
   precision: {self.precision}, recompute: {m.recompute}}}
optimizer: {{learning_rate: 3.0e-4, schedule: constant{states}}}
data: {{files: [{self.folder}/{self.name}.bin], dtype: uint32}}
output: {{directory: {self.folder}/run, every_steps: {steps}}}
machine: {{threads: {self.threads}}}
"""

    def command(self, deck):
        return [self.program, "train", deck]

    def environment(self):
        return environment(self.threads)

    def write_tokens(self, steps):
        tokens = os.path.join(self.folder, f"{self.name}.bin")
        count = (WARM_UP + steps) * self.model.step_tokens + 1
        if not os.path.exists(tokens) or os.path.getsize(tokens) < 4 * count:
            with open(tokens, "wb") as file:
                array.array("I", random.Random(1).choices(range(self.model.vocabulary), k=count)).tofile(file)

    def step_seconds(self, steps):
        self.write_tokens(steps)
        deck = os.path.join(self.folder, "input.yaml")
        with open(deck, "w") as file:
            file.write(self.deck(WARM_UP + steps))
        done = subprocess.run(self.command(deck), env=self.environment(), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{self.label} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as file:
            seconds = [line["step_seconds"] for line in map(json.loads, file) if "loss" in line]
        if len(seconds) != WARM_UP + steps:
            raise RuntimeError(f"{self.label}: metrics.jsonl has {len(seconds)} steps, not {WARM_UP + steps}")
        return statistics.median(seconds[WARM_UP:])

    def close(self):
        pass


def environment(threads):
    return dict(os.environ) | {"OMP_NUM_THREADS": str(threads)}


def contenders(name, arguments, folder):
    peers = [
        Peer(name, precision, compiled, arguments.threads)
        for precision in arguments.precision
        for compiled in ([False] if arguments.skip_compile else [False, True])
    ]
    if not os.path.exists(arguments.forge):
        print(f"{name}: there is no {arguments.forge}; PyTorch alone is measured")
        return peers, []
    return peers, [
        Forge(os.path.abspath(arguments.forge), name, precision, arguments.threads, folder)
        for precision in arguments.precision
    ]


def measure(name, arguments, folder):
    """Label to seconds of a step, one for each repeat; and the limit's seconds and GFLOP/s."""
    peers, forges = contenders(name, arguments, folder)
    steps = arguments.steps or MODELS[name].steps
    times, limits = {c.label: [] for c in peers + forges}, []
    try:
        for repeat in range(arguments.repeats):
            turn = peers + forges
            shift = repeat % len(turn)  # so that nobody always runs behind the same other
            for contender in turn[shift:] + turn[:shift]:
                times[contender.label].append(contender.step_seconds(steps))
            limits.append(peers[0].ask("sgemm"))
    finally:
        for contender in peers + forges:
            contender.close()
    return times, limits


def best(times, start):
    """The label beginning with `start` that has the smallest median."""
    labels = [label for label in times if label.startswith(start)]
    return min(labels, key=lambda label: statistics.median(times[label])) if labels else None


def ratio(times, over, under):
    """Median over the repeats of speed(over) / speed(under)."""
    return statistics.median(u / o for o, u in zip(times[over], times[under]))


def report(name, times, limits):
    model = MODELS[name]
    gflops = statistics.median(limit["gflops"] for limit in limits)
    limit_seconds = statistics.median(limit["seconds"] for limit in limits)
    print(
        f"\n{name}: C {model.width}, L {model.layers}, H/K {model.heads}/{model.kv_heads}, F {model.ffn}, V "
        f"{model.vocabulary}, {model.batch} x {model.tokens}; {model.flops_per_token() / 1e6:.1f} MFLOP a token"
    )
    print(f"  {'':24s} {'tokens/s':>9s} {'slowest':>9s} {'fastest':>9s} {'GFLOP/s':>9s} {'of sgemm':>9s}")
    for label, seconds in times.items():
        rate = model.step_tokens / statistics.median(seconds)
        speed = rate * model.flops_per_token() / 1e9
        print(
            f"  {label:24s} {rate:9.0f} {model.step_tokens / max(seconds):9.0f} "
            f"{model.step_tokens / min(seconds):9.0f} {speed:9.1f} {speed / gflops:9.2f}"
        )
    print(f"  {'sgemm, products alone':24s} {model.step_tokens / limit_seconds:9.0f} {'':9s} {'':9s} {gflops:9.1f}")
    peer, forge = best(times, "PyTorch"), best(times, "forge")
    if forge is None:
        return
    for label in [label for label in times if label.startswith("forge")]:
        same = best(times, label.replace("forge", "PyTorch"))
        print(f"  {label} / {same}: {ratio(times, label, same):.2f}")
    print(f"  best / best ({forge} / {peer}): {ratio(times, forge, peer):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="timed steps of a repeat; default: the model's own")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--skip-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--forge", default="build/cpu/forge")
    arguments = parser.parse_args()
    if arguments.repeats < 1 or arguments.steps < 0 or arguments.threads < 1:
        parser.error("--repeats and --threads must be at least 1, --steps at least 0")
    print(f"{arguments.threads} threads, {arguments.repeats} repeats")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            times, limits = measure(name, arguments, folder)
        report(name, times, limits)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
