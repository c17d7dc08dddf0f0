#!/usr/bin/env python3
"""Runs many layouts or settings of decks, one after the other here or as an array of Slurm, and says how each ended and how fast it was.

    sweep.py run DIRECTORY DECK… --layouts FILE|FOLDER | --grid KEY=VALUE,…    makes a sweep and runs it
    sweep.py run DIRECTORY                                                     goes on with it, whatever has ended it
    sweep.py table DIRECTORY          DIRECTORY/sweep.csv: a row for each layout, measured beside predicted
    sweep.py report DIRECTORY…        the best of each model and number of nodes, what was predicted worst; pictures (SVG)
    sweep.py cancel DIRECTORY         ends its jobs of Slurm

--layouts takes what `forge plan --search` writes with --json or --write, or a table of keys as `forge plan --candidates` reads and writes it.
docs/cluster.md, "Sweeps", has the classes and columns.
"""
import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from refusal import Refused, ended
from sweep_layouts import create, load, missing, result_of
from sweep_one import dies_with_parent, grace_of, run_one
from sweep_report import report, write_table

stopped = []


def say(text):
    print(text, flush=True)


def told(directory, sweep, numbers, known):
    """Says the results that are new."""
    for number in numbers:
        result = None if number in known else result_of(directory, sweep, number)
        if result:
            known.add(number)
            layout = sweep["layouts"][number - 1]
            ranks = f", {layout['ranks']} rank{'s' if layout['ranks'] > 1 else ''}" if layout["ranks"] else ""
            say(f"{number}/{len(sweep['layouts'])}  {layout['model']}{ranks}: {result['class']}: {result['line']}")


def run_here(directory, sweep, at_once):
    """One process for each layout, which ends all that it has started when this one ends."""
    waiting, running, known = missing(directory, sweep), {}, set()
    while (waiting and not stopped) or running:
        while waiting and not stopped and len(running) < at_once:
            number = waiting.pop(0)
            running[number] = subprocess.Popen([sys.executable, os.path.abspath(__file__), "one", str(directory), str(number)],
                                               start_new_session=True, preexec_fn=dies_with_parent(signal.SIGTERM))
        for number, process in list(running.items()):
            if stopped:
                process.terminate()
            if process.poll() is None:
                continue
            del running[number]
            told(directory, sweep, [number], known)
            if number not in known and not stopped:
                waiting.append(number)
            write_table(directory, sweep)
        time.sleep(0.05)


def queued(sweep):
    """Numbers of the layouts that Slurm runs or has yet to run; None where Slurm doesn't answer."""
    done = subprocess.run(["squeue", "-h", "-r", "-n", sweep["name"], "-o", "%K"], capture_output=True, text=True)
    return {int(index) for index in done.stdout.split() if index.isdigit()} if done.returncode == 0 else None


def cancel(sweep):
    subprocess.run(["scancel", "-n", sweep["name"]], check=False)


