#!/usr/bin/env python3
"""jobscripts/track.py RUN --to wandb [--follow] [--online]: sends metrics.jsonl of the run directory RUN to a tracker, beside a job with --follow, or
afterwards; a job with output.track starts it itself. A job that is started again goes on in the same run of the tracker, and so does a track.py that is started again: RUN/track.wandb.json
has what was sent, and no step is sent twice; behind a kill the files of W&B say what they lack. A fresh training is another run.

Offline, the default, W&B's files are in RUN/wandb; `wandb sync --id ID RUN/wandb/offline-run-*` uploads them. Needs the package wandb
(pip install -r jobscripts/requirements.txt)."""
import argparse
import fcntl
import hashlib
import json
import os
import re
import secrets
import select
import signal
import sys
import time
from pathlib import Path

from refusal import Arguments, Refused, between, ended, named
from track_wandb import Wandb, last_row, package

BATCH = 64  # lines that are sent behind one note of it: a tracker that is killed may lose as many where no file says what was written
PLAIN = {"loss": "train/loss", "total_loss": "train/total_loss", "mtp_loss": "train/mtp_loss", "grad_norm": "train/grad_norm",
         "learning_rate": "train/learning_rate", "tokens": "train/tokens", "largest_logit": "train/largest_logit",
         "clipped_heads": "train/clipped_heads", "reward_margin": "train/reward_margin", "reward_accuracy": "train/reward_accuracy", "step_seconds": "perf/step_seconds", "tokens_per_second": "perf/tokens_per_second",
         "mfu": "perf/mfu", "peak_bytes": "perf/peak_bytes", "sequences": "perf/sequences"}
stopped = []


def number(value):
    """JSON has no NaN: null stands for it."""
    if value is not None and not isinstance(value, (int, float)):
        raise TypeError
    return float("nan") if value is None else value


def figures_of(entry, facts):
    """{name: value} of a line, as users of trackers call it; facts: of the whole run, beside the MFU."""
    hours = {"train/hours": entry["elapsed_seconds"] / 3600} if "elapsed_seconds" in entry else {}
    if "loss" not in entry:
        place = f"validation/{entry['set']}" if "set" in entry else "validation"
        found = {name: number(entry[f"validation_{name}"]) for name in ("loss", "perplexity", "bits_per_byte", "reward_margin", "reward_accuracy", "accuracy", "accuracy_normalised") if f"validation_{name}" in entry}
        return {f"{place}/{name}": value for name, value in found.items()}
    found = {**hours, **facts, **{name: number(entry[key]) for key, name in PLAIN.items() if key in entry}}
    found["train/skipped"] = 0 if entry.get("updated", True) else 1
    layers = entry.get("experts", [])
    if layers:
        of = lambda key: [number(layer[key]) for layer in layers]
        mean = lambda key: sum(of(key)) / len(layers)
        found.update({"perf/dropped_share": mean("dropped_share"), "experts/load_max": max(of("load_max")),
                      "experts/load_min": min(of("load_min")), "experts/entropy": mean("entropy"),
                      "experts/balance_loss": mean("balance_loss")})
    for name, source in entry.get("sources", {}).items():
        found.update({f"sources/{name}/{key}": number(source[key]) for key in ("loss", "tokens", "epochs")})
    for name, norms in entry.get("norms", {}).items():
        found.update({f"norms/{name}/{key}": number(value) for key, value in norms.items()})
    if "computation" in entry:
        found.update({"perf/computation_seconds": number(entry["computation"]["median"]), "perf/slow_ranks": number(entry["computation"]["slow"])})
    return found


def left_out(path, line):
    print(f"track.py: {path}: a line that is no step's, left out: {line[:60]!r}", file=sys.stderr)


def sendable(entries, facts, path):
    """Pairs of lines and their figures, of those that have them all."""
    pairs = []
    for entry in entries:
        try:
            pairs.append((entry, figures_of(entry, facts)))
        except (KeyError, TypeError, AttributeError):
            left_out(path, json.dumps(entry))
    return pairs


def deck_of(run):
    """{section: {key: value}} of deck.yaml, which has each key with its value."""
    deck, section = {}, None
    try:
        lines = (run / "deck.yaml").read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return deck
    for line in lines:
        head, pair = re.fullmatch(r"(\w+):", line), re.fullmatch(r"  (\w+): (.*)", line)
        if head:
            section = deck.setdefault(head[1], {})
        elif pair and section is not None:
            try:
                section[pair[1]] = json.loads(pair[2])
            except (ValueError, RecursionError):
                section[pair[1]] = pair[2]
    return deck


