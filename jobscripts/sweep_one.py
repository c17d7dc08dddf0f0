"""Runs one layout of a sweep to an end, bounded in time, and says how it ended. Serves sweep.py."""
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import time
from statistics import median

from refusal import Refused
from sweep_files import is_figure, place, result_of, write_text
from sweep_layouts import DEADLINES, HERE, NO_MEMORY, SAVES, SAVES_NOTHING, last_words, telling

LEFT = (75, 130, 138, 143, -signal.SIGINT, -signal.SIGTERM, -signal.SIGUSR1)  # because of a signal
KILLED = re.compile(r"tasks? \S+: (Killed|Aborted|Segmentation|Bus error|Out Of Memory)|exited on signal (4|6|7|8|9|11)\b")  # a rank, by srun or mpirun
SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36


def most_starts():
    text = os.environ.get("FORGE_MOST_FAILURES", "5")
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise Refused(f"FORGE_MOST_FAILURES = {text}; legal: a whole number above 0")
    return int(text)


def starts_of(path):
    """How often a layout was started."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else "0"
    if not re.fullmatch("[0-9]{1,9}", text or "0"):
        raise Refused(f"{path} is {text[:40]!r}; legal: a number; without the file the layout counts its starts anew")
    return int(text or 0)


def grace_of(sweep):
    """Seconds for a program that was asked to leave."""
    return min(sweep["seconds"] / 2, 300 if sweep["saves"] else 30)


def deadlines_of(sweep, layout):
    """Seconds of the first step, and of a later one: the deck's, or those in which forge can name the ranks that hang before this process ends them."""
    return [min(deadline or 10**9, max(1, int(sweep["seconds"] / share))) for deadline, share in zip(layout["deadlines"], (2, 4))]


