#!/usr/bin/env python3
"""track.py FORGE: jobscripts/track.py sends each line of metrics.jsonl once, under the names of its docs, beside a job and afterwards, over torn lines,
restarts of the job and kills of its own; a fresh training is another run. A job with output.track starts it, and a restart goes on with it. With the package wandb in offline mode where Python (PYTHON) has it, read
back from its files; and with a stand-in that writes down its calls."""
import fcntl
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FORGE = os.path.abspath(sys.argv[1])
TRACK = str(Path(__file__).resolve().parents[2] / "jobscripts/track.py")
PYTHON = os.environ.get("PYTHON", sys.executable)
scratch = tempfile.TemporaryDirectory()
WORK = Path(scratch.name)
failures = []
DECK = f"""model: {{layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256, experts: 4, experts_per_token: 2, expert_ffn: 16, capacity_factor: 1}}
train: {{steps: 6, global_batch_sequences: 4, microbatch_sequences: 2, sequence_tokens: 32, precision: fp32, validate_every_steps: 2}}
optimizer: {{learning_rate: 1e-2, schedule: constant}}
data: {{files: [{WORK}/tokens.bin], validation_files: [{WORK}/tokens.bin], dtype: uint16}}
checkpoint: {{every_steps: 3, resume: auto}}
machine: {{threads: 1, peak_tflops: 1}}
"""
STUB = """import json, os
class Error(Exception): pass
class Settings:
    def __init__(self, **more): pass
class Run:
    def __init__(self, more): self.more = more; self.note(["init", more])
    def note(self, what):
        with open(os.environ["CALLS"], "a") as file: file.write(json.dumps(what) + chr(10))
    def log(self, figures, step): self.note(["log", self.more["id"], step, figures])
    def finish(self): self.note(["finish", self.more["id"]])
def init(settings, **more):
    if more["mode"] == "online": raise Error("no key of an" + chr(10) + "API")
    return Run(more)
"""
READER = """import glob, json, struct, sys
from wandb.proto import wandb_internal_pb2 as messages
for path in sorted(glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb")):
    data, at, whole, run = open(path, "rb").read(), 7, b"", None
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole, at = whole + data[at + 7:at + 7 + size], at + 7 + size
        if kind not in (1, 4):
            continue
        record = messages.Record()
        record.ParseFromString(whole)
        whole = b""
        if record.WhichOneof("record_type") == "run":
            run = record.run.run_id
        if record.WhichOneof("record_type") == "history":
            figures = {(item.nested_key[0] if item.nested_key else item.key): json.loads(item.value_json) for item in record.history.item}
            print(json.dumps([run, record.history.step.num, {name: value for name, value in figures.items() if name[0] != "_"}]))
"""


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what)


class Kind:
    """The package, or the stand-in."""

    def __init__(self, name):
        self.name, self.calls = name, WORK / f"{name}.calls"
        self.environment = dict(os.environ, WANDB_SILENT="true", CALLS=str(self.calls))
        if name == "stub":
            self.environment["PYTHONPATH"] = str(WORK / "stub")
        elif os.path.dirname(PYTHON):
            self.environment["PATH"] = f"{os.path.dirname(PYTHON)}:{os.environ['PATH']}"

    def start(self, run, *more):
        return subprocess.Popen([PYTHON, TRACK, str(run), "--to", "wandb", *map(str, more)], env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def track(self, run, *more, code=0, has=""):
        process = self.start(run, *more)
        said = process.communicate()[0]
        expect(process.returncode == code and has in said, f"{self.name} {run.name} {more}: code {process.returncode}, no '{has}': {said}")

    def rows(self, run):
        """[(run of the tracker, step, figures)], in the order in which they were sent."""
        if self.name == "stub":
            lines = [json.loads(line) for line in self.calls.read_text().split("\n")[:-1]] if self.calls.exists() else []
            return [tuple(line[1:]) for line in lines if line[0] == "log"]
        done = subprocess.run([PYTHON, "-c", READER, str(run)], env=self.environment, capture_output=True, text=True)
        expect(done.returncode == 0, f"the files of wandb can't be read: {done.stderr}")
        return [tuple(json.loads(line)) for line in done.stdout.split("\n")[:-1]]


def train(run, *more, fault="", wait=True, environment=os.environ):
    command = [FORGE, "deck.yaml", "--set", f"output.directory={run}", "--set", f"checkpoint.directory={run}.saved", *more]
    job = subprocess.Popen(command, cwd=WORK, env=dict(environment, **({"FORGE_FAULT": fault} if fault else {})), stdout=subprocess.DEVNULL)
    expect(not wait or job.wait() == 0, f"the job {more} fails")
    return job


def entries_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]]


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-12)


