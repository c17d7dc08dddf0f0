#!/usr/bin/env python3
"""mistakes.py FORGE [NAME…]: mistakes of users, as rows of tests/app/mistakes/NAME.txt: command, exit code, text.

    $ printf 'a,b\\n' > y.csv                        set-up: a shell command that must end with 0; any number, also none
    > forge deck.yaml --set 'data.files=[y.csv]'    the command; the program is called forge
    code 2                                          its exit code
    has forge tokenize                              a text that its output (stdout and stderr) contains; any number
    lacks outside the vocabulary                    a text that its output doesn't contain; any number

Rows are apart by empty lines; a line that begins with # is a comment. Each row runs in a directory of its own, which has deck.yaml
(two layers, fp64, 256 ids, four steps, no checkpoints) and tokens.bin (2,000 uint16 ids below 256). FORGE_SOURCE is the checkout.
A command that takes longer than a minute has failed.
"""

import array
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DECK = """model: {layers: 2, width: 32, heads: 4, kv_heads: 2, ffn: 64, vocabulary: 256}
train: {steps: 4, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 64, precision: fp64}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [tokens.bin], dtype: uint16}
output: {directory: run}
machine: {threads: 1, peak_tflops: 1}
"""


class Row:
    def __init__(self, place):
        self.place, self.setup, self.command, self.code, self.has, self.lacks = place, [], None, None, [], []

    def complete(self):
        return self.command is not None and self.code is not None and (self.has or self.lacks)


def rows_of(path):
    rows, row = [], None
    for number, line in enumerate([*path.read_text().split("\n"), ""], 1):
        if not line.strip():
            if row:
                if not row.complete():
                    sys.exit(f"{row.place}: a row has a command, a code and a text at least")
                rows.append(row)
            row = None
        elif not line.startswith("#"):
            row = row or Row(f"{path.name}:{number}")
            kind, _, rest = line.partition(" ")
            if kind == "$":
                row.setup.append(rest)
            elif kind == ">" and row.command is None:
                row.command = rest
            elif kind == "code" and row.code is None:
                row.code = int(rest)
            elif kind in ("has", "lacks"):
                (row.has if kind == "has" else row.lacks).append(rest)
            else:
                sys.exit(f"{path.name}:{number}: not a line of a row: {line}")
    return rows


def run(row, forge):
    """The complaints about a row."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "bin").mkdir()
        (folder / "bin/forge").symlink_to(forge)
        work = folder / "work"
        work.mkdir()
        (work / "deck.yaml").write_text(DECK)
        ids = random.Random(1)
        (work / "tokens.bin").write_bytes(array.array("H", (ids.randrange(256) for _ in range(2000))).tobytes())
        environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "FORGE_SOURCE": str(Path(__file__).parents[2]),
                       "OMP_WAIT_POLICY": "passive"}
        for command in row.setup:
            done = subprocess.run(["bash", "-c", command], cwd=work, env=environment, capture_output=True, text=True, errors="replace", timeout=60)
            if done.returncode:
                return [f"set-up ends with {done.returncode}: {command}\n{done.stdout}{done.stderr}"]
        try:
            done = subprocess.run(["bash", "-c", row.command], cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60)
        except subprocess.TimeoutExpired:
            return ["takes longer than a minute"]
    said = [f"code {done.returncode}, not {row.code}"] if done.returncode != row.code else []
    said += [f"no '{text}'" for text in row.has if text not in done.stdout]
    said += [f"'{text}' is there" for text in row.lacks if text in done.stdout]
    return [*said, f"output: {done.stdout}"] if said else []


def main():
    forge = Path(sys.argv[1]).resolve()
    folder = Path(__file__).with_suffix("")
    paths = [folder / f"{name}.txt" for name in sys.argv[2:]] or sorted(folder.glob("*.txt"))
    rows = [row for path in paths for row in rows_of(path)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda row: run(row, forge), rows))
    failed = 0
    for row, said in zip(rows, results):
        if said:
            failed += 1
            print(f"{row.place}: {row.command}")
            print("\n".join("    " + line for text in said for line in text.split("\n")))
    print(f"{len(rows)} mistakes, {failed} not answered as they should be")
    sys.exit(1 if failed or not rows else 0)


if __name__ == "__main__":
    main()
