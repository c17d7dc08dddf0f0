"""Of a run of the soak (run.py): its disturbances, and whether the program names each."""
import os
import re
import signal
import subprocess
import time

# Ends that a machine under load brings about: a missed deadline, a connection that was lost, a launcher that gave up.
OF_LOAD = (6, 86, 137, 143)


def ranks_in(words):
    """{0, 2, 3} of "0, 2 to 3"."""
    ranks = set()
    for word in words.split(","):
        first, _, last = word.strip().partition(" to ")
        ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


class Faults:
    def mode(self, layout, jobs=True):
        if self.options.threads:
            return "threads"
        return self.draw.choice(["threads", "threads", "step", *(["job"] if jobs else [])])

    def disturb(self, layout):
        mode = self.mode(layout)
        if mode == "job":
            return self.disturb_job(layout)
        kinds = ["kill"] * 12 + ["kill start", "signal", "hang", "call"]
        if layout.replicas:
            kinds += ["memory"] * 6 + ["repair"] * 3
        if self.disk:
            kinds += ["disk"] * 5
        if mode == "step" and layout.ranks > 1:
            kinds += ["stop"]
        kind = self.draw.choice(kinds)
        if kind in ("hang", "stop") and layout.ranks == 1:
            kind = "kill"
        since, rank = self.newest(), self.draw.randrange(layout.ranks)
        at = since + self.draw.randrange(2, 9)
        fault, words = None, []
        if kind == "hang":
            fault = f"hang:{rank}:{at}"
        elif kind == "call":
            fault = f"fail:{rank}:{(since // self.every + 1) * self.every}:{self.draw.randrange(1, 9)}"
        elif kind in ("memory", "repair"):
            # Between two comparisons a copy of the weights is made anew, and a moment fades: only master weights keep the flipped bit.
            rarely = kind == "memory" and self.draw.random() < 0.5
            has_master = self.precision == "bf16" or (layout.zero > 0 and layout.shards > 1)
            fault = f"upset:{rank}:{at}:{int(has_master) if rarely else self.draw.randrange(200)}"
            words = [f"train.check_replicas_steps={self.draw.randrange(2, 9) if rarely else 1}", f"train.replicas_differ={'repair' if kind == 'repair' else 'stop'}"]
        process = self.launch(layout, words, fault, mode, None)
        rank = self.act(kind, layout, mode, since, rank, lambda: process.poll() is None)
        try:
            code = process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()
            raise TimeoutError(f"a start disturbed by {kind} doesn't end: {self.output}") from None
        self.no_rank_left()
        text = self.text()
        self.after(kind, layout, mode, since, rank, code, text)

    def act(self, kind, layout, mode, since, rank, lives):
        """Does what `kind` says to the ranks that run; the rank."""
        if kind == "kill start":
            time.sleep(self.draw.random())
            self.wait(lambda: self.ranks() or not lives(), "a rank")
        elif kind == "repair":
            self.wait(lambda: "have the numbers of most now" in self.text() or not lives(), "a repair")
        elif kind not in ("hang", "call", "memory"):
            target = since + self.draw.randrange(1, 6)
            self.wait(lambda: self.newest() >= target or not lives(), "a new checkpoint", pause=0.5 if mode == "job" else 0.03)
            time.sleep(0.2 * self.draw.random())
        self.seen = max(self.seen, self.newest_whole())
        pids = list(self.ranks().items())
        try:
            if kind in ("kill", "kill start", "stop") and pids:
                pid, rank = self.draw.choice(pids)
                os.kill(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
            elif kind in ("signal", "repair"):
                which = self.draw.choice([signal.SIGTERM, signal.SIGUSR1])
                for pid, _ in pids:
                    os.kill(pid, which)
            elif kind == "disk":
                self.fill()
        except ProcessLookupError:
            pass
        return rank

    def fill(self):
        try:
            with open(self.disk / "ballast", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        except OSError:
            pass

    def no_rank_left(self):
        end = time.time() + 120
        while left := self.ranks():
            if time.time() > end:
                raise TimeoutError(f"ranks live on behind their job: {left}")
            time.sleep(0.05)

    def is_odd(self, rank, text):
        return bool(re.search(rf"rank {rank}( on \S+)? differs", text))

    def names(self, kind, layout, mode, rank, code, text):
        """Whether the end is the right one, and the text names its cause."""
        if kind.startswith("kill"):
            if mode == "threads":
                return code == -9
            return bool(re.search(r"tasks? [\d,-]+: Killed", text) or "a rank or its node may be gone" in text or "Killed" in text)
        if kind == "signal":
            return code in (75, 0) and bool(re.search(r"left.*: SIG(TERM|USR1)", text))
        if kind == "disk":
            return code == 5 and "No space left" in text and str(self.checkpoints) in text
        if kind == "call":
            return code == 5 and "fails on purpose" in text
        if kind == "memory":
            return code == 7 and self.is_odd(rank, text)
        if kind == "repair":
            return code == 75 and self.is_odd(rank, text)
        missed = re.search(r"a deadline was missed \([^)]*\): (.*)", text)
        groups = re.findall(r"ranks? ([\d, to]*\d): ([^;]*)", missed[1]) if missed else []
        accused = [ranks_in(ranks) for ranks, doing in groups if ("no answer" in doing if kind == "stop" else re.search(r"step \d+, data", doing))]
        return code == 86 and accused == [{rank}]

    def after(self, kind, layout, mode, since, rank, code, text):
        """A start has ended."""
        if "ballast" in (os.listdir(self.disk) if self.disk else []):
            (self.disk / "ballast").unlink()
        self.begin(layout, expects_start=self.last_step() > 0)
        self.seen = max(self.seen, self.newest_whole())
        named = self.names(kind, layout, mode, rank, code, text)
        caused = {"kill": (-9, 6, 137, 9), "kill start": (-9, 6, 137, 9), "signal": (75,), "disk": (5,), "call": (5,), "memory": (7,), "repair": (75, 7), "stop": (86,), "hang": (86,)}[kind]
        if code in caused or named:
            silent = int(kind == "repair" and code == 75 and not named)
            event = "memory" if kind == "repair" and code == 7 else kind
            self.row(event, layout, mode, since, named or (event == "memory" and self.is_odd(rank, text)), code, rank=rank, silent=silent)
        else:
            self.unasked(layout, code)

    def unasked(self, layout, code):
        self.row("unasked", layout, "", self.newest(), None, code)
        if code not in OF_LOAD:
            self.failed = True
            raise self.stopped(f"a start ends with code {code}: {self.output}")

    def stopped(self, text):
        from run import Stopped
        return Stopped(text)

    # Jobs that Slurm starts again.
    def field(self, job, name):
        shown = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True).stdout
        return next((word.split("=", 1)[1] for word in shown.split() if word.startswith(name + "=")), "")

    def job_ended(self, job):
        return self.field(job, "JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")

    def disturb_job(self, layout):
        job = self.launch(layout, [], None, "job", None)
        restarts = 0
        for _ in range(self.draw.randrange(1, 4)):
            kinds = ["kill"] * 6 + ["signal", "requeue"] + (["disk"] * 2 if self.disk else []) + (["stop"] if layout.ranks > 1 else [])
            kind = self.draw.choice(kinds)
            since, steps_since = self.newest(), self.last_step()
            rank = self.act(kind, layout, "job", since, 0, lambda: not self.job_ended(job)) if kind != "signal" else self.signal_job(job, since)
            self.begin(layout, expects_start=True)
            if kind == "requeue":
                subprocess.run(["scontrol", "requeue", job], capture_output=True)
            if kind == "disk":
                self.wait(lambda: "code 5, failure" in self.text() or self.job_ended(job), "code 5 of a job", pause=0.3)
                (self.disk / "ballast").unlink()
            self.wait(lambda: self.field(job, "Restarts") == str(restarts + 1) or self.job_ended(job), f"a requeue after {kind}", pause=0.5)
            again = self.field(job, "Restarts") == str(restarts + 1)
            restarts += again
            self.no_rank_of_before()
            self.floor = self.seen = max(self.seen, self.newest_whole())
            text = self.text()
            codes = re.findall(r"code (\d+), failure", text)
            code = {"signal": 75, "requeue": 0}.get(kind, int(codes[-1]) if codes else -1)
            named = True if kind == "requeue" else self.names(kind, layout, "job", rank, code, text)
            if not again or (kind == "stop" and code != 86) or (kind == "disk" and code != 5):
                self.unasked(layout, code if again else 1)
            else:
                self.row(kind, layout, "job", steps_since, named, code, rank=rank, requeued=1)
            self.wait(lambda: self.newest_whole() > self.seen or self.job_ended(job), "a checkpoint behind the requeue", pause=0.3)
        subprocess.run(["scancel", "--signal=INT", job], capture_output=True)
        self.wait(lambda: self.job_ended(job), "the end of a job", pause=0.5)
        self.no_rank_left()
        self.begin(layout, expects_start=self.last_step() > 0)
        self.seen = max(self.seen, self.newest_whole())

    def signal_job(self, job, since):
        self.wait(lambda: self.newest() > since or self.job_ended(job), "a new checkpoint", pause=0.3)
        self.seen = max(self.seen, self.newest_whole())
        subprocess.run(["scancel", f"--signal={self.draw.choice(['TERM', 'USR1'])}", job], capture_output=True)
        return 0

    def no_rank_of_before(self):
        """A requeued job waits for some seconds before it starts again: its ranks end meanwhile."""
        end = time.time() + 4
        while self.ranks() and time.time() < end:
            time.sleep(0.05)

    # Of a checkpoint's files, between two starts.
    def flip_file(self):
        steps = self.committed()
        if len(steps) < 2 or self.newest() != self.seen:
            return
        place = self.checkpoints / f"step_{steps[-1]:08}"
        file = self.draw.choice(sorted(path for path in place.iterdir()))
        data = bytearray(file.read_bytes())
        at = self.draw.randrange(len(data))
        data[at] ^= 1 << self.draw.randrange(8)
        file.write_bytes(data)
        self.damaged = (steps[-1], place.stat().st_ino)
        done = subprocess.run([self.options.forge, "verify-checkpoint", place], capture_output=True, text=True)
        text = done.stdout + done.stderr
        found = done.returncode == 3
        self.seen = steps[-2]
        self.ledger.add(run=self.number, event="file", file=file.name, byte=at, code=done.returncode, named=found and (file.name in text or place.name in text), silent=int(not found))
        if not found:
            self.failed = True
            print(f"run {self.number}: bit of byte {at} of {file} is not found: {text}", flush=True)
