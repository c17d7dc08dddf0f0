#!/usr/bin/env python3
"""forge against PyTorch over gloo in the same run: the 32 M model in fp32 on several ranks of this machine.

    python3 tests/benchmark/parallel.py [--layouts ddp2 fsdp2 tp2 tp4xfsdp2] [--repeats 3] [--steps 3] [--threads-too]

Every repeat runs each contender of a layout once: PyTorch eager and compiled (DistributedDataParallel, fully_shard,
tensor with sequence parallelism), forge under mpirun and, with --threads-too, with ranks as threads. Steps are whole:
forward, backward, clipping, AdamW, the same number of tokens for all. What is printed is the median over the repeats
and of the ratios within a repeat, as in compare.py. Each rank has the cores divided by the ranks, at least one.
"""

import argparse
import dataclasses
import os
import socket
import statistics
import subprocess
import sys
import tempfile

from compare import HERE, MPIRUN, WARM_UP, Forge, Peer, best, ratio
from models import MODELS


@dataclasses.dataclass(frozen=True)
class Layout:
    data: int
    tp: int
    zero: tuple  # forge's train.zero_stage, one contender each
    peer: tuple = ()  # further options of parallel_peer.py

    @property
    def ranks(self):
        return self.data * self.tp

    @property
    def threads(self):
        return max(1, len(os.sched_getaffinity(0)) // self.ranks)


LAYOUTS = {
    "ddp2": Layout(2, 1, (0,), ("--replicate",)),
    "fsdp2": Layout(2, 1, (3,)),
    "fsdp2-keep": Layout(2, 1, (2,), ("--keep",)),  # parameters gathered once a step
    "tp2": Layout(1, 2, (0,)),
    "tp4xfsdp2": Layout(2, 4, (3,)),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ParallelPeer(Peer):
    """PyTorch processes that stay; the first of them answers."""

    def __init__(self, name, layout, compiled):
        options = ["--model", name, "--data", layout.data, "--tp", layout.tp, "--threads", layout.threads]
        command = [sys.executable, os.path.join(HERE, "parallel_peer.py"), *map(str, options), *layout.peer]
        command += ["--compile"] * compiled
        common = dict(os.environ) | {
            "OMP_NUM_THREADS": str(layout.threads),
            "WORLD_SIZE": str(layout.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        self.label = f"PyTorch{' compiled' if compiled else ''}"
        self.processes = [
            subprocess.Popen(
                command,
                env=common | {"RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(layout.ranks)
        ]
        self.process = self.processes[0]
        self.ask(f"steps {WARM_UP}")

    def close(self):
        self.process.stdin.close()
        for process in self.processes:
            process.wait()


class ParallelForge(Forge):
    """One job of several ranks for each repeat."""

    def __init__(self, program, name, layout, zero, as_threads, folder):
        super().__init__(program, name, "fp32", layout.threads, folder)
        self.layout, self.zero = layout, zero
        self.label = f"forge{f' zero {zero}' if layout.data > 1 else ''}{', threads' if as_threads else ''}"
        n = str(layout.ranks)
        self.launcher, self.options = ([], ["--ranks", n]) if as_threads else ([MPIRUN, n], [])

    def command(self, deck):
        return [*self.launcher, self.program, "train", deck, *self.options]

    def environment(self):
        return super().environment() | {"OMP_WAIT_POLICY": "passive"}

    def deck(self, steps):
        layout = self.layout
        deck = super().deck(steps).replace(
            f"microbatch_sequences: {self.model.batch}", f"microbatch_sequences: {self.model.batch // layout.data}"
        )
        deck = deck.replace("precision:", f"zero_stage: {self.zero}, precision:")
        return deck + f"mesh: {{dp_shard: {layout.data}, tp: {layout.tp}}}\n"


def measure(name, layout, arguments, folder):
    """Label to seconds of a step, one for each repeat."""
    forges = [
        ParallelForge(os.path.abspath(arguments.forge), name, layout, zero, as_threads, folder)
        for zero in layout.zero
        for as_threads in ([False, True] if arguments.threads_too else [False])
    ]
    peers = [] if arguments.forge_only else [
        ParallelPeer(name, layout, compiled) for compiled in ([False] if arguments.skip_compile else [False, True])
    ]
    times = {c.label: [] for c in peers + forges}
    try:
        for repeat in range(arguments.repeats):
            turn = peers + forges
            shift = repeat % len(turn)  # so that nobody always runs behind the same other
            for contender in turn[shift:] + turn[:shift]:
                times[contender.label].append(contender.step_seconds(arguments.steps))
    finally:
        for contender in peers + forges:
            contender.close()
    return times


def report(name, key, layout, times):
    tokens = MODELS[name].step_tokens
    print(f"\n{name}, {key}: {layout.ranks} ranks, {layout.threads} threads each, {tokens} tokens a step")
    print(f"  {'':24s} {'tokens/s':>9s} {'slowest':>9s} {'fastest':>9s}")
    for label, seconds in times.items():
        print(
            f"  {label:24s} {tokens / statistics.median(seconds):9.0f} {tokens / max(seconds):9.0f} "
            f"{tokens / min(seconds):9.0f}"
        )
    peer = best(times, "PyTorch")
    for label in [label for label in times if label.startswith("forge") and peer]:
        print(f"  {label} / {peer}: {ratio(times, label, peer):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=["ddp2", "fsdp2", "tp2", "tp4xfsdp2"])
    parser.add_argument("--model", choices=MODELS, default="32m")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a repeat")
    parser.add_argument("--skip-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--threads-too", action="store_true", help="forge's ranks as threads of one process, too")
    parser.add_argument("--forge-only", action="store_true")
    parser.add_argument("--forge", default="build/cpu/forge")
    arguments = parser.parse_args()
    if arguments.repeats < 1 or arguments.steps < 1:
        parser.error("--repeats and --steps must be at least 1")
    for key in arguments.layouts:
        with tempfile.TemporaryDirectory() as folder:
            times = measure(arguments.model, LAYOUTS[key], arguments, folder)
        report(arguments.model, key, LAYOUTS[key], times)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
