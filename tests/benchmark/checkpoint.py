#!/usr/bin/env python3
"""What checkpoints cost: 1.1 GB from four ranks, as ratios to dd on the same disk in the same run.

    python3 tests/benchmark/checkpoint.py [--repeats 3] [--directory DIR]

    saving    bytes of the shards over the time that the log gives for `saved`, to four dd that write as much beside each
              other, each with conv=fsync, from a file in memory. In turn; the first save of a run is left out. Each
              is read back from the disk before an older one is removed; with --keep-last 0 none is.
    behind    steps of a run that saves once behind its steps (checkpoint.asynchronous), to those of a run that saves
              nothing, in turn: what the steps take longer, with the copy of the state, reading back included.
    loading   on another layout, from the disk (the files are put out of the page cache before): seconds, bytes read over
              bytes that the ranks hold; and from the page cache, to `cat` of the same files.

DIR must be on the disk that is meant (default: the build folder's). Medians; the load of the machine is printed, since
all of this needs the cores, too.
"""

import argparse
import array
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

MPIRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpirun.sh")

RANKS = 4
DECK = """\
model: {{layers: 6, width: 1024, heads: 16, ffn: 2816, vocabulary: 8192}}
mesh: {{dp_shard: {ranks}}}
train: {{steps: {steps}, global_batch_sequences: 4, sequence_tokens: {tokens}, precision: fp32, zero_stage: 1}}
optimizer: {{learning_rate: 1.0e-4, schedule: constant}}
data: {{files: [{folder}/tokens.bin], dtype: uint16}}
checkpoint: {{{checkpoint}}}
output: {{directory: {folder}/run, every_steps: 1}}
machine: {{threads: 1, peak_tflops: 1, first_deadline_seconds: 0}}
"""


def seconds_of(text):
    """'1.2s', '1m02s', '1h02m', as the log has them."""
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(float(n) * units[u] for n, u in re.findall(r"([0-9.]+)([smh])", text))


