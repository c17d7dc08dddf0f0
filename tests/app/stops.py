#!/usr/bin/env python3
"""stops.py FORGE: signals, a screen that goes away, the job's time limit, and what a run leaves for those who look for it later: its log,
job_info.json and metrics.jsonl."""

import datetime
import json
import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FORGE = os.path.abspath(sys.argv[1])
WORK = Path(tempfile.mkdtemp())
DECK = f"""model: {{layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 256}}
train: {{steps: 100000000, global_batch_sequences: 2, microbatch_sequences: 1, sequence_tokens: 16, precision: fp32}}
optimizer: {{learning_rate: 1e-3, schedule: constant, decay_steps: 100}}
data: {{files: [{WORK}/tokens.bin], validation_files: [{WORK}/tokens.bin], dtype: uint16}}
output: {{every_steps: 1000000}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1}}
"""
THREADS = "cuda" not in subprocess.run([FORGE, "version"], capture_output=True, text=True).stdout.split("\n")[0]
failures = []


class Job:
    """A training with directories of its own; its output as it comes, and when it ended."""

    def __init__(self, name, *settings, saves=True, fault=None, environment=None, ignores=(), start=(), **options):
        self.name, self.run, self.saved = name, WORK / name / "run", WORK / name / "saved"
        self.run.parent.mkdir(exist_ok=True)
        self.screen = WORK / name / "screen"
        arguments = ["deck.yaml", *start, "--set", f"output.directory={self.run}"]
        arguments += ["--set", f"checkpoint.directory={self.saved}"] if saves else []
        for setting in settings:
            arguments += ["--set", setting]

        def prepare():
            for each in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(each, signal.SIG_IGN if each in ignores else signal.SIG_DFL)
            if "most_bytes" in options:
                resource.setrlimit(resource.RLIMIT_FSIZE, (options["most_bytes"],) * 2)

        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(environment or {})}
        environment.update({"FORGE_FAULT": fault} if fault else {})
        output = options.get("output") or self.screen.open("w")
        self.process = subprocess.Popen([FORGE, *arguments], cwd=WORK, stdout=output, stderr=options.get("errors", subprocess.STDOUT),
                                        env=environment, preexec_fn=prepare)

    def text(self):
        return self.screen.read_text()

    def metrics(self):
        file = self.run / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, holds, what, seconds=60):
        end = time.time() + seconds
        while not holds():
            if time.time() > end or self.process.poll() is not None:
                raise AssertionError(f"{self.name}: no {what}: {self.text()}")
            time.sleep(0.02)

    def send(self, number, seconds=30):
        """The signal must end the job, which would wait for 100 s or compute on: its exit code. Busy cores make everything late."""
        self.process.send_signal(number)
        return self.ends(seconds)

    def ends(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.name}: it runs on: {self.text()}") from None


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def newest(directory):
    return max((int(name.name[5:]) for name in directory.glob("step_*")), default=0)


def steps_run(job, number=3):
    return lambda: len(job.metrics()) >= number


def interrupted(ranks):
    job = Job(f"interrupted_{ranks}", start=("--ranks", str(ranks)) if ranks > 1 else ())
    job.until(steps_run(job), "steps")
    expect(job.send(signal.SIGINT) == 130, f"not 130 after SIGINT: {job.text()}")
    saved = newest(job.saved)
    expect(f"forge: stopped: saved step_{saved:08d} and left: SIGINT; --restart goes on from there" in job.text(), job.text())
    expect("forge: SIGINT: saves at the end of the step and ends; one more, a second later, ends it at once" in job.text(), job.text())
    expect(f"stopped: saved step_{saved:08d} and left: SIGINT" in (job.run / "log.txt").read_text(), "the log doesn't say why it ended")
    before = job.metrics()
    expect(before[-1]["step"] == saved, "steps that weren't saved")
    # It goes on, and so does its clock.
    again = Job(job.name, f"train.steps={saved + 2}", start=("--restart=latest",) + (("--ranks", str(ranks)) if ranks > 1 else ()))
    expect(again.ends(60) == 0, again.text())
    lines = again.metrics()
    expect([line["step"] for line in lines] == list(range(1, saved + 3)), "steps are missing or twice")
    for name in ("time", "elapsed_seconds"):
        expect(all(a[name] <= b[name] for a, b in zip(lines, lines[1:])), f"{name} falls")
    expect(lines[saved]["elapsed_seconds"] < before[-1]["elapsed_seconds"] + 60, "the clock jumps")


