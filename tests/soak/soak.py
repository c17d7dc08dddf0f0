#!/usr/bin/env python3
"""soak.py HOURS: what tests/soak.sh starts inside a cluster. Workers beside one another take one run after the other (run.py), each from a seed of
its own, and write the ledger."""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from run import Run, Stopped

ROOT = Path(__file__).resolve().parents[2]


class Ledger:
    """A line of JSON for each event, and of each run that has ended; all calls add to it."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.rows = []
        if self.path.exists():  # the last line may be torn
            for line in self.path.read_text().splitlines():
                try:
                    self.rows.append(json.loads(line))
                except ValueError:
                    print(f"soak.py: {self.path} has a line that is no JSON, which is left out: {line[:60]}")
        self.runs = max((row["run"] for row in self.rows), default=0)

    def next_run(self):
        with self.lock:
            self.runs += 1
            return self.runs

    def add(self, **row):
        row = {"time": round(time.time(), 1), **row}
        with self.lock:
            self.rows.append(row)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def bad(self):
        return [row for row in self.rows if row.get("lost") or row.get("silent")]

    def table(self):
        events = [row for row in self.rows if row["event"] not in ("run", "start")]
        runs = [row for row in self.rows if row["event"] == "run"]

        def count(*kinds):
            return sum(row["event"] in kinds for row in events)

        def total(name, rows):
            return sum(row.get(name, 0) for row in rows)

        lines = [
            ("runs to their end", len(runs)), ("  of them bit for bit an undisturbed one", sum(row["bitwise"] for row in runs)),
            ("steps, those made again included", total("steps", events + runs)), ("starts", sum(row["event"] == "start" for row in self.rows)),
            ("  of them on another layout", sum(row["event"] == "start" and row["moved"] for row in self.rows)),
            ("bytes of checkpoints", total("bytes", events + runs)),
            ("kills (SIGKILL)", count("kill", "kill start")), ("  of them requeued by Slurm", total("requeued", [row for row in events if row["event"].startswith("kill")])),
            ("requeues by Slurm, of all causes", total("requeued", events)),
            ("signals (SIGTERM, SIGUSR1)", count("signal")), ("stopped ranks (SIGSTOP)", count("stop")), ("ranks that compute without end", count("hang")),
            ("full disks", count("disk")), ("failing calls of a save", count("call")), ("ends that nobody asked for", count("unasked")), ("flipped bits in memory", count("memory", "repair")), ("  of them repaired", count("repair")), ("flipped bits in files", count("file")),
            ("lost", total("lost", events + runs)), ("silent", total("silent", events + runs)), ("wrongly named", sum(row["named"] is False for row in events)),
            ("largest deviation of a loss in fp64 from one rank's", max((row["deviation"] for row in runs if row["deviation"] is not None), default=0)),
        ]
        return "\n".join(f"{name:<52}{value:>16,}" if isinstance(value, int) else f"{name:<52}{value:>16.1e}" for name, value in lines)


def work(options, ledger, number, until):
    while time.time() < until and not ledger.bad():
        run = ledger.next_run()
        disk = Path(options.disks, str(number)) if options.disks else None
        place = Path(options.work, f"run_{run}")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        one = Run(options, ledger, run, random.Random(f"{options.seed} {run}"), place, disk, until)
        try:
            one.go()
        except Stopped as stop:
            one.failed = True
            ledger.add(run=run, event="lost", lost=1, named=None, text=str(stop))
            print(f"run {run}, lost: {stop}", flush=True)
        except Exception as error:  # of this script: the run is left out
            print(f"run {run}: {type(error).__name__}: {error}", flush=True)
            ledger.add(run=run, event="script", named=None, text=f"{type(error).__name__}: {error}")
            if not options.threads:
                time.sleep(1)
        one.clean(keep=one.failed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hours", type=float)
    parser.add_argument("--forge", default=str(ROOT / "build/cpu/forge"))
    parser.add_argument("--ledger", default=str(ROOT / "build/soak/ledger.jsonl"))
    parser.add_argument("--work", default=str(ROOT / "build/soak/runs"), help="runs lie here; those that fail stay")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--workers", type=int, default=3, help="runs beside one another")
    parser.add_argument("--threads", action="store_true", help="without Slurm: ranks are threads of a process")
    parser.add_argument("--disks", help="small file systems, 1 to 3, for disks that fill")
    parser.add_argument("--fresh", action="store_true", help="forget the ledger of earlier calls")
    parser.add_argument("--table", action="store_true", help="print the table alone")
    options = parser.parse_args()
    options.forge, options.work = os.path.abspath(options.forge), os.path.abspath(options.work)
    options.root = ROOT
    if options.fresh:
        Path(options.ledger).unlink(missing_ok=True)
    ledger = Ledger(options.ledger)
    if not options.table:
        until = time.time() + 3600 * options.hours
        Path(options.work).mkdir(parents=True, exist_ok=True)
        options.tokens = str(Path(options.work, "tokens.bin").resolve())
        subprocess.run([options.forge, "tokenize", str(ROOT / "docs/inputs.md"), "--output", options.tokens], check=True, capture_output=True)
        workers = [threading.Thread(target=work, args=(options, ledger, number, until)) for number in range(1, options.workers + 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print(ledger.table(), flush=True)
    for row in ledger.bad():
        print("FAILED:", json.dumps(row))
    return bool(ledger.bad())


if __name__ == "__main__":
    sys.exit(main())
