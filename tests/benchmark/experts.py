#!/usr/bin/env python3
"""What experts cost forge, as ratios to itself in the same run: the MoE model of compare.py in fp32.

    python3 tests/benchmark/experts.py [--repeats 5] [--steps 6]

    ep 2          two ranks that share the experts, under mpirun and as threads, to one rank with as many threads
    64 experts    64 of an eighth of the width, 16 a token (as many active and as many parameters in all), and 64 of the
                  same width, 2 a token (as many active ones, eight times as many in all, which the optimizer updates
                  too), to 8 experts, 2 a token
    balance       tokens to the experts in turn, to what the router does

Every repeat runs each contender once; what is printed is the median of the ratios within a repeat.
"""

import argparse
import dataclasses
import os
import statistics
import tempfile

from compare import MPIRUN, Forge, ratio
from models import MODELS

BASE = MODELS["moe22m"]


class Contender(Forge):
    def __init__(self, program, label, model, threads, folder, ranks=1, as_threads=False, extra=""):
        super().__init__(program, "moe22m", "fp32", threads, folder)
        self.model, self.label, self.ranks, self.extra = model, label, ranks, extra
        n = str(ranks)
        self.launcher, self.options = ([], ["--ranks", n]) if as_threads or ranks == 1 else ([MPIRUN, n], [])

    def command(self, deck):
        return [*self.launcher, self.program, "train", deck, *self.options]

    def environment(self):
        # Threads of several ranks must not spin while others work.
        return super().environment() | ({"OMP_WAIT_POLICY": "passive"} if self.ranks > 1 else {})

    def deck(self, steps):
        batch = self.model.batch
        deck = super().deck(steps).replace(
            f"microbatch_sequences: {batch}", f"microbatch_sequences: {batch // self.ranks}"
        )
        if self.ranks > 1:
            deck += f"mesh: {{dp_shard: {self.ranks}, ep: {self.ranks}}}\n"
        return deck.replace(f"experts_per_token: {self.model.active}", f"experts_per_token: {self.model.active}{self.extra}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="timed steps of a repeat")
    parser.add_argument("--forge", default="build/cpu/forge")
    arguments = parser.parse_args()
    program, cores = os.path.abspath(arguments.forge), len(os.sched_getaffinity(0))
    fine = dataclasses.replace(BASE, experts=64, active=16, ffn=BASE.ffn // 8)
    many = dataclasses.replace(BASE, experts=64)
    with tempfile.TemporaryDirectory() as folder:
        one = Contender(program, "8 experts, 2 a token", BASE, cores, folder)
        others = [
            Contender(program, "ep 2, mpirun", BASE, max(1, cores // 2), folder, ranks=2),
            Contender(program, "ep 2, threads", BASE, max(1, cores // 2), folder, ranks=2, as_threads=True),
            Contender(program, "64 fine experts, 16 a token", fine, cores, folder),
            Contender(program, "64 experts, 2 a token", many, cores, folder),
            Contender(program, "forced balance", BASE, cores, folder, extra=", forced_balance: true"),
        ]
        times = {c.label: [] for c in [one, *others]}
        for repeat in range(arguments.repeats):
            turn = [one, *others]
            shift = repeat % len(turn)  # so that nobody always runs behind the same other
            for contender in turn[shift:] + turn[:shift]:
                times[contender.label].append(contender.step_seconds(arguments.steps))
    tokens = BASE.step_tokens
    print(f"{tokens} tokens a step, {cores} cores, {arguments.repeats} repeats")
    print(f"  {'':28s} {'tokens/s':>9s} {'to 8 experts':>13s}")
    for label, seconds in times.items():
        print(f"  {label:28s} {tokens / statistics.median(seconds):9.0f} {ratio(times, label, one.label):13.2f}")


if __name__ == "__main__":
    main()
