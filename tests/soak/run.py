"""One run of the soak: starts on random layouts, each disturbed, and the comparison at its end with a run that nothing has disturbed."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from faults import Faults
from layouts import Layout, draw_deck

BOUND = 1e-8  # of a loss in fp64 beside one rank's, relative: 1e-11 of a step's gradients, grown over hundreds of updates


class Stopped(Exception):
    """The run can't go on, or has lost a step."""


class Run(Faults):
    def __init__(self, options, ledger, number, draw, place, disk, until):
        self.options, self.ledger, self.number, self.draw, self.place, self.until = options, ledger, number, draw, place, until
        self.disk = disk if disk and draw.random() < 0.6 else None
        if disk:
            for left in disk.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        self.checkpoints = (self.disk or place) / "checkpoints"
        text, self.experts, self.precision = draw_deck(draw, here=place, checkpoints=self.checkpoints, tokens=options.tokens)
        self.every = int(re.search(r"every_steps: (\d+), keep", text)[1])
        self.deck = place / "deck.yaml"
        self.deck.write_text(text)
        self.parts = []  # (first step - 1, layout, whether MPI ran it: it adds in another order than threads) of metrics.jsonl's steps
        self.seen = 0  # the newest step that was committed, and is whole
        self.damaged = None  # (step, inode) of a checkpoint with a flipped bit
        self.floor = 0  # the same, before the last start
        self.failed = False
        self.starts = 0
        self.job = None  # of Slurm, the last one
        self.told = 0  # bytes of the output that were looked at
        self.counted = 0  # the same, for saves
        self.output = place / "output"
        self.output.touch()

    # The steps whose checkpoints the directory holds.
    def committed(self):
        return sorted(int(path.name[5:]) for path in self.checkpoints.glob("step_*"))

    def newest(self):
        return max(self.committed(), default=0)

    def newest_whole(self):
        """Of those that are there; a start that comes by replaces a damaged one."""
        steps = []
        for path in self.checkpoints.glob("step_*"):
            try:
                if (int(path.name[5:]), path.stat().st_ino) != self.damaged:
                    steps.append(int(path.name[5:]))
            except FileNotFoundError:  # it is being removed
                pass
        return max(steps, default=0)

    def metrics(self, place="run"):
        file = self.place / place / "metrics.jsonl"
        rows = []
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:  # it is being written
                break
        return rows

    def last_step(self):
        rows = self.metrics()
        return rows[-1]["step"] if rows else 0

    def text(self):
        return self.output.read_bytes()[self.told:].decode(errors="replace")

    # Processes of this run: of its ranks.
    def ranks(self):
        """{pid: rank}"""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                if Path("/proc", entry, "comm").read_text().strip() != os.path.basename(self.options.forge)[:15] or str(self.deck).encode() not in Path("/proc", entry, "cmdline").read_bytes():
                    continue
                values = dict(word.split("=", 1) for word in Path("/proc", entry, "environ").read_bytes().decode(errors="replace").split("\0") if "=" in word)
                found[int(entry)] = int(values.get("SLURM_PROCID", 0))
            except OSError:
                continue
        return found

    def wait(self, holds, what, seconds=600, pause=0.03):
        end = time.time() + seconds
        while not holds():
            if time.time() > end:
                raise TimeoutError(f"this did not come true in {seconds} s: {what}")
            time.sleep(pause)

    # Starts.
    def launch(self, layout, words, fault, mode, end):
        self.told = self.output.stat().st_size
        self.starts += 1
        self.floor = self.seen
        self.mpi = mode != "threads"
        self.ledger.add(run=self.number, event="start", named=None, layout=layout.name, ranks=layout.ranks, mode=mode, moved=bool(self.parts) and self.parts[-1][1] is not layout)
        words = layout.words(*words, *([f"train.steps={end}"] if end else []))
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("FORGE_FAULT", None)
        if fault:
            environment["FORGE_FAULT"] = fault
        nodes, each = layout.nodes()
        if mode == "threads":
            command = [self.options.forge, self.deck, *words, "--ranks", layout.ranks]
        elif mode == "step":
            command = ["srun", "-N", nodes, f"--ntasks-per-node={each}", "--mpi=pmix", "--kill-on-bad-exit=1", self.options.forge, self.deck, *words]
        else:
            environment |= {"FORGE_ROOT": str(self.options.root), "FORGE": self.options.forge, "FORGE_MOST_FAILURES": "50"}
            command = ["sbatch", "--parsable", f"--nodes={nodes}", f"--ntasks-per-node={each}", "--cpus-per-task=1", "--time=60", f"--output={self.output}",
                       self.options.root / "jobscripts/slurm_cpu.sh", self.deck, *words]
            self.job = subprocess.run([*map(str, command)], cwd=self.place, env=environment, check=True, capture_output=True, text=True).stdout.strip()
            return self.job
        with open(self.output, "ab") as output:
            return subprocess.Popen([*map(str, command)], cwd=self.place, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def begin(self, layout, expects_start=False):
        """Of the starts in the output since the last call: where they went on."""
        text = self.text()
        found = [int(n) for n in re.findall(r"restarted from \S+, step (\d+)", text)]
        if not found and (not expects_start or self.floor > 0):  # it has ended before it took effect
            return
        for step in found or [0]:
            if step < self.floor:
                raise Stopped(f"step {self.floor} was committed and whole, but a start went on from step {step}: {self.output}")
            self.parts = [part for part in self.parts if part[0] < step]
            if not self.parts or self.parts[-1][1:] != (layout, self.mpi):
                self.parts.append((step, layout, self.mpi))
        self.told = self.output.stat().st_size

    def trains(self, since):
        """There is a newer committed step than this one."""
        return self.newest() > since

    def row(self, event, layout, mode, since, named, code, **more):
        size = sum(file.stat().st_size for file in self.checkpoints.glob("step_*/*")) // max(len(self.committed()), 1)
        new = self.output.read_bytes()[self.counted:]
        self.counted += len(new)
        saves = len(re.findall(rb"saved step_|is being written behind", new))
        self.ledger.add(run=self.number, event=event, layout=layout.name, ranks=layout.ranks, mode=mode, step=self.newest(), steps=max(0, self.last_step() - since),
                        bytes=saves * size, code=code, named=named, **more)
        if named is False:
            self.failed = True
            print(f"run {self.number}: {event} is not named, code {code}: {self.output}", flush=True)

    # The run.
    def legal_layout(self, replicas):
        while True:
            layout = Layout(self.draw, self.experts, replicas)
            shown = subprocess.run([self.options.forge, "show", self.deck, *layout.words(), "--ranks", str(layout.ranks)], capture_output=True)
            if shown.returncode == 0:
                return layout

    def go(self):
        layouts = [self.legal_layout(replicas=i == 0 and self.draw.random() < 0.7) for i in range(2)]
        begun = time.time()
        for _ in range(self.draw.randrange(8, 17)):
            if time.time() > self.until:
                break
            self.disturb(self.draw.choice(layouts))
            if self.draw.random() < 0.35:
                self.flip_file()
        last = self.draw.choice(layouts)
        self.finish(last, self.newest() + self.draw.randrange(3, 9))
        self.compare(begun)

    def finish(self, layout, end):
        for _ in range(6):  # a machine under load may miss a deadline
            since = self.newest()
            process = self.launch(layout, [], None, self.mode(layout, jobs=False), end)
            code = process.wait(1200)
            self.begin(layout, expects_start=True)
            self.row("end", layout, "end", since, None, code)
            if code == 0:
                return
            self.unasked(layout, code)
        raise Stopped(f"the run doesn't end: {self.output}")

    def undisturbed(self, name, parts, end, more=()):
        for i, (_, layout, mpi) in enumerate(parts):
            to = parts[i + 1][0] if i + 1 < len(parts) else end
            words = layout.words(f"train.steps={to}", f"checkpoint.directory={self.place}/{name}", f"output.directory={self.place}/{name}.run", "checkpoint.every_steps=0",
                                 "checkpoint.asynchronous=false", "checkpoint.keep_last=1", *more)
            start = [self.options.root / "tests/mpirun.sh", str(layout.ranks), self.options.forge] if mpi else [self.options.forge]
            done = subprocess.run([*start, self.deck, *words, *([] if mpi else ["--ranks", str(layout.ranks)])], cwd=self.place, capture_output=True, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            if done.returncode:
                raise RuntimeError(f"the undisturbed run ends with {done.returncode}: {done.stdout[-2000:]}{done.stderr}")
        return self.metrics(f"{name}.run")

    def compare(self, begun):
        numbers = ("step", "tokens", "loss", "total_loss", "grad_norm", "learning_rate", "updated")
        mine = [{key: row[key] for key in numbers} for row in self.metrics() if "loss" in row]
        end = mine[-1]["step"] if mine else 0
        whole = [{key: row[key] for key in numbers} for row in self.undisturbed("whole", self.parts, end) if "loss" in row]
        lost = int([row["step"] for row in mine] != list(range(1, end + 1)))
        same = mine == whole
        for shard in (self.place / "whole").glob(f"step_{end:08}/shard_*.h5"):
            same = same and shard.read_bytes() == (self.checkpoints / shard.parent.name / shard.name).read_bytes()
        deviation = None
        if self.precision == "fp64":
            single = Layout(self.draw, False)
            single.ranks, single.sets = 1, []
            one = self.undisturbed("single", [(0, single, False)], end)
            deviation = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(mine, one))
        silent = int(not same or (deviation or 0) > BOUND)
        self.failed = self.failed or bool(lost or silent)
        self.ledger.add(run=self.number, event="run", named=None, precision=self.precision, experts=self.experts, last=end, bitwise=same, deviation=deviation,
                        lost=lost, silent=silent, parts=[(step, f"{layout.name}{', MPI' if mpi else ''}") for step, layout, mpi in self.parts], seconds=round(time.time() - begun, 1))
        print(f"run {self.number}: {end} steps, {self.starts} starts, {'bit for bit an undisturbed run' if same else 'DIFFERS: ' + str(self.place)}", flush=True)

    def clean(self, keep):
        if self.job:
            subprocess.run(["scancel", self.job], capture_output=True)
        for pid in self.ranks():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if keep and self.disk:
            shutil.copytree(self.checkpoints, self.place / "checkpoints", dirs_exist_ok=True)
        if not keep:
            shutil.rmtree(self.place, ignore_errors=True)