def second_interrupt():
    job = Job("second", fault="slow:0:4:100")
    job.until(steps_run(job), "steps")
    job.process.send_signal(signal.SIGINT)
    job.until(lambda: "forge: SIGINT: saves" in job.text(), "answer to SIGINT", 30)
    time.sleep(1.1)
    expect(job.send(signal.SIGINT) == -signal.SIGINT, f"it doesn't end of the second SIGINT: {job.text()}")
    expect("ends now, without saving" in job.text() and newest(job.saved) == 0, job.text())


def same_interrupt():
    """A terminal's, to the group of processes, and the same once more from the launcher."""
    job = Job("same", fault="slow:0:4:3")
    job.until(steps_run(job), "steps")
    for _ in range(3):
        job.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    expect(job.ends(30) == 130 and newest(job.saved) > 0 and "ends now" not in job.text(), job.text())


def hangup():
    job = Job("hangup")
    job.until(steps_run(job), "steps")
    expect(job.send(signal.SIGHUP) == 75 and "and left: SIGHUP" in job.text(), job.text())
    job = Job("nohup", ignores=(signal.SIGHUP, signal.SIGINT))
    job.until(steps_run(job), "steps")
    seen = len(job.metrics())
    for number in (signal.SIGHUP, signal.SIGINT):
        job.process.send_signal(number)
    job.until(steps_run(job, seen + 20), "steps behind the signals that it ignores")
    expect(job.send(signal.SIGTERM) == 75 and "and left: SIGTERM" in job.text(), job.text())


def nothing_to_save():
    job = Job("unsaved", saves=False)
    job.until(steps_run(job), "steps")
    expect(job.send(signal.SIGINT) == -signal.SIGINT, job.text())


def in_validation(ranks):
    """One long wait, and a real validation of many microbatches."""
    threads = ("--ranks", str(ranks)) if ranks > 1 else ()
    job = Job(f"validation_{ranks}", "train.validate_every_steps=3", fault="slow:0:validation:100", start=threads)
    job.until(steps_run(job), "steps")
    time.sleep(0.3)
    expect(job.send(signal.SIGTERM) == 75, job.text())
    expect("validation broken off behind 1 of" in job.text() and "saved step_00000003 and left: SIGTERM" in job.text(), job.text())
    expect(not any("validation_loss" in line for line in job.metrics()), "a validation that was broken off has a loss")
    job = Job(f"validates_{ranks}", "train.validate_every_steps=1", "train.steps=1", "train.sequence_tokens=1024", "model.layers=48",
              "model.width=64", start=threads, environment={"OMP_NUM_THREADS": "1"})
    job.until(steps_run(job, 1), "step")
    time.sleep(0.3)
    expect(job.send(signal.SIGINT) == 130, job.text())
    found = re.search(r"validation broken off behind (\d+) of (\d+) microbatches: SIGINT", job.text())
    expect(found and 0 < int(found[1]) < int(found[2]), job.text())
    expect("saved step_00000001 and left: SIGINT" in job.text() and newest(job.saved) == 1, job.text())


def time_limit():
    """The first validation: broken off where it takes longer than anybody could know; not begun where it would."""
    end = str(int(time.time()) + 16)
    limit = {"SLURM_JOB_END_TIME": end}
    broken = Job("limit", "train.validate_every_steps=3", "train.validation_sequences=4", "checkpoint.end_margin_seconds=6",
                 fault="slow:0:validation:100", environment=limit)
    slow = ",".join(f"slow:0:{step}:1" for step in range(1, 30))
    known = Job("estimate", "train.validate_every_steps=8", "checkpoint.end_margin_seconds=1", fault=slow, environment=limit)
    for job in (broken, known):
        expect(job.ends(30) == 75 and "and left: the job's time limit is near" in job.text(), job.text())
        expect(time.time() < float(end), f"{job.name}: it leaves {time.time() - float(end)} s too late")
    expect("validation broken off" in broken.text() and newest(broken.saved) == 3, broken.text())
    expect("validation broken off" not in known.text() and " nats a token" not in known.text() and newest(known.saved) == 7, known.text())