def job_of(run):
    try:
        job = json.loads((run / "job_info.json").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return job if isinstance(job, dict) else {}


def facts_of(deck, job):
    """What an MFU has to be read with."""
    facts = {"perf/sequences": job["global_batch_sequences"]} if "global_batch_sequences" in job else {}
    if deck.get("model", {}).get("experts"):
        facts["perf/forced_balance"] = 1 if deck["model"].get("forced_balance") else 0
    return facts


def is_step(value):
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 2**53


class Metrics:
    """The whole lines of a metrics.jsonl that grows, and that a restart cuts."""

    def __init__(self, path):
        self.path, self.offset, self.last, self.first = path, 0, b"", None

    def read(self):
        """(objects that are new, whether they begin another training). A line without an end is left for later."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return [], False
        with file:
            first = file.readline()
            if not first.endswith(b"\n"):
                return [], False
            other = self.first is not None and first != self.first
            file.seek(max(0, self.offset - len(self.last)))
            if other or file.read(len(self.last)) != self.last or os.fstat(file.fileno()).st_size < self.offset:
                self.offset = 0
            self.first, objects = first, []
            file.seek(self.offset)
            while len(objects) < BATCH:
                line = file.readline()
                if not line.endswith(b"\n"):
                    break
                self.offset, self.last = self.offset + len(line), line
                entry = self.object_of(line)
                objects += [entry] if entry else []
        return objects, other

    def object_of(self, line):
        try:
            entry = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not is_step(entry.get("step")) or entry["step"] < 0:
            left_out(self.path, line)
            return None
        return entry


class State:
    """What was sent, in a file beside the metrics: {"id", "first", "step", "seen"}, and {"whole": [step, seen]} while a tracker is open or behind its kill:
    what its files had before."""

    def __init__(self, run, tracker):
        self.path, self.text = run / f"track.{tracker}.json", {}
        legal = "legal: what track.py wrote, or remove it to send all once more, as another run"
        if self.path.exists():
            try:
                self.text = json.loads(self.path.read_text(encoding="utf-8"))
            except (ValueError, RecursionError) as error:
                raise Refused(f"{self.path}: no JSON ({error}); {legal}") from error
            if not self.is_right():
                raise Refused(f"{self.path}: other members than id, first, step, seen; {legal}")

    def is_right(self):
        def is_place(step, seen):
            return is_step(step) and isinstance(seen, list) and all(isinstance(kind, str) for kind in seen)

        text = self.text
        whole = text.get("whole", [-1, []]) if isinstance(text, dict) else None
        return (isinstance(whole, list) and len(whole) == 2 and is_place(*whole) and is_place(text.get("step"), text.get("seen"))
                and isinstance(text.get("id"), str) and re.fullmatch("[0-9a-z]{1,64}", text["id"]) and isinstance(text.get("first"), str))

    def opens(self, run, online):
        """Before a tracker is opened. Behind a kill offline, what the files have was sent, no more."""
        if "whole" in self.text and not online:
            row = last_row(run, self.text["id"])
            if row:
                places = (name.rpartition("/")[0] for name in row[1] if name.startswith("validation/"))
                kinds = {"validation/" if place == "validation" else place for place in places} | ({"train"} if "train/loss" in row[1] else set())
                step, seen = self.text["whole"]
                kinds |= set(seen) if step == row[0] else set()
                step, seen = (row[0], sorted(kinds)) if row[0] >= step else (step, seen)
                self.text.update(step=step, seen=seen)
        self.text["whole"] = [self.text["step"], list(self.text["seen"])]
        if online:
            del self.text["whole"]
        self.write()

    def closes(self):
        """Behind a tracker that has written all."""
        self.text.pop("whole", None)
        self.write()

    def begins(self, first):
        """A run of the tracker for the training whose first line has this hash: the one that it has, or another."""
        if self.text.get("first") != first:
            self.text = {"id": secrets.token_hex(4), "first": first, "step": -1, "seen": []}
            self.write()

    def take(self, entry):
        """Whether a line is new; from now on it isn't."""
        kind = "train" if "loss" in entry else f"validation/{entry.get('set', '')}"
        if entry["step"] < self.text["step"] or (entry["step"] == self.text["step"] and kind in self.text["seen"]):
            return False
        if entry["step"] > self.text["step"]:
            self.text.update(step=entry["step"], seen=[])
        self.text["seen"].append(kind)
        return True

    def write(self):
        partial = self.path.with_name(f"{self.path.name}.partial")
        with named(self.path):
            partial.write_text(json.dumps(self.text) + "\n", encoding="utf-8")
            os.replace(partial, self.path)


def sent_by(step_lines, tracker):
    """Sends lines, those of a step together: how many steps and validations."""
    by_step = {}
    for entry, figures in step_lines:
        by_step.setdefault(entry["step"], {}).update(figures)
    for step, figures in by_step.items():
        tracker.send(figures, step)
    steps = sum("loss" in entry for entry, _ in step_lines)
    return steps, len(step_lines) - steps


def is_over(run, step):
    """The last step was sent, and the job has gone: it removes its lock."""
    last = job_of(run).get("steps")
    return last is not None and step >= last and not (run / ".lock").exists()


class Job:
    """The job that has started this process (output.track): it holds the other end of the pipe that standard input is."""

    def __init__(self):
        os.closerange(3, 65536)  # what a library of the job has left open
        os.nice(10)
        os.sched_setaffinity(0, range(os.cpu_count()))  # not on the core of the thread that started it
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(each, signal.SIG_IGN)  # what the job is asked by it may save and leave with; this process ends behind it
        self.gone = False

    def is_over(self, seconds=0):
        """Whether the job has ended, however; waits so long for it."""
        if not self.gone and select.select([0], [], [], seconds)[0]:
            self.gone = os.read(0, 4096) == b""
        return self.gone


def track(run, options, job):
    """job: None without --job."""
    state = State(run, options.to)
    metrics, tracker, counts = Metrics(run / "metrics.jsonl"), None, [0, 0]
    moved, facts = time.monotonic(), {}
    try:
        while True:
            over = job.is_over() if job else options.follow and is_over(run, state.text.get("step", -1))  # before the lines are read: none comes later
            entries, other = metrics.read()
            if metrics.first is not None and (tracker is None or other):
                if tracker:
                    tracker.finish()
                    state.closes()
                    tracker = None
                state.begins(hashlib.sha256(metrics.first).hexdigest())
                deck, about = deck_of(run), job_of(run)
                facts = facts_of(deck, about)
                state.opens(run, options.online)
                tracker = Wandb(run, state.text["id"], deck, about, options)
            new = [pair for pair in sendable(entries, facts, metrics.path) if state.take(pair[0])]
            if new:
                state.write()
                counts = [sum(pair) for pair in zip(counts, sent_by(new, tracker))]
                moved = time.monotonic()
            if entries and not stopped:
                continue
            if not options.follow or stopped or over:
                break
            if job:
                job.is_over(options.every)
            elif time.monotonic() - moved > 60 * options.idle:
                break
            elif not is_over(run, state.text.get("step", -1)):  # else a last look, at once
                time.sleep(options.every)
    except BaseException:
        if tracker:
            tracker.finish()
        raise
    if tracker:
        tracker.finish()
        state.closes()
    if tracker is None and not options.follow:
        raise Refused(f"{run}: no whole line in metrics.jsonl; legal: a run behind its first step, or --follow, which waits for it")
    identity = state.text.get("id", "none")
    said = " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in zip(counts, ("step", "validation")))
    print(f"{run}: {said} sent to run {identity}"
          + ("" if options.online or tracker is None else f"; upload: wandb sync --id {identity} {run}/wandb/offline-run-*"))


def parse():
    parser = Arguments(prog="track.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run directory (output.directory)")
    parser.add_argument("--to", required=True, choices=["wandb"])
    parser.add_argument("--follow", action="store_true", help="goes on until the run's last step was sent; waits for a run that isn't there yet")
    parser.add_argument("--idle", type=between(0, 525600, "minutes"), default=60, metavar="MINUTES", help="with --follow: without a new line for so long it ends (default 60)")
    parser.add_argument("--every", type=between(0, 86400, "seconds"), default=2, metavar="SECONDS", help="with --follow: between two looks (default 2)")
    parser.add_argument("--job", action="store_true", help="with --follow, as output.track starts it: until standard input, a pipe of the job, ends")
    parser.add_argument("--online", action="store_true", help="sends over the network (default: into files)")
    parser.add_argument("--project", default=os.environ.get("WANDB_PROJECT", "forge"), help="(default: WANDB_PROJECT, else forge)")
    parser.add_argument("--name", help="of the run (default: the directory's)")
    return parser.parse_args()


def locked(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def carry_out(options):
    run, job = options.run.resolve(), None
    if options.job:
        if not options.follow:
            raise Refused("--job without --follow; legal: both")
        job = Job()
    else:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: stopped.append(True))
    if run.exists() and not run.is_dir():
        raise Refused(f"{options.run}: a file; legal: a run directory (output.directory)")
    if not run.is_dir() and not options.follow:
        raise Refused(f"{options.run}: no such directory; legal: a run directory (output.directory), or --follow, which waits for it")
    end = time.monotonic() + 60 * options.idle
    while not run.is_dir():
        if stopped or time.monotonic() > end:
            raise Refused(f"{options.run}: no such directory, and none came; legal: a run that begins within --idle minutes")
        time.sleep(options.every)
    if not options.follow and not (run / "metrics.jsonl").exists():
        raise Refused(f"{options.run}: no metrics.jsonl; legal: a run directory (output.directory), or --follow, which waits for it")
    package()
    with (run / ".track.lock").open("a") as lock:
        end = time.monotonic() + 30
        while not locked(lock):  # by that of a job that was killed, which ends soon
            if job and not job.is_over():
                end = time.monotonic() + 30
            elif not job or time.monotonic() > end:
                raise Refused(f"{options.run}: another track.py sends this run; legal: one at a time")
            time.sleep(0.2)
        track(run, options, job)


if __name__ == "__main__":
    sys.exit(ended("track.py", lambda: carry_out(parse())))