def sent_to(run):
    """The last step that was sent."""
    try:
        return json.loads((run / "track.wandb.json").read_text())["step"]
    except FileNotFoundError:
        return -1


def waits_for(holds, what):
    end = time.monotonic() + 240
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    expect(holds(), what)


def check_figures(kind, run):
    """Each name with its value, of an experts' run."""
    kind.track(run, has="6 steps and 3 validations")
    rows = {step: figures for _, step, figures in kind.rows(run)}
    expect(list(rows) == [1, 2, 3, 4, 5, 6], f"{kind.name}: steps {list(rows)}")
    validations = {entry["step"]: entry for entry in entries_of(run) if "loss" not in entry}
    expect(list(validations) == [2, 4, 6], f"the run validates in {list(validations)}")
    dropped = 0
    for entry in [entry for entry in entries_of(run) if "loss" in entry]:
        figures = rows[entry["step"]]
        for key, name in (("loss", "train/loss"), ("grad_norm", "train/grad_norm"), ("learning_rate", "train/learning_rate"), ("tokens", "train/tokens"),
                          ("tokens_per_second", "perf/tokens_per_second"), ("mfu", "perf/mfu"), ("peak_bytes", "perf/peak_bytes")):
            expect(close(figures[name], entry[key]), f"{name} of step {entry['step']} is {figures.get(name)}, not {entry[key]}")
        share = sum(layer["dropped_share"] for layer in entry["experts"]) / 2
        dropped += share
        expect(close(figures["perf/dropped_share"], share) and figures["perf/forced_balance"] == 0 and figures["perf/sequences"] == 4, f"beside MFU: {figures}")
        said = validations.get(entry["step"])
        expect(figures.get("validation/loss") == (said and said["validation_loss"]), f"validation of step {entry['step']}: {figures.get('validation/loss')}")
    expect(dropped > 0, "nothing is dropped: this tests nothing")
    kind.track(run, has="0 steps and 0 validations")
    kind.track(run, "--follow", has="0 steps and 0 validations")  # a run that has ended
    kind.track(run, "--job", "--follow", has="0 steps and 0 validations")  # standard input has ended


def check_restart(kind, run):
    """A torn line is waited for; a job that goes on from an older checkpoint repeats steps that are not sent again."""
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": 1.5, "grad')
    kind.track(run, has="0 steps")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('_norm": null}\nno JSON\n')
    kind.track(run, has="1 step and 0 validations")
    train(run, "--restart", f"{run}.saved/step_00000003", "--set", "train.steps=10")
    kind.track(run, has="3 steps and 2 validations")
    rows = kind.rows(run)
    expect([step for _, step, _ in rows] == list(range(1, 11)) and len({name for name, _, _ in rows}) == 1, f"{kind.name}: {[row[:2] for row in rows]}")
    expect(math.isnan(float(rows[6][2]["train/grad_norm"])) and rows[6][2]["train/loss"] == 1.5, f"a norm that is no number: {rows[6]}")
    expect(rows[9][2]["train/loss"] == [e for e in entries_of(run) if e["step"] == 10][0]["loss"], "step 10")
    train(run, "--fresh", "--set", "model.forced_balance=true")
    kind.track(run, has="6 steps and 3 validations")
    later = kind.rows(run)[10:]
    expect([step for _, step, _ in later] == list(range(1, 7)) and {name for name, _, _ in later} != {rows[0][0]}, "a fresh training is another run")
    expect(all(figures["perf/forced_balance"] == 1 for _, _, figures in later), "forced balance is said")


def check_beside(kind, run):
    """Beside a job that stops itself in step 3; the tracker is killed there, and another one goes on; it ends when all is sent."""
    before = len(kind.rows(run))
    tracker = kind.start(run, "--follow", "--every", 0.1, "--idle", 60)
    job = train(run, "--set", "train.steps=8", fault="stop:0:3", wait=False)
    waits_for(lambda: sent_to(run) >= 2, "nothing is sent while the job runs")
    kind.track(run, code=2, has="another track.py sends this run")
    tracker.send_signal(signal.SIGKILL)
    tracker.communicate()
    noted = (run / "track.wandb.json").stat().st_mtime_ns
    other = kind.start(run, "--follow", "--every", 0.1)
    waits_for(lambda: (run / "track.wandb.json").stat().st_mtime_ns != noted, "another tracker goes on")
    job.send_signal(signal.SIGCONT)
    said = other.communicate()[0]
    expect(other.returncode == 0 and " sent to run " in said and job.wait() == 0, f"{kind.name}: the second tracker says {said}")
    rows = kind.rows(run)[before:]
    steps = [step for _, step, figures in rows if "train/loss" in figures]
    expect(len(set(steps)) == len(steps) and sorted(steps) == steps and steps[-1] == 8, f"{kind.name}: steps {steps}")
    expect(len({name for name, _, _ in rows}) == 1, f"a tracker that is started again has another run: {rows}")
    expect(steps == list(range(1, 9)), f"steps {steps}")