def at_the_end(what, ranks):
    """Sample and export: the model is saved, and the job leaves."""
    threads = ("--ranks", str(ranks)) if ranks > 1 else ()
    settings = {"sampling": ("output.sample_tokens=20", "output.sample_prompt=a"), "export": ("output.save_hf=true",)}[what]
    job = Job(f"{what}_{ranks}", "train.steps=2", *settings, fault=f"slow:0:{what}:100", start=threads)
    job.until(lambda: "total " in job.text(), "end")
    time.sleep(0.3)
    expect(job.send(signal.SIGINT) == 130 and newest(job.saved) == 2, job.text())
    expect("forge: stopped: the trained model is saved; left without the" in job.text(), job.text())
    left = sorted(path.name for path in (job.run / "hf").glob("*") if path.name != ".forge_export") if (job.run / "hf").exists() else []
    expect(left == [], f"it leaves {left}")
    job = Job(job.name, "train.steps=2", *settings, start=("--restart=latest", *threads))
    expect(job.ends(60) == 0 and "to go on, raise it: --set train.steps=" in job.text(), job.text())
    expect(("sample (" if what == "sampling" else "model written to") in job.text(), job.text())


def sample():
    job = Job("sample", "train.steps=1", "output.sample_tokens=5000", "output.sample_prompt=a", "model.layers=8", "model.width=64")
    job.until(lambda: "sample (" in job.text(), "sample")
    expect(job.send(signal.SIGINT) == 130 and "left without the rest of the sample: SIGINT" in job.text(), job.text())


def screen_goes():
    """head takes its lines and goes; a full disk."""
    read, write = os.pipe()
    job = Job("pipe", "train.steps=40", "output.every_steps=1", output=os.fdopen(write, "w"), errors=(WORK / "pipe_errors").open("w"))
    os.close(read)
    code = job.ends(60)
    log = (job.run / "log.txt").read_text()
    expect("standard output can't be written: Broken pipe; the job goes on" in log and "40/40" in log, log)
    expect(newest(job.saved) == 40 and code == 5, f"exit code {code}: {(WORK / 'pipe_errors').read_text()}")
    job = Job("full", "train.steps=40", output=open("/dev/full", "w"), errors=(WORK / "full_errors").open("w"))
    expect(job.ends(60) == 5, (WORK / "full_errors").read_text())
    log = (job.run / "log.txt").read_text()
    expect("standard output can't be written: No space left on device" in log and "40/40" in log, log)


def large_file():
    job = Job("large", most_bytes=20000)
    expect(job.ends(60) == 5, job.text())
    expect(re.search(r"forge: error: .*large/.*File too large", job.text()), job.text())


