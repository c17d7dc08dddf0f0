#!/usr/bin/env python3
"""Runs many layouts or settings of decks, one after the other here or as an array of Slurm, and says how each ended and how fast it was.

    sweep.py run DIRECTORY DECK… --layouts FILE | --grid KEY=VALUE,…    makes a sweep and runs it
    sweep.py run DIRECTORY --layouts FOLDER                             the same of the decks in a folder
    sweep.py run DIRECTORY                                              goes on with it, whatever has ended it
    sweep.py table DIRECTORY          DIRECTORY/sweep.csv: a row for each layout, measured beside predicted
    sweep.py report DIRECTORY…        the best of each model and number of nodes, what was predicted worst; pictures (SVG)
    sweep.py cancel DIRECTORY         ends its jobs of Slurm

--layouts takes what `forge plan --search` writes with --json or --write, or a table of keys as `forge plan --candidates` reads and writes it.
docs/running.md, "Sweeps", has the classes and columns.
"""
import argparse
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from refusal import Arguments, Refused, between, counted, ended, whole
from sweep_files import load, missing, place, result_of, write_text
from sweep_layouts import create
from sweep_one import dies_with_parent, grace_of, most_starts, run_one, starts_of
from sweep_report import report, write_table

NO_SLURM = "squeue fails; legal: --slurm where Slurm is, or a run without it"
BOTH = ("legal: sweep.py run DIRECTORY goes on with a sweep, sweep.py run DIRECTORY DECK… --layouts FILE or --grid KEY=VALUE,… makes one in another directory")
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
    waiting, running, known, broken = missing(directory, sweep), {}, set(), ""
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
            if number not in known and process.returncode in (1, 2, 5):  # it has said why
                broken = broken or f"layout {number} can't be run; legal: sweep.py run {directory} once more, where its error above has gone"
                stopped.append(True)
            if number not in known and not stopped:
                waiting.append(number)
            write_table(directory, sweep)
        time.sleep(0.05)
    if broken:
        raise Refused(broken)


