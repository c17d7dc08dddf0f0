#!/usr/bin/env python3
"""fit_program.py FORGE SOURCE --program NAME|FILE [--constants a,b,…] [--step] [--leave-out] [--leave-out-step] [--output FILE.yaml]: fits constants of a program's
file (inputs/programs) to published runs; those named network.… are of the machine's file. SOURCE: a file of the Ultra-Scale Playbook's (compare_runs.py), of which those runs are
taken that reach half of the best of their pair of model and nodes, or a name of compare_peers.py. --leave-out: also once
without each pair, or each row, begun at the same neutral constants, so that it is predicted by a fit that has not seen it. --step: from the files' own
constants, one step alone. --leave-out-step: from the files' own constants, one step for each pair, of the other pairs' runs, with slopes that all
share: minutes, where --leave-out takes hours. Constants change by factors; the sum of |log(predicted / measured)| is made smaller by
reweighted least squares, with derivatives by differences. Needs numpy."""
import argparse
import collections
import os
import re
import tempfile

import numpy as np

import compare_peers
import compare_runs

NEUTRAL = {"product_share": 0.9, "attention_share": 0.7, "row_traffic": 1.5, "logit_bytes": 80, "tp_traffic": 1, "tp_wait_us": 30, "accumulate_bytes": 10, "host_forward_us": 1500,
           "host_backward_us": 2000, "host_pipeline_us": 200, "transfer_us": 200, "step_ms": 40, "optimizer_bytes": 40, "network.rank_us": 30, "network.rank_us_gb": 20}
OF_MACHINE = "network."
STEP, CLOSE, MOST = 0.08, 0.03, 0.4  # of a difference; an error that counts as none; of a change; all in logarithms


class File:
    """The text of a file of inputs/programs or inputs/machines, whose constants can be replaced."""

    def __init__(self, folder, name):
        self.text = open(name if os.path.exists(name) else f"inputs/{folder}/{name}.yaml").read()

    def with_constants(self, constants):
        text = self.text
        for name, value in constants.items():
            text, found = re.subn(rf"(?m)^( *){name}: *[^ #\n]+", rf"\g<1>{name}: {float(f'{value:.3g}'):g}", text)
            if not found:
                text += f"{name}: {value:.3g}\n"
        return text


def constants_of(text):
    return {name: float(value) for name, value in re.findall(r"(?m)^ *(\w+): *([-+.\de]+)(?= |$)", text)}


class Fit:
    def __init__(self, options):
        self.options, self.program = options, File("programs", options.program)
        if options.source in compare_peers.RUNS:
            self.runs, self.predict = compare_peers.read_runs(options.source), compare_peers.predict
            self.machine = compare_peers.RUNS[options.source][0]
            for number, run in enumerate(self.runs):
                run["left"] = f"row {number + 1}"
        else:
            self.runs, self.predict, self.machine = fast_runs(options.source), compare_runs.predict, "h100_8_efa"
        self.machine = File("machines", options.machine or self.machine)
        measured = constants_of(self.machine.text)
        self.names = options.constants.split(",") if options.constants else [
            name for name in NEUTRAL if not name.startswith(OF_MACHINE) or name[len(OF_MACHINE):] in measured]
        self.left = list(dict.fromkeys(run["left"] for run in self.runs))
        self.known = {}

    def errors(self, x):
        """log(predicted / measured) of each run; nan: not legal."""
        key = tuple(np.round(x, 6))
        if key not in self.known:
            self.predicted(x, self.runs)
            self.known[key] = np.array([np.log((run["predicted"] or np.nan) / run["measured"]) for run in self.runs])
        return self.known[key]

    def predicted(self, x, runs):
        with tempfile.TemporaryDirectory() as work:
            files = [os.path.join(work, name) for name in ("program.yaml", "machine.yaml")]
            for file, text in zip(files, self.texts(x)):
                with open(file, "w") as out:
                    out.write(text)
            self.predict(self.options.forge, runs, *files)

    def own_constants(self):
        """The logarithms of those that the files have."""
        known = constants_of(self.program.text) | {OF_MACHINE + name: value for name, value in constants_of(self.machine.text).items()}
        return np.log([known.get(name, NEUTRAL[name]) for name in self.names])

    def choices(self, x, left):
        """What the first choice, and the best of three, reach of a pair of the Playbook's, its slow runs included."""
        runs = [run for run in compare_runs.read_runs(self.options.source) if pair_of(run) == left]
        self.predicted(x, runs)
        return compare_runs.reached(runs)

    def texts(self, x):
        """Of the program's file and the machine's with these constants."""
        values = dict(zip(self.names, np.exp(x)))
        network = {name[len(OF_MACHINE):]: value for name, value in values.items() if name.startswith(OF_MACHINE)}
        return [self.program.with_constants({name: value for name, value in values.items() if not name.startswith(OF_MACHINE)}),
                self.machine.with_constants(network)]

    def slopes(self, x):
        at = self.errors(x)
        return np.stack([(self.errors(x + STEP * unit) - at) / STEP for unit in np.eye(len(x))], axis=1)

    def found(self, use, start, rounds=3):
        """Constants (logarithms) of the runs of `use`."""
        x = start
        for _ in range(rounds):
            slopes = self.slopes(x)
            for _ in range(2):  # with the same slopes
                x = self.stepped(use, x, slopes)
        return x

    def stepped(self, use, x, slopes):
        """One step of reweighted least squares from x, shorter where it would make the runs of `use` worse."""
        r = self.errors(x)
        weight = use / np.maximum(np.abs(r), CLOSE) * np.isfinite(r)
        a, b = slopes[weight > 0] * weight[weight > 0, None] ** 0.5, -r[weight > 0] * weight[weight > 0] ** 0.5
        held = 0.3 * np.sqrt(len(b)) * np.eye(len(x))  # towards no change, where the runs say nothing
        change = np.linalg.lstsq(np.vstack([a, held]), np.concatenate([b, np.zeros(len(x))]), rcond=None)[0]
        change = np.clip(change, -MOST, MOST)
        while self.loss(use, x + change) > self.loss(use, x) and np.abs(change).max() > 0.01:
            change /= 3
        return x + change if self.loss(use, x + change) < self.loss(use, x) else x

    def loss(self, use, x):
        return np.nansum(use * np.abs(self.errors(x))) / use.sum()