def record():
    before = time.time()
    job = Job("record", "train.steps=12", "train.validate_every_steps=12", "train.validation_sequences=4", "output.every_steps=10",
              environment={"PBS_JOBID": "77.server", "TZ": "Asia/Kolkata"})
    expect(job.ends(60) == 0, job.text())
    log = (job.run / "log.txt").read_text()
    head = log.splitlines()[:10]
    started = re.search(r"  started   (\S+) on (\S+); PBS job 77.server", "\n".join(head))
    expect(started and started[2] == socket.gethostname(), log)
    expect(started[1].endswith("+05:30") and abs(datetime.datetime.fromisoformat(started[1]).timestamp() - before) < 60, started[1])
    expect(any(line.startswith("  command   ") and "deck.yaml --set output.directory=" in line for line in head), log)
    expect("revision" in head[0], head[0])
    told = json.loads((job.run / "job_info.json").read_text())
    expect(told["batch_system"] == "PBS" and told["job"] == "77.server" and told["deck"] == "deck.yaml", told)
    expect(told["started"] == started[1] and told["hosts"] == [started[2]] and told["nodes"] == told["ranks"] == 1, told)
    expect(told["command"][:2] == [FORGE, "deck.yaml"] and told["directory"] == os.path.realpath(WORK), told)
    expect(told["mesh"]["tp"] == 1 and told["layers"] == 2 and told["parameters"] > 0 and told["precision"] == "fp32", told)
    version = subprocess.run([FORGE, "version"], capture_output=True, text=True, check=True).stdout
    expect({"MPI", "HDF5", "yaml-cpp", "Boost", "zlib"} < set(told["libraries"]), told)
    expect(all(each in version for library in told["libraries"].items() for each in library if each != "MPI"), f"{told}: {version}")
    memory = told["planned_memory_bytes"]
    expect(memory["total"] == sum(bytes for part, bytes in memory.items() if part != "total") > 0, memory)
    # The first five steps, each tenth and the last have a line; losses and speeds are means since the line before.
    shown = [re.split(r"\s+", line.strip()) for line in log.splitlines() if re.match(r" +\d+/12 ", line)]
    expect([int(line[0].split("/")[0]) for line in shown] == [1, 2, 3, 4, 5, 10, 12], shown)
    lines = job.metrics()
    of_line = [line for line in lines if 5 < line["step"] <= 10]
    expect(abs(float(shown[5][1]) - sum(line["loss"] for line in of_line) / 5) < 1e-4, "the loss is no mean since the line before")
    speed = 5 * 32 / sum(line["step_seconds"] for line in of_line)
    expect(abs(float(shown[5][4]) / speed - 1) < 1e-2 or abs(float(shown[5][4]) - speed) <= 1, "the speed is no mean since the line before")
    keys = ["step", "time", "elapsed_seconds", "tokens", "loss", "total_loss", "grad_norm", "learning_rate", "step_seconds",
            "tokens_per_second", "mfu", "peak_bytes", "updated"]
    expect(list(lines[0]) == [*keys, "start_seconds"] and list(lines[1]) == keys, list(lines[0]))
    validation = lines[-1]
    expect(list(validation) == [*keys[:3], "validation_loss", "validation_perplexity", "validation_labels"], validation)
    expect(math.isclose(validation["validation_perplexity"], math.exp(validation["validation_loss"])), validation)
    expect(before < lines[0]["time"] < time.time() and 0 < lines[0]["elapsed_seconds"] < time.time() - before + 1, lines[0])


def slow_steps():
    """Lines by time, where steps are slow."""
    slow = ",".join(f"slow:0:{step}:2.6" for step in range(6, 11))
    job = Job("slow", "train.steps=20", fault=slow)
    expect(job.ends(60) == 0, job.text())
    shown = [int(step) for step in re.findall(r"^ +(\d+)/20 ", job.text(), re.M)]
    expect(shown == [1, 2, 3, 4, 5, 9, 20], shown)


def no_labels():
    job = Job("no_labels", "train.steps=2", "train.validate_every_steps=2", f"data.validation_mask_files=[{WORK}/mask.npy]")
    expect(job.ends(60) == 0 and "validation: its tokens have no labels, so there is neither loss nor perplexity" in job.text(), job.text())
    expect(list(job.metrics()[-1]) == ["step", "time", "elapsed_seconds", "validation_labels"], job.metrics()[-1])


def main():
    tokens = b"".join((i * 7 % 251).to_bytes(2, "little") for i in range(60000))
    (WORK / "tokens.bin").write_bytes(tokens)
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (60000,), }".ljust(117) + "\n"
    (WORK / "mask.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(60000))
    (WORK / "deck.yaml").write_text(DECK)
    ranks = (1, 2) if THREADS else (1,)
    cases = [(time_limit,), (slow_steps,), (second_interrupt,), (same_interrupt,), (hangup,), (nothing_to_save,), (sample,), (screen_goes,), (large_file,), (record,), (no_labels,)]
    cases += [(case, n) for case in (interrupted, in_validation) for n in ranks]
    cases += [(at_the_end, what, n) for what in ("sampling", "export") for n in ranks]

    def tried(case):
        try:
            case[0](*case[1:])
        except Exception as error:  # of several at once: each is told
            failures.append(f"{case[0].__name__}{case[1:]}: {error}")

    chosen = [case for case in cases if len(sys.argv) < 3 or case[0].__name__ in sys.argv[2:]]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tried, chosen))
    for failure in failures:
        print("FAILED:", failure, file=sys.stderr)
    if not failures:
        subprocess.run(["rm", "-rf", WORK], check=True)
        print("all as expected")
    return 1 if failures else 0


sys.exit(main())