def submit(directory, sweep, numbers, options):
    """An array for each shape of job: most sweeps have one. Options are those of the sweep where none are given."""
    at_once, more = options.at_once or sweep["at_once"], options.sbatch or sweep["sbatch"]
    shapes = {}
    for number in numbers:
        layout = sweep["layouts"][number - 1]
        shapes.setdefault((layout["nodes"], min(layout["ranks"], sweep["ranks_per_node"])), []).append(number)
    (directory / "slurm").mkdir(exist_ok=True)
    for (nodes, tasks), group in shapes.items():
        minutes = int((sweep["seconds"] + grace_of(sweep)) // 60 + 3)
        array = ",".join(map(str, group)) + (f"%{at_once}" if at_once else "")
        command = ["sbatch", "--parsable", f"--job-name={sweep['name']}", f"--array={array}", f"--nodes={nodes}", f"--ntasks-per-node={tasks}",
                   f"--time={minutes}", "--requeue", "--open-mode=append", f"--output={directory}/slurm/%a.out", *more]
        script = f'#!/bin/bash\nexec "{sys.executable}" "{os.path.abspath(__file__)}" one "{directory}" "$SLURM_ARRAY_TASK_ID"\n'
        done = subprocess.run(command, input=script, cwd=sweep["directory"], capture_output=True, text=True)
        if done.returncode:
            raise Refused(f"sbatch: {done.stderr.strip()}")
        say(f"job {done.stdout.strip()}: {len(group)} layouts, nodes {nodes} with {tasks} ranks each, {minutes} minutes each")


def run_on_slurm(directory, sweep, options):
    there = queued(sweep)
    if there is None:
        raise Refused("squeue fails; legal: --slurm where Slurm is, or a run without it")
    numbers, known = [n for n in missing(directory, sweep) if n not in there], set()
    if there:
        say(f"{len(there)} layout{'s wait or run' if len(there) > 1 else ' waits or runs'} in Slurm already")
    if numbers:
        submit(directory, sweep, numbers, options)
    while not stopped and not options.no_wait:
        there = queued(sweep)
        told(directory, sweep, numbers, known)
        write_table(directory, sweep)
        if there is not None and not there:
            break
        time.sleep(2)
    if stopped:
        cancel(sweep)


def run(options, directory):
    if (directory / "sweep.json").exists() == bool(options.decks or options.layouts or options.grid):
        raise Refused(f"{directory} {'is a sweep already' if options.decks or options.layouts or options.grid else 'is no sweep'}; legal: "
                      "sweep.py run DIRECTORY goes on with a sweep, sweep.py run DIRECTORY DECK… --layouts FILE or --grid KEY=VALUE,… makes one in another directory")
    if options.slurm and options.decks and not options.ranks_per_node:
        raise Refused("--slurm needs --ranks-per-node N")
    new = not (directory / "sweep.json").exists()
    sweep = create(directory, options) if new else load(directory)
    slurm = options.slurm or sweep["slurm"]
    if slurm and not sweep["ranks_per_node"]:
        raise Refused("this sweep was made without --ranks-per-node, which --slurm needs; legal: a run without --slurm")
    with open(directory / ".lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(f"{directory}: another process runs this sweep") from error
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, lambda *_: stopped.append(True))
        total, left = len(sweep["layouts"]), missing(directory, sweep)
        told(directory, sweep, [n for n, layout in enumerate(sweep["layouts"], 1) if new and "refused" in layout], set())
        say(f"{directory}: {total} layouts, {len(left)} to run, at most {sweep['seconds']:g} s each")
        if slurm:
            run_on_slurm(directory, sweep, options)
        else:
            run_here(directory, sweep, options.at_once or sweep["at_once"] or 1)
        write_table(directory, sweep)
        left = missing(directory, sweep)
        counts = Counter(result_of(directory, sweep, n)["class"] for n in range(1, total + 1) if n not in left)
        say(f"{directory}/sweep.csv: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + (f"; {len(left)} not run" if left else ""))
        return 75 if left and not (slurm and options.no_wait) else 0


def parse(arguments):
    parser = argparse.ArgumentParser(prog="sweep.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("run", help="makes a sweep, or goes on with one")
    verb.add_argument("directory", type=Path)
    verb.add_argument("decks", nargs="*", metavar="DECK")
    verb.add_argument("--layouts", help="a search's JSON, its folder of decks, or a CSV file with keys as columns")
    verb.add_argument("--grid", action="append", default=[], metavar="KEY=VALUE,…", help="each layout with each of the values; repeatable")
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all layouts; repeatable")
    verb.add_argument("--ranks", type=int, help="of each layout (default: those of the search, or of its mesh)")
    verb.add_argument("--steps", type=int, help="of each layout (default: the deck's train.steps)")
    verb.add_argument("--minutes", type=float, default=10, help="of each layout, its start included (default 10)")
    verb.add_argument("--machine", help="forge plan predicts on it what has no prediction")
    verb.add_argument("--saves", action="store_true", help="with the deck's checkpoints, from which a layout goes on (default: it saves nothing and starts anew)")
    verb.add_argument("--threads", action="store_true", help="ranks as threads of one process, not under mpirun (builds for processors)")
    verb.add_argument("--forge", default=os.environ.get("FORGE"), help="the program (default: as the job scripts find it)")
    verb.add_argument("--at-once", type=int, help="layouts at a time (default: one here, all in Slurm)")
    verb.add_argument("--slurm", action="store_true", help="as an array of Slurm; options of sbatch go behind --; the sweep keeps them")
    verb.add_argument("--no-wait", action="store_true", help="with --slurm: submits and ends")
    verb.add_argument("--ranks-per-node", type=int)
    for name, help_text in (("table", "writes sweep.csv"), ("cancel", "ends the sweep's jobs of Slurm")):
        verbs.add_parser(name, help=help_text).add_argument("directory", type=Path)
    verb = verbs.add_parser("report", help="draws pictures and names what is best and worst")
    verb.add_argument("directories", nargs="+", type=Path)
    verb.add_argument("--output", type=Path, help="folder of the pictures (default: the first sweep's report)")
    verb = verbs.add_parser("one")
    verb.add_argument("directory", type=Path)
    verb.add_argument("number", type=int)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    options.sbatch = arguments[at + 1:]
    for name in ("ranks", "steps", "minutes", "at_once", "ranks_per_node"):
        if getattr(options, name, None) is not None and getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} = {getattr(options, name):g}; legal: more than 0")
    return options


def carry_out(options):
    if options.verb == "report":
        sweeps = [(directory.resolve(), load(directory.resolve())) for directory in options.directories]
        return report(sweeps, options.output or sweeps[0][0] / "report")
    directory = options.directory.resolve()
    if options.verb == "run":
        return run(options, directory)
    sweep = load(directory)
    if options.verb == "one":
        return 0 if run_one(directory, sweep, options.number) else 75
    if options.verb == "cancel":
        return cancel(sweep)
    return write_table(directory, sweep)


if __name__ == "__main__":
    asked = parse(sys.argv[1:])
    sys.exit(ended("sweep.py", lambda: carry_out(asked)))