def check_killed(kind, run):
    """A tracker that is killed while it sends: all lines are in its files once when another one has gone on. The stand-in, which has no files, may lack those
    of one note."""
    run.mkdir()
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, 3001):
            file.write(json.dumps({"step": step, "loss": 1 / step, "grad_norm": 1.0}) + "\n")
            if step % 50 == 0:
                file.write(json.dumps({"step": step, "validation_loss": 2 / step}) + "\n" + json.dumps({"step": step, "set": "a/b", "validation_loss": 3 / step}) + "\n")
    killed = 0
    for least in (100, 500, 1500):
        tracker = kind.start(run)
        waits_for(lambda: sent_to(run) >= least or tracker.poll() is not None, f"{kind.name}: step {least} is sent")
        tracker.kill()
        killed += tracker.wait() == -signal.SIGKILL
    expect(killed > 0, f"{kind.name}: no tracker was killed: this tests nothing")
    kind.track(run, has=" sent to run ")
    kind.track(run, has="0 steps and 0 validations sent to run ")
    rows = kind.rows(run)
    for name, every, least in (("train/loss", 1, 3000 - 3 * 64), ("validation/loss", 50, 50), ("validation/a/b/loss", 50, 50)):
        steps = [step for _, step, figures in rows if name in figures]
        wanted = list(range(every, 3001, every))
        expect(steps == wanted if kind.name == "wheel" else sorted(set(steps)) == steps and len(steps) >= least,
               f"{kind.name}: {len(steps)} steps of {name}, not {len(wanted)}: lacks {sorted(set(wanted) - set(steps))[:9]}, twice {[s for s in set(steps) if steps.count(s) > 1][:9]}")


def is_tracked(run):
    with (run / ".track.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_key(kind, run):
    """output.track: all is sent when the job ends; behind a kill the tracker ends, and the restart's goes on with the same run, nothing twice."""
    before = len(kind.rows(run))
    job = train(run, "--set", "output.track=wandb", fault="slow:0:5:300", wait=False, environment=kind.environment)
    waits_for(lambda: sent_to(run) == 4, f"{kind.name}: steps up to {sent_to(run)} are sent beside the job, not 4")
    expect(is_tracked(run), f"{kind.name}: the tracker ends before its job")
    job.kill()
    job.wait()
    waits_for(lambda: not is_tracked(run), f"{kind.name}: the tracker of a job that was killed goes on")
    train(run, "--restart", "--set", "output.track=wandb", "--set", "train.steps=8", environment=kind.environment)
    expect(not is_tracked(run) and sent_to(run) == 8, f"{kind.name}: the job ends with {sent_to(run)} steps sent")
    rows = kind.rows(run)[before:]
    expect(len({name for name, _, _ in rows}) == 1, f"{kind.name}: a restart has another run: {[row[:2] for row in rows]}")
    for key, name in (("loss", "train/loss"), ("validation_loss", "validation/loss")):
        found = [(step, figures[name]) for _, step, figures in rows if name in figures]
        expect(found == [(entry["step"], entry[key]) for entry in entries_of(run) if key in entry] and found[-1][0] == 8, f"{kind.name}: {name} is {found}")
    said = (run / "track.log").read_text()
    counts = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) steps? and (\d+) validations? sent", said)]
    expect([steps for steps, _ in counts] == [4, 4] and sum(validations for _, validations in counts) == 4, f"{kind.name}: track.log: {said}")
    expect("\noutput.track: " not in (run / "log.txt").read_text(), f"{kind.name}: a warning")


def check_key_without(run):
    """Where nothing can be sent the job says so once, and trains."""
    (WORK / "nothing").mkdir()
    lacks = dict(os.environ, PYTHONPATH=str(WORK / "missing"))
    stub = Kind("stub").environment
    for number, (environment, to, words) in enumerate((
            (dict(os.environ, PATH=str(WORK / "nothing")), "wandb", "track.py can't be started: No such file or directory; the job goes on"),
            (lacks, "wandb", "track.py has ended with code 2: track.py: error: the package wandb is missing: pip install"),
            (stub, "wandb_online", "track.py has ended with code 2: track.py: error: W&B takes no run: no key of an API (")), 1):
        here = run.with_name(f"{run.name}{number}")
        train(here, "--set", f"output.track={to}", environment=environment)
        lines = [line for line in (here / "log.txt").read_text().split("\n") if line.startswith("output.track: ")]
        expect(len(lines) == 1 and words in lines[0], f"of '{words}' the job says {lines}")
        expect([entry["step"] for entry in entries_of(here) if "loss" in entry] == [1, 2, 3, 4, 5, 6], f"steps of {here}")