def slurm(*command, **more):
    """What a program of Slurm says; None where it isn't, or Slurm doesn't answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", **more)
    except (FileNotFoundError, PermissionError):
        return None
    return done.stdout if done.returncode == 0 else None


def queued(name):
    """Numbers of a sweep's layouts that Slurm runs or has yet to run; None where Slurm doesn't answer."""
    said = slurm("squeue", "-h", "-r", "-n", name, "-o", "%K")
    return None if said is None else {int(index) for index in said.split() if index.isdigit()}


def cancel(directory, sweep):
    if not sweep["slurm"] and not (directory / "slurm").is_dir():
        raise Refused(f"{directory} has no jobs of Slurm; legal: a sweep that was run with --slurm; Ctrl-C ends one that runs here")
    (directory / "cancelled").touch()
    if slurm("scancel", "-n", sweep["name"]) is None:
        raise Refused("scancel fails; legal: sweep.py cancel where Slurm is")


def submit(directory, sweep, numbers, options):
    """An array for each shape of job: most sweeps have one. Options are those of the sweep where none are given."""
    at_once, more = options.at_once or sweep["at_once"], options.sbatch or sweep["sbatch"]
    shapes = {}
    for number in numbers:
        layout = sweep["layouts"][number - 1]
        shapes.setdefault((layout["nodes"], min(layout["ranks"], sweep["ranks_per_node"])), []).append(number)
    (directory / "slurm").mkdir(exist_ok=True)
    (directory / "cancelled").unlink(missing_ok=True)
    for (nodes, tasks), group in shapes.items():
        minutes = int((sweep["seconds"] + grace_of(sweep)) // 60 + 3)
        array = ",".join(map(str, group)) + (f"%{at_once}" if at_once else "")
        command = ["sbatch", "--parsable", f"--job-name={sweep['name']}", f"--array={array}", f"--nodes={nodes}", f"--ntasks-per-node={tasks}",
                   f"--time={minutes}", "--requeue", "--open-mode=append", "--output=" + f"{directory}/slurm".replace("%", "%%") + "/%a.out", *more]
        program = " ".join(map(shlex.quote, (sys.executable, os.path.abspath(__file__), "one", str(directory))))
        done = subprocess.run(command, input=f'#!/bin/bash\nexec {program} "$SLURM_ARRAY_TASK_ID"\n', cwd=sweep["directory"], capture_output=True, text=True)
        if done.returncode:
            raise Refused(f"{done.stderr.strip()}; legal: sweep.py run {directory} --slurm -- OPTIONS, with options that sbatch takes")
        say(f"job {done.stdout.strip()}: {counted(len(group), 'layout')}, nodes {nodes} with {tasks} ranks each, {minutes} minutes each")


def run_on_slurm(directory, sweep, options):
    there = queued(sweep["name"])
    if there is None:
        raise Refused(NO_SLURM)
    numbers, known = [n for n in missing(directory, sweep) if n not in there], set()
    if there:
        say(f"{len(there)} layout{'s wait or run' if len(there) > 1 else ' waits or runs'} in Slurm already")
    if numbers:
        submit(directory, sweep, numbers, options)
    while not stopped and not options.no_wait:
        there = queued(sweep["name"])
        told(directory, sweep, numbers, known)
        write_table(directory, sweep)
        if there is not None and not there:
            break
        time.sleep(2)
    if stopped:
        cancel(directory, sweep)
    elif not options.no_wait and not (directory / "cancelled").exists():
        note_lost(directory, sweep, numbers, known)


def note_lost(directory, sweep, numbers, known):
    """Layouts whose jobs have ended and left no result: it says where the reason may stand, and gives a layout up after as many of them as of starts."""
    lost = [n for n in missing(directory, sweep) if n in numbers]
    for number in lost:
        here = place(directory, number)
        here.mkdir(exist_ok=True)
        jobs = starts_of(here / "lost") + 1
        write_text(here / "lost", str(jobs))
        if jobs >= most_starts():
            line = f"{jobs} jobs of Slurm ended without a result; slurm/{number}.out or sacct may say why"
            write_text(here / "result.json", json.dumps({"class": "failed", "code": None, "line": line}) + "\n")
    if lost:
        say(f"{counted(len(lost), 'job')} of Slurm ended without a result: layout{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost[:10]))}"
            f"{' …' if len(lost) > 10 else ''}; {directory}/slurm/N.out or sacct may say why; sweep.py run {directory} tries once more")
    told(directory, sweep, lost, known)


def check_options(directory, options, new):
    """Nothing is asked that this run ignores."""
    if new != bool(options.decks or options.layouts or options.grid):
        raise Refused(f"{directory} is {'no sweep' if new else 'a sweep already'}; {BOTH}")
    given = [name for name in ("set", "ranks", "steps", "minutes", "machine", "saves", "threads", "forge", "ranks_per_node") if getattr(options, name)]
    if given and not new:
        raise Refused(f"--{given[0].replace('_', '-')}: {directory}/sweep.json has it already; legal: --at-once, --slurm and --no-wait beside a sweep that is there")
    if new and (odd := next((c for c in "$\\" if c in str(directory) and (c == "$" or options.slurm)), None)):
        raise Refused(f"{directory}: a sweep's directory has no {odd} in its name{'' if odd == '$' else ', which sbatch reads in its own way'}; legal: another name")
    if new and options.slurm and not options.ranks_per_node:
        raise Refused("--slurm needs --ranks-per-node N; legal: both")
    if new and options.slurm and queued("none") is None:
        raise Refused(NO_SLURM)


def run(options, directory):
    new = not (directory / "sweep.json").exists()
    check_options(directory, options, new)
    most_starts()
    sweep = None if new else load(directory)
    on_slurm = options.slurm or (sweep and sweep["slurm"])
    if not on_slurm and (options.sbatch or options.no_wait):
        raise Refused(f"{' '.join(['--', *options.sbatch]) if options.sbatch else '--no-wait'} without --slurm; legal: both")
    if sweep and on_slurm and not sweep["ranks_per_node"]:
        raise Refused("this sweep was made without --ranks-per-node, which --slurm needs; legal: a run without --slurm")
    sweep = sweep or create(directory, options)
    with open(directory / ".lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(f"{directory}: another process runs this sweep") from error
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, lambda *_: stopped.append(True))
        total, left = len(sweep["layouts"]), missing(directory, sweep)
        told(directory, sweep, [n for n, layout in enumerate(sweep["layouts"], 1) if new and "refused" in layout], set())
        equal = f", {sweep['equal']} more are equal to these" if new and sweep["equal"] else ""
        say(f"{directory}: {counted(total, 'layout')}{equal}, {len(left)} to run, at most {sweep['seconds']:g} s each")
        if on_slurm:
            run_on_slurm(directory, sweep, options)
        else:
            run_here(directory, sweep, options.at_once or sweep["at_once"] or 1)
        write_table(directory, sweep)
        left = missing(directory, sweep)
        counts = Counter(result_of(directory, sweep, n)["class"] for n in range(1, total + 1) if n not in left)
        parts = [f"{count} {name}" for name, count in counts.items()] + ([f"{len(left)} not run"] if left else [])
        say(f"{directory}/sweep.csv: " + ", ".join(parts))
        return 75 if left and not (on_slurm and options.no_wait) else 0


def parse(arguments):
    parser = Arguments(prog="sweep.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("run", help="makes a sweep, or goes on with one")
    verb.add_argument("directory", type=Path)
    verb.add_argument("decks", nargs="*", metavar="DECK")
    verb.add_argument("--layouts", help="a search's JSON, its folder of decks, or a CSV file with keys as columns")
    verb.add_argument("--grid", action="append", default=[], metavar="KEY=VALUE,…", help="each layout with each of the values; repeatable")
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all layouts; repeatable")
    verb.add_argument("--ranks", type=whole, help="of each layout (default: those of the search, or of its mesh)")
    verb.add_argument("--steps", type=whole, help="of each layout (default: the deck's train.steps)")
    verb.add_argument("--minutes", type=between(0, 525600, "minutes"), help="of each layout, its start included (default 10)")
    verb.add_argument("--machine", help="forge plan predicts on it what has no prediction")
    verb.add_argument("--saves", action="store_true", help="with the deck's checkpoints, from which a layout goes on (default: it saves nothing and starts anew)")
    verb.add_argument("--threads", action="store_true", help="ranks as threads of one process, not under mpirun (builds for processors)")
    verb.add_argument("--forge", help="the program (default: FORGE, else as the job scripts find it)")
    verb.add_argument("--at-once", type=whole, help="layouts at a time (default: one here, all in Slurm)")
    verb.add_argument("--slurm", action="store_true", help="as an array of Slurm; options of sbatch go behind --; the sweep keeps them")
    verb.add_argument("--no-wait", action="store_true", help="with --slurm: submits and ends")
    verb.add_argument("--ranks-per-node", type=whole, help="with --slurm; also the report's nodes of a run here")
    for name, help_text in (("table", "writes sweep.csv"), ("cancel", "ends the sweep's jobs of Slurm")):
        verbs.add_parser(name, help=help_text).add_argument("directory", type=Path)
    verb = verbs.add_parser("report", help="draws pictures and names what is best and worst")
    verb.add_argument("directories", nargs="+", type=Path)
    verb.add_argument("--output", type=Path, help="folder of the pictures (default: the first sweep's report)")
    verb = verbs.add_parser("one")
    verb.add_argument("directory", type=Path)
    verb.add_argument("number", type=whole)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    options.sbatch = arguments[at + 1:]
    if options.sbatch and options.verb != "run":
        raise Refused(f"{options.verb} takes no words behind --; legal: run DIRECTORY --slurm -- OPTIONS OF SBATCH")
    return options


def carry_out(options):
    if options.verb == "report":
        sweeps = [(directory, load(directory)) for directory in dict.fromkeys(directory.resolve() for directory in options.directories)]
        return report(sweeps, options.output or sweeps[0][0] / "report")
    directory = options.directory.resolve()
    if options.verb == "run":
        return run(options, directory)
    sweep = load(directory)
    if options.verb == "one":
        if options.number > len(sweep["layouts"]):
            raise Refused(f"{directory} has no layout {options.number}; legal: 1 to {len(sweep['layouts'])}")
        return 0 if run_one(directory, sweep, options.number) else 75
    if options.verb == "cancel":
        return cancel(directory, sweep)
    return write_table(directory, sweep)


if __name__ == "__main__":
    sys.exit(ended("sweep.py", lambda: carry_out(parse(sys.argv[1:]))))