def control(option, value):
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def dies_with_parent(number):
    """For preexec_fn: the child gets this signal when the process that starts it ends, however it ends."""
    parent = os.getpid()

    def prepare():
        control(SET_DEATH_SIGNAL, number)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def descendants():
    """Processes below this one. Those whose parents have ended count: this process takes them over."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found, left = [], [os.getpid()]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def end_all():
    """Kills what is left below this process, and takes its ends."""
    for _ in range(100):
        there = descendants()
        for process in there:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.05)


def is_step(entry):
    return (isinstance(entry, dict) and isinstance(entry.get("step"), int) and isinstance(entry.get("loss", ""), (int, float, type(None)))
            and all(is_figure(entry.get(name)) for name in ("step_seconds", "tokens_per_second", "mfu", "peak_bytes")))


def steps_of(run):
    """Lines of steps of a metrics.jsonl; a torn one is left out."""
    steps = []
    try:
        with open(run / "metrics.jsonl", encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if is_step(entry):
                    steps.append(entry)
    except FileNotFoundError:
        pass
    return steps


def command_of(sweep, directory, number):
    layout, here = sweep["layouts"][number - 1], place(directory, number)
    settings = {**sweep["settings"], **layout["settings"], "output.directory": str(here / "run")}
    if sweep["saves"] and layout["saves"]:
        settings.update({"checkpoint.directory": str(here / "checkpoints"), **SAVES})
    else:
        settings.update(SAVES_NOTHING)
    for key, deadline in zip(DEADLINES, deadlines_of(sweep, layout)):
        settings[key] = str(deadline)
    program = [sweep["forge"], str(directory / layout["deck"])]
    for key, value in settings.items():
        program += ["--set", f"{key}={value}"]
    ranks = layout["ranks"]
    if "SLURM_JOB_ID" in os.environ:
        cores = os.environ.get("SLURM_CPUS_PER_TASK", "1")
        return ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", f"--nodes={layout['nodes']}", f"--ntasks={ranks}", f"--cpus-per-task={cores}",
                "--cpu-bind=cores", "--distribution=block:block", *program]
    if ranks == 1 or sweep["threads"]:
        return program + (["--ranks", str(ranks)] if ranks > 1 else [])
    shell = '. "$0"; [ "$1" -le "$(nproc)" ] || ranks_share_cores; shift; exec mpirun "$@"'
    return ["bash", "-c", shell, str(HERE / "launcher.sh"), str(ranks), "-n", str(ranks), *program]


def environment_of(layout):
    environment = dict(os.environ)
    if "SLURM_JOB_ID" in environment:
        environment["OMP_NUM_THREADS"] = environment.get("SLURM_CPUS_PER_TASK", "1")
    else:
        environment["TERM"] = "dumb"  # mpirun gives its first rank a terminal: no line redraws itself in it
        environment.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // layout["ranks"])))
    return environment


def lines_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file.read()[-1_000_000:].splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def classify(code, lines, steps, over=""):
    """(class, line) of a job that has ended; None where a signal ended it that isn't its own. over: in which words its time was over, and silent at the end
    where its steps had stopped."""
    line = telling(lines)
    if code == 0:
        return "ok", next((text for text in reversed(lines) if re.match(r"\d+/\d+ ", text)), "")
    lacks = next((text for text in ([line] if code == 2 else [line, *lines]) if NO_MEMORY.search(text)), None)
    if lacks and (over or code == 86):  # other ranks wait for the one without memory
        return "out of memory", lacks
    if code == 86:
        return "hang", line
    if over:
        if "silent" in over:
            return "hang", f"{over}; its last line: {last_words(lines) or 'none'}"
        return ("ok" if len(steps) > 1 else "failed"), over
    # Where forge has said why, srun names the ranks that it ended afterwards.
    said = next((i for i, text in enumerate(lines) if text.startswith("forge: error")), len(lines))
    killed = next((text for text in lines[:said] if KILLED.search(text)), None)
    if code in LEFT and not killed:
        return None
    if lacks and code in (1, 2, 6, 134, 137, 143, -signal.SIGABRT, -signal.SIGKILL):
        return "out of memory", lacks
    if code == 2:
        return "invalid", line
    if code < 0:
        return "failed", f"ended by signal {-code} ({signal.Signals(-code).name})" + (f" behind step {steps[-1]['step']}" if steps else "")
    return "failed", killed or line


class Job:
    """A layout's program while it runs."""

    def __init__(self, sweep, directory, number, log):
        command = command_of(sweep, directory, number)
        direct = command[0] == sweep["forge"]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, cwd=sweep["directory"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                        env=environment_of(sweep["layouts"][number - 1]), start_new_session=True,
                                        preexec_fn=dies_with_parent(signal.SIGKILL if direct else signal.SIGTERM))

    def wait(self, seconds, asked=lambda: False):
        """Its exit code; None where it still runs when its time is over, or when `asked`, which is called all the time, says so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not asked():
            if self.process.poll() is not None:
                return self.process.returncode
            time.sleep(0.05)
        return self.process.poll()

    def leave(self, grace):
        """Asks it to leave, and ends it after so many seconds: its exit code."""
        self.process.terminate()
        code = self.wait(grace)
        if code is None:
            self.process.kill()
            code = self.process.wait()
        return code


class Silence:
    """How long a run has been without a new line in its metrics, and how long it was at most between two."""

    def __init__(self, path, clock=time.monotonic):
        self.path, self.clock, self.since, self.longest, self.started = path, clock, clock(), 0, False
        self.size = self.size_now()

    def size_now(self):
        return self.path.stat().st_size if self.path.exists() else None

    def look(self):
        size = self.size_now()
        if size != self.size:
            if self.started:
                self.longest = max(self.longest, self.clock() - self.since)
            self.size, self.since, self.started = size, self.clock(), True

    def words(self, seconds, steps):
        """That its time is over; and that its steps had stopped: since the last line ten steps would have been done, and it was never half as long between two."""
        said = f"its {seconds:g} s were over " + (f"in step {steps[-1]['step']}" if steps else "before its first step")
        silent = self.clock() - self.since
        usual = max(1, 10 * median([step["step_seconds"] for step in steps]), 2 * self.longest) if steps else seconds
        return said + (f", and it was silent for {silent:.0f} s" if silent > usual else "")


def slurm_ends_it():
    """Whether Slurm is ending this job: srun may say so, and fail, before this process is asked to end."""
    if "SLURM_JOB_ID" not in os.environ:
        return False
    state = subprocess.run(["squeue", "-h", "-j", os.environ["SLURM_JOB_ID"], "-o", "%T"], capture_output=True, text=True, check=False)
    return state.returncode == 0 and state.stdout.strip() != "RUNNING"


def run_one(directory, sweep, number):
    """Gives a layout its result; False where it has none, because this process was asked to end. Nothing that it started outlives it."""
    asked = []
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda *_: asked.append(True))
    here = place(directory, number)
    here.mkdir(exist_ok=True)
    with open(here / ".lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of an earlier start that is ending
        if result_of(directory, sweep, number) is not None:
            return True
        control(SET_SUBREAPER, 1)
        starts = here / "starts"
        started = starts_of(starts)
        ended = None
        if started >= most_starts():
            ended = "failed", f"started {started} times, and never came to an end; its last line: {(lines_of(here / 'output') or ['none'])[-1]}"
            code = None
        else:
            write_text(starts, str(started + 1))
            with open(here / "output", "w", encoding="utf-8") as log:
                job, silence, over = Job(sweep, directory, number, log), Silence(here / "run/metrics.jsonl"), ""
                code = job.wait(sweep["seconds"], lambda: silence.look() or asked)
                if code is None:
                    over = "" if asked else silence.words(sweep["seconds"], steps_of(here / "run"))
                    code = job.leave(grace_of(sweep))
                end_all()
            if code and not over and slurm_ends_it():
                asked.append(True)
            if not asked:
                ended = classify(code, lines_of(here / "output"), steps_of(here / "run"), over)
            elif code == 0:
                ended = classify(code, lines_of(here / "output"), [])
            else:
                write_text(starts, str(started))
        if ended is None:
            return False
        write_text(here / "result.json", json.dumps({"class": ended[0], "code": code, "line": ended[1]}) + "\n")
        return True