def check_refusals():
    stub = Kind("stub")
    for words, has in (((), "no such directory; legal: a run directory"), (("--job",), "--job without --follow; legal: both"),
                       *[((f"--every={value}",), f"argument --every: {value}; legal: seconds, more than 0") for value in ("-1", "0", "nan", "inf", "x")],
                       *[((f"--idle={value}",), f"argument --idle: {value}; legal: minutes, more than 0") for value in ("-1", "nan", "inf")]):
        stub.track(WORK / "none", *words, code=2, has=f"track.py: error: {'' if has[0] == 'a' or has[0] == '-' else str(WORK / 'none') + ': '}{has}")
    stub.track(WORK / "deck.yaml", code=2, has="deck.yaml: a file; legal: a run directory")
    empty = WORK / "empty"
    empty.mkdir()
    stub.track(empty, code=2, has="no metrics.jsonl; legal: a run directory")
    expect(not list(empty.iterdir()), f"a directory that is no run gets {list(empty.iterdir())}")
    (empty / "metrics.jsonl").touch()
    stub.track(empty, code=2, has="no whole line in metrics.jsonl")
    for text, has in (("{", "no JSON"), ("\0" * 9, "no JSON"), ("[" * 99999, "no JSON"), ("[]", "other members than id"), ("{}", "other members than id"),
                      ('{"id": "../x", "first": "", "step": 1, "seen": []}', "other members"), ('{"id": "x", "first": "", "step": "1", "seen": []}', "other members"),
                      ('{"id": "x", "first": "", "step": 1, "seen": [], "whole": []}', "other members")):
        (empty / "track.wandb.json").write_text(text)
        stub.track(empty, code=2, has=f"track.wandb.json: {has}")
    (WORK / "missing").mkdir()
    (WORK / "missing/wandb.py").write_text('raise ImportError("no", name="wandb")\n')
    stub.environment["PYTHONPATH"] = str(WORK / "missing")
    (WORK / "lone").mkdir()
    (WORK / "lone/metrics.jsonl").write_text('{"step": 1, "loss": 2}\n')
    stub.track(WORK / "lone", code=2, has="the package wandb is missing: pip install -r jobscripts/requirements.txt")


def check_lines():
    """Lines that are no step's are left out, each with a word."""
    stub, run = Kind("stub"), WORK / "odd"
    stub.calls.unlink(missing_ok=True)
    run.mkdir()
    odd = ["[" * 9999, "[1]", '{"step": 1}x', '{"step": -1, "loss": 1}', '{"step": true, "loss": 1}', '{"step": 1e400, "loss": 1}', '{"step": 99999999999999999999, "loss": 1}',
           '{"step": 2, "loss": 1, "experts": [{"load_max": 1}]}', '{"step": 2, "loss": 1, "experts": [1]}', '{"step": 2, "loss": 1, "norms": 3}', '{"step": 2, "loss": "x"}',
           '{"step": 2, "loss": 1, "sources": {"a": {}}}', '{"step": 2, "loss": 1, "computation": 1}', '{"step": 2, "loss": 1, "elapsed_seconds": "x"}']
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1}\n' + "\n".join(odd) + '\n{"step": 3, "loss": 3}\n')
    (run / "job_info.json").write_text("[]")
    tracker = stub.start(run)
    said = tracker.communicate()[0]
    expect(tracker.returncode == 0 and said.count("a line that is no step's, left out: ") == len(odd) and "2 steps and 0 validations" in said, f"odd lines: {said}")
    expect([step for _, step, _ in stub.rows(run)] == [1, 3], f"odd lines: {stub.rows(run)}")


def main():
    (WORK / "deck.yaml").write_text(DECK)
    (WORK / "tokens.bin").write_bytes(b"".join(struct.pack("<H", i * i % 251) for i in range(4000)))
    (WORK / "stub").mkdir()
    (WORK / "stub/wandb.py").write_text(STUB)
    kinds = ["stub"]
    if subprocess.run([PYTHON, "-c", "import wandb"], capture_output=True).returncode == 0:
        kinds.append("wheel")
    else:
        print("LEFT OUT: the package wandb: Python has none (pip install wandb; PYTHON names a Python that has it)")
    for name in kinds:
        kind = Kind(name)
        run = WORK / f"{name}.run"
        train(run)
        check_figures(kind, run)
        check_restart(kind, run)
        kind.calls.unlink(missing_ok=True)
        check_beside(kind, WORK / f"{name}.beside")
        kind.calls.unlink(missing_ok=True)
        check_key(kind, WORK / f"{name}.key")
        kind.calls.unlink(missing_ok=True)
        check_killed(kind, WORK / f"{name}.killed")
    check_refusals()
    check_lines()
    check_key_without(WORK / "without")
    sys.exit(bool(failures))


main()