class Bench:
    def __init__(self, arguments, folder):
        self.forge, self.folder, self.keep_last = arguments.forge, folder, arguments.keep_last
        with open(os.path.join(folder, "tokens.bin"), "wb") as file:
            array.array("H", (i * 977 % 8191 for i in range(1 << 16))).tofile(file)

    def train(self, steps, checkpoint, tokens=16, options=()):
        shutil.rmtree(os.path.join(self.folder, "run"), ignore_errors=True)
        deck = os.path.join(self.folder, "deck.yaml")
        with open(deck, "w") as file:
            file.write(DECK.format(ranks=RANKS, steps=steps, tokens=tokens, folder=self.folder, checkpoint=checkpoint))
        command = [MPIRUN, str(RANKS), self.forge, "train", deck, *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"forge ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def saved(self):
        return os.path.join(self.folder, "saved")

    def clear(self):
        shutil.rmtree(self.saved(), ignore_errors=True)
        for name in glob.glob(os.path.join(self.folder, "dd_*")):
            os.remove(name)
        os.sync()
        time.sleep(1)

    def shard_bytes(self):
        newest = sorted(glob.glob(self.saved() + "/step_*"))[-1]
        return sum(os.path.getsize(name) for name in glob.glob(newest + "/shard_*"))

    def save_rates(self):
        """GB/s of each save but the first."""
        self.clear()
        log = self.train(4, f"directory: {self.saved()}, every_steps: 1, keep_last: {self.keep_last}")
        times = [seconds_of(text) for text in re.findall(r"saved step_\d+ in (.*)", log)]
        return [self.shard_bytes() / t / 1e9 for t in times[1:]]

    def dd_rate(self, source, size):
        self.clear()
        block = 1 << 20
        start = time.monotonic()
        writers = [
            subprocess.Popen(
                ["dd", f"if={source}", f"of={self.folder}/dd_{i}", f"bs={block}", "conv=fsync", "status=none"]
            )
            for i in range(RANKS)
        ]
        if any(writer.wait() != 0 for writer in writers):
            raise RuntimeError("dd failed")
        return RANKS * size / (time.monotonic() - start) / 1e9

    def saving(self, repeats):
        block = 283  # MiB of each writer: a fourth of what forge writes
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as source:
            for _ in range(block):
                source.write(os.urandom(1 << 20))
            source.flush()
            self.dd_rate(source.name, block << 20)  # warm-up
            forge, dd = [], []
            for _ in range(repeats):
                dd.append(self.dd_rate(source.name, block << 20))
                forge.append(statistics.median(self.save_rates()))
                dd.append(self.dd_rate(source.name, block << 20))
            ratios = [f / statistics.mean(dd[2 * i : 2 * i + 2]) for i, f in enumerate(forge)]
        print(f"saving: forge {statistics.median(forge):.2f} GB/s, dd {statistics.median(dd):.2f} GB/s; forge / dd "
              f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})", flush=True)

    def step_times(self, steps, checkpoint):
        """Seconds of the steps behind the second one, with the time that saving held them up."""
        log = self.train(steps, checkpoint, tokens=128)
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as file:
            seconds = [line["step_seconds"] for line in map(json.loads, file) if "loss" in line]
        waited = re.findall(r"behind the next steps, which waited (.*)", log)
        return sum(seconds[2:]) + sum(map(seconds_of, waited))

    def behind(self, repeats, steps):
        costs = []
        for _ in range(repeats):
            self.clear()
            plain = self.step_times(steps - 1, "")
            # An older step that will go; then one save in the run's first half. The one at the end is waited for and
            # doesn't count.
            self.train(1, f"directory: {self.saved()}, keep_last: {self.keep_last}", tokens=128)
            saving = self.step_times(
                steps,
                f"directory: {self.saved()}, every_steps: {steps // 2}, asynchronous: true, "
                f"keep_last: {self.keep_last}, resume: auto",
            )
            costs.append((saving - plain, plain))
            self.clear()
        cost = statistics.median(c for c, _ in costs)
        base = statistics.median(p for _, p in costs)
        print(f"behind: a save adds {cost:.2f} s to steps of {base:.1f} s: {100 * cost / base:.1f} % "
              f"({', '.join(f'{100 * c / p:.1f}' for c, p in costs)})", flush=True)

    def loading(self, repeats):
        self.clear()
        self.train(1, f"directory: {self.saved()}, every_steps: 1")
        layouts = {
            "the same": (),
            "pp 2, tp 2": ("--set", "mesh.pp=2", "--set", "mesh.tp=2", "--set", "mesh.dp_shard=1", "--set", "train.zero_stage=0"),
            "tp 4": ("--set", "mesh.tp=4", "--set", "mesh.dp_shard=1", "--set", "train.zero_stage=0"),
            "zero 3": ("--set", "train.zero_stage=3"),
        }
        for name, options in layouts.items():
            notes = []
            for _ in range(repeats):
                for path in glob.glob(self.saved() + "/step_*/*"):
                    with open(path) as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                log = self.train(1, f"directory: {self.saved()}, every_steps: 0", options=("--restart", "latest", *options))
                notes.append(re.search(r"; (.* read for .*)", log).group(1))
            print(f"loading, {name}: {'; '.join(notes)}", flush=True)
        self.from_page_cache(repeats)

    def from_page_cache(self, repeats):
        """A restart on the same layout to `cat` of the shards, in turn."""
        ratios = []
        for _ in range(repeats + 1):  # the first brings them into the cache
            start = time.monotonic()
            with open(os.devnull, "wb") as sink:
                subprocess.run(["cat", *glob.glob(self.saved() + "/step_*/shard_*")], stdout=sink, check=True)
            cat = time.monotonic() - start
            log = self.train(1, f"directory: {self.saved()}, every_steps: 0", options=("--restart", "latest"))
            ratios.append(cat / seconds_of(re.search(r"; .* read for .*, in (.*)", log).group(1)))
        print(f"loading from the page cache: {statistics.median(ratios[1:]):.2f} of cat's rate", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24, help="of each run of `behind`")
    parser.add_argument("--keep-last", type=int, default=1, help="checkpoint.keep_last; 0: nothing is read back")
    parser.add_argument("--forge", default="build/cpu/forge")
    parser.add_argument("--directory", default="build")
    parser.add_argument("--only", choices=["saving", "behind", "loading"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        bench = Bench(arguments, os.path.abspath(folder))
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        if arguments.only in (None, "saving"):
            bench.saving(arguments.repeats)
        if arguments.only in (None, "behind"):
            bench.behind(arguments.repeats, arguments.steps)
        if arguments.only in (None, "loading"):
            bench.loading(arguments.repeats)
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