def pair_of(run):
    return f"{run['model']} on {run['nodes']} nodes"


def fast_runs(path):
    runs, best = compare_runs.read_runs(path), collections.defaultdict(float)
    for run in runs:
        run["left"] = pair_of(run)
        best[run["left"]] = max(best[run["left"]], run["measured"])
    return [run for run in runs if run["measured"] >= best[run["left"]] / 2]


def quantiles(errors):
    errors = np.abs(np.expm1(errors))
    return f"median {np.median(errors):5.1%}, 90th percentile {np.quantile(errors, 0.9):5.1%} of {len(errors)} runs"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("forge")
    parser.add_argument("source")
    parser.add_argument("--program", default="nanotron")
    parser.add_argument("--machine")
    parser.add_argument("--constants", help="default: all, those named network.… where the machine's file has them")
    for flag in ("--step", "--leave-out", "--leave-out-step"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--output")
    options = parser.parse_args()
    fit = Fit(options)
    one = options.step or options.leave_out_step
    start = fit.own_constants() if one else np.log([NEUTRAL[name] for name in fit.names])
    every = np.ones(len(fit.runs))
    print(f"{'own' if one else 'neutral'} constants: {quantiles(fit.errors(start))}", flush=True)
    slopes = fit.slopes(start) if one else None
    if options.leave_out_step:
        return leave_out(fit, lambda use: fit.stepped(use, start, slopes))
    all_found = fit.stepped(every, start, slopes) if one else fit.found(every, start)
    print(f"fitted to all: {quantiles(fit.errors(all_found))}")
    for name, value in zip(fit.names, np.exp(all_found)):
        print(f"  {name}: {value:.3g}", flush=True)
    if options.output:
        with open(options.output, "w") as out:
            out.write(fit.texts(all_found)[0])
    if options.leave_out:
        leave_out(fit, lambda use: fit.found(use, start))


def leave_out(fit, found):
    """Each pair, or row, by the constants that found(use) gives for the others."""
    unseen, shares = [], []
    for left in fit.left:
        here = np.array([run["left"] == left for run in fit.runs])
        x = found(~here * np.ones(len(here)))
        unseen.extend(fit.errors(x)[here])
        text = quantiles(fit.errors(x)[here])
        if fit.predict is compare_runs.predict:
            shares.append(fit.choices(x, left))
            text += "; the first choice reaches {:.2f}, the best of three {:.2f}".format(*shares[-1])
        print(f"without {left}: {text}", flush=True)
    print(f"each by the fit without it: {quantiles(np.array(unseen))}")
    if shares:
        print("the first choice reaches 95 % in {} of {} pairs, the best of three in {}".format(
            sum(s[0] >= 0.95 for s in shares), len(shares), sum(s[1] >= 0.95 for s in shares)))


if __name__ == "__main__":
    main()
