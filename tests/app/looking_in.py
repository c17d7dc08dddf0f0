#!/usr/bin/env python3
"""looking_in.py FORGE: what a person sees of a run: the samples of a step, profiles of some steps and ranks, memory over the tasks of a step,
and the line that a terminal redraws."""
import array
import fcntl
import json
import os
import pty
import random
import re
import struct
import subprocess
import tempfile
import termios
import xml.etree.ElementTree as ET
from pathlib import Path

from program import FORGE, expect, finish, said, sets

END, T = 256, 16
DECK = """model: {layers: 2, width: 16, heads: 2, ffn: 24, vocabulary: 257}
train: {steps: 12, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 16, precision: fp32}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [a.bin, b.bin], dtype: uint16, document_end_token: 256}
output: {directory: run, every_steps: 6}
machine: {workspace_mib: 1, peak_tflops: 1, threads: 1}
"""


def tokens_of(path):
    ids = array.array("H")
    ids.frombytes(Path(path).read_bytes())
    return ids


# ---- samples


def samples_of(step, *options):
    return json.loads(said("show", "deck.yaml", "--json", "--samples", str(step), *options))["samples"]


def text_of(ids):
    return "".join("\n" if i == END else chr(i) for i in ids)


def check_rows(files):
    """In sequence: place p is sample p of the files, and everything that is said of it stands there."""
    count = {name: (len(ids) - 1) // T for name, ids in files.items()}
    for step in (1, 3):
        told = samples_of(step)
        expect(told["step"] == step and len(told["rows"]) == 4, f"step {step}: {told['step']}, {len(told['rows'])} rows")
        for row in told["rows"]:
            place = 4 * (step - 1) + row["row"]
            name, sample = ("a.bin", place) if place < count["a.bin"] else ("b.bin", place - count["a.bin"])
            ids = files[name][sample * T : sample * T + T + 1]
            expect(row["place"] == row["sample"] == place, f"row {row['row']} of step {step} is place {row['place']}")
            expect(row["tokens"] == list(ids), f"place {place} has other tokens")
            expect(row["labels"] == [-1 if ids[t] == END else ids[t + 1] for t in range(T)], f"place {place} has other labels")
            at = 0
            for part in row["parts"]:
                first = sample * T + at
                begin = next((i + 1 for i in range(first - 1, -1, -1) if files[name][i] == END), 0)
                expect(part["file"] == name and part["at"] == at and part["first_token"] == first, f"place {place}: {part}, not {first} of {name}")
                expect(part["document_first_token"] == begin, f"place {place}: {part} begins at {begin}")
                expect(part["text"] == text_of(ids[at : at + part["tokens"]]), f"place {place}: {part} has another text")
                at += part["tokens"]
            expect(at == T, f"place {place} has parts of {at} tokens")
    expect(any(row["parts"][0]["file"] == "b.bin" for row in samples_of(3)["rows"]), "no row is of the second file")


def check_samples(files):
    check_rows(files)
    shuffled = sets("data.order=shuffled")

    def common(*mesh):  # what no mesh changes
        return [{k: v for k, v in row.items() if k not in ("microbatch", "data_rank")} for row in samples_of(5, *shuffled, *mesh)["rows"]]

    one = common()
    for mesh in (["--ranks", "4"], ["--ranks", "4", *sets("mesh.tp=2", "mesh.pp=2")], sets("train.microbatch_sequences=4")):
        expect(common(*mesh) == one, f"{mesh}: another batch")
    owners = [(row["data_rank"], row["microbatch"]) for row in samples_of(5, "--ranks", "2")["rows"]]
    expect(owners == [(0, 0), (1, 0), (0, 1), (1, 1)], f"two ranks read {owners}")
    text = said("show", "deck.yaml", "--samples", "3")
    for words in ("step 3: 4 sequences, places 8 to 11", "a.bin, tokens 128 to ", "of the document from token ", "b.bin, tokens 0 to "):
        expect(words in text, f"'{words}' isn't said: {text}")
    expect(text_of(files["b.bin"][:5]) in text, "no text is shown")
    ids = said("show", "deck.yaml", "--samples", "3", *sets("model.vocabulary=300"))
    expect(" ".join(map(str, files["b.bin"][:5])) in ids, f"no ids are shown without a tokenizer: {ids}")
    late = said("show", "deck.yaml", "--samples", "13", code=2)
    expect("the run has the steps 1 to 12" in late and "memory" not in late, f"a step behind the run's: {late}")
    said("deck.yaml", *sets("train.steps=3"))
    expect(said("show", "run", "--samples", "3").split("step 3:")[1] == text.split("step 3:")[1], "a run's directory shows other rows")


# ---- profiles


def check_profiles():
    two = ["--ranks", "2", *sets("output.directory=profiled")]
    text = said("deck.yaml", *two, *sets("output.profile=2-3,7", "output.profile_ranks=1"))
    files = sorted(path.name for path in Path("profiled/profile").iterdir())
    expect(files == [f"step_00000{s}_rank_00001.json" for s in (2, 3, 7)], f"profiles {files}")
    for name in files:
        events = json.loads(Path("profiled/profile", name).read_text())["traceEvents"]
        expect(any(e["name"].startswith("forward") for e in events), f"{name} has no forward")
    expect("no profile" not in text, text)
    saved = sets("output.directory=again", "checkpoint.directory=saved")
    said("deck.yaml", *saved, *sets("train.steps=3"))
    text = said("deck.yaml", *saved, "--restart", *sets("train.steps=5", "output.profile=[2, 4-5]"))
    expect("no profile of 1 step of output.profile = 2, 4-5, before this start" in text, text)
    files = sorted(path.name for path in Path("again/profile").iterdir())
    expect(files == ["step_000004_rank_00000.json", "step_000005_rank_00000.json"], f"profiles behind a restart {files}")


# ---- memory


def check_drawing(*options):
    """The drawing's categories add up to the planned peak, and no task has more."""
    shown = json.loads(said("show", "deck.yaml", "--json", "--tasks", "0", *options))
    peak = max(stage["total_bytes"] for stage in shown["memory"]["ranks"])
    said("show", "deck.yaml", "--memory", "svg:memory.svg", *options)
    svg = ET.parse("memory.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    layers = {}
    for polygon in svg.iter(name + "polygon"):
        words = re.fullmatch(r"(.*) (\d+) B at the peak", polygon.find(name + "title").text)
        layers[words[1]] = int(words[2])
    expect(sum(layers.values()) == peak, f"{options}: {layers} aren't {peak}")
    text = " ".join(label.text for label in svg.iter(name + "text"))
    told = re.search(r"peak .* \((\d+) B\) in task (\d+), (\S+)", text)
    expect(told and int(told[1]) == peak, f"{options}: the peak isn't named: {text}")
    if told and len(shown["memory"]["ranks"]) == 1:
        tasks = shown["tasks"]
        expect(tasks[int(told[2])]["task"].startswith(told[3].rstrip(":")), f"task {told[2]} is no {told[3]}: {tasks[int(told[2])]}")
    tops = [min(float(y) for y in re.findall(r",(\S+)", p.get("points"))) for p in svg.iter(name + "polygon")]
    expect(abs(tops[-1] - 46) < 0.02 and tops == sorted(tops, reverse=True), f"{options}: the stack is {tops}")


def check_memory():
    check_drawing()
    check_drawing("--ranks", "2", *sets("mesh.pp=2", "train.recompute=full"))
    check_drawing(*sets("optimizer.name=muon", "train.precision=bf16"))
    expect("legal is svg:FILE" in said("show", "deck.yaml", "--memory", "png:x", code=2), "another format")
    before = Path("a.bin").read_bytes()
    expect("a.bin" in said("show", "deck.yaml", "--memory", "svg:a.bin", code=2) and Path("a.bin").read_bytes() == before, "the data is overwritten")
    check_counters()


def check_counters():
    said("plan", "deck.yaml", "--machine", "h100_8", "--trace", "trace.json", "--ranks", "2", *sets("mesh.pp=2", "train.precision=bf16"))
    shown = json.loads(said("show", "deck.yaml", "--json", "--ranks", "2", "--cost", "h100_8", *sets("mesh.pp=2", "train.precision=bf16")))
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    for rank, stage in enumerate(shown["memory"]["ranks"]):
        counters = [e for e in events if e["ph"] == "C" and e["pid"] == rank]
        most = max(sum(e["args"].values()) for e in counters)
        expect(most == stage["total_bytes"], f"the counter of pp rank {rank} reaches {most}, not {stage['total_bytes']}")
        times = [e["ts"] for e in counters]
        expect(times == sorted(times) and len({json.dumps(e["args"]) for e in counters}) > 3, "counters that don't change, or go back")


# ---- the line of a terminal


def on_terminal(*words, columns=60, kind="xterm"):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    job = subprocess.Popen([FORGE, *words], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env={**os.environ, "TERM": kind})
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # its end
            break
        if not part:
            break
        text += part
    os.close(ours)
    expect(job.wait(timeout=120) == 0, f"{words} on a terminal: {text.decode()}")
    return text.decode().replace("\r\n", "\n")


def check_terminal():
    many = sets("train.steps=60", "output.every_steps=30", "output.directory=shown", "train.sequence_tokens=128", "model.width=64")
    text = on_terminal("deck.yaml", *many)
    drawn = re.findall(r"([^\n\r]*)\x1b\[K\r", text)
    expect(drawn and all(re.match(r"(\x1b\[K)? +\d+/60 ", line) for line in drawn), f"no line is redrawn: {text!r}")
    expect(all(len(line.replace("\x1b[K", "")) <= 59 for line in drawn), f"a line is wider than the terminal: {drawn}")
    log = Path("shown/log.txt").read_text()
    expect("\x1b" not in log and "\r" not in log, "log.txt has what the terminal redraws")
    stays = re.sub(r"[^\n\r]*\x1b\[K\r", "", text).replace("\x1b[K", "")
    lines = [line for line in log.splitlines() if re.match(r" +\d+/60 ", line)]
    expect(lines and all(line in stays for line in lines), f"lines of the log don't stay on the terminal: {stays!r}")
    expect("\x1b" not in on_terminal("deck.yaml", *many, kind="dumb"), "a dumb terminal is redrawn")
    expect("\x1b" not in said("deck.yaml", *many), "a pipe is redrawn")
    # mpirun gives its ranks a terminal without a size.
    expect("\x1b" not in on_terminal("deck.yaml", *many, columns=0), "a terminal without columns is redrawn")


def check_times():
    """Parts of a run's time add up to it: a validation before the first step counts once."""
    text = said("deck.yaml", *sets("output.directory=timed", "data.validation=[{name: held, files: [b.bin]}]", "train.validate_every_steps=6"))
    part = {name: float(seconds) for name, seconds in re.findall(r"(?m)^  (\w+) +(-?[\d.]+) s", text.split("time of rank 0:")[1])}
    expect(part["other"] >= -0.02, f"parts of the time: {part}")
    expect(abs(sum(s for name, s in part.items() if name != "total") - part["total"]) < 0.06, f"parts don't add up: {part}")


def check_characters():
    """Bytes that are characters of UTF-8 are shown as such; others and control characters as '?' or U+FFFD."""
    written = "naïve ß 日本 é"
    Path("words.bin").write_bytes(array.array("H", [*(written * 40).encode()]).tobytes())
    told = samples_of(1, *sets("data.files=[words.bin]"))
    shown = "".join(part["text"] for part in told["rows"][1]["parts"])
    expect("日" in shown and "ï" in shown, f"characters are shown as {shown!r}")
    Path("broken.bin").write_bytes(array.array("H", [0xE6, 0x97, 0x41, 0xFF, 0x07, 0xC3] * 60).tobytes())
    shown = "".join(part["text"] for part in samples_of(1, *sets("data.files=[broken.bin]"))["rows"][0]["parts"])
    expect(shown.startswith("\ufffdA\ufffd?\ufffd\ufffdA"), f"broken characters are shown as {shown!r}")


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        draw, files = random.Random(3), {}
        for name, documents in (("a.bin", 9), ("b.bin", 40)):
            ids = []
            for _ in range(documents):
                ids += [draw.randrange(97, 123) for _ in range(draw.randrange(1, 40))] + [END]
            Path(name).write_bytes(array.array("H", ids).tobytes())
            files[name] = tokens_of(name)
        Path("deck.yaml").write_text(DECK)
        check_samples(files)
        check_profiles()
        check_memory()
        check_terminal()
        check_times()
        check_characters()
    finish()


if __name__ == "__main__":
    main()
