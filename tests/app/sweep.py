#!/usr/bin/env python3
"""sweep.py FORGE: jobscripts/sweep.py on this machine. Eight layouts, each with an end of its own, in a sweep that is killed in three ways and goes on:
one row each, with the class, the line and the figures of the run; nothing is left running; layouts of a search, its decks and a table;
the report; what is refused."""
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom
from pathlib import Path

FORGE = os.path.abspath(sys.argv[1])
ROOT = Path(__file__).resolve().parents[2]
SWEEP = [sys.executable, str(ROOT / "jobscripts/sweep.py")]
scratch = tempfile.TemporaryDirectory()
WORK = Path(scratch.name)
failures = []
DECK = f"""model: {{layers: 2, width: 32, heads: 4, kv_heads: 2, ffn: 64, vocabulary: 256}}
train: {{steps: 8, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 32, precision: bf16}}
optimizer: {{learning_rate: 1e-2, schedule: constant}}
data: {{files: [{WORK}/tokens.bin], dtype: uint16}}
checkpoint: {{directory: {WORK}/elsewhere, every_steps: 2, every_seconds: 5, keep_last: 2, keep_every_steps: 4, asynchronous: true, resume: auto, stop_on_failure: false, end_margin_seconds: 5}}
output: {{directory: {WORK}/never, sample_tokens: 4}}
machine: {{threads: 1, peak_tflops: 1}}
"""
# In the place of the program: layouts by their directories, with faults of their own.
FAULTY = f"""#!/usr/bin/env bash
for word in "$@"; do
  case $word in
    output.directory=*/0004/run) export FORGE_FAULT=hang:1:3 ;;
    output.directory=*/0005/run) export FORGE_FAULT=kill:1:3 ;;
    output.directory=*/0006/run) export FORGE_FAULT=stop:0:3 ;;
    output.directory=*/0007/run) export FORGE_FAULT=throw:0:3:6 ;;
    output.directory=*/000[12]/run) export FORGE_FAULT=slow:0:6:2 ;;
  esac
done
exec {FORGE} "$@"
"""
TABLE = """mesh.tp,mesh.pp,mesh.dp_shard,model.layers,model.width
1,,,,
2,,,,
3,,,,
,2,,,
,,2,,
2,,,,
1,,,,
,,,64,16384
"""
CLASSES = {1: "ok", 2: "ok", 3: "invalid", 4: "hang", 5: "failed", 6: "hang", 7: "failed", 8: "out of memory"}
LINES = {2: "8/8 ", 3: "mesh.tp = 3 does not divide model.heads = 4", 4: "a deadline was missed", 5: "ended by signal 9 (SIGKILL) behind step ", 6: "and it was silent for ",
         7: "fails on purpose", 8: "the deck doesn't fit"}


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, code=0, has="", **options):
    done = subprocess.run([*SWEEP, *map(str, arguments)], cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    expect(done.returncode == code and has in done.stdout, f"{arguments}: code {done.returncode}, not {code} and '{has}': {done.stdout}")
    return done.stdout


def processes(text):
    """Those whose command line has it, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def until(holds, seconds, what):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            expect(False, f"this did not come true in {seconds} s: {what}")
            return
        time.sleep(0.02)


def nothing_left(name):
    until(lambda: not processes(f"{WORK}/{name}"), 30, f"no process of {name} is left")


def rows_of(name):
    with (WORK / name / "sweep.csv").open(newline="") as file:
        return {int(row["layout"]): row for row in csv.DictReader(file)}


def steps_of(place):
    """A layout's lines of steps so far."""
    file = place / "run/metrics.jsonl"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def check_kills():
    """The sweep is killed three times, in three ways, and each layout has one row in the end."""
    (WORK / "table.csv").write_text(TABLE)
    arguments = ["run", "swept", "deck.yaml", "--layouts", "table.csv", "--forge", WORK / "faulty", "--threads", "--minutes", 0.4]
    place = WORK / "swept"
    for number, way in ((1, "kill"), (2, "term"), (2, "supervisor")):
        began = time.time()
        driver = subprocess.Popen([*SWEEP, *map(str, arguments)], cwd=WORK, stdout=subprocess.DEVNULL, start_new_session=True)
        until(lambda: 3 <= len([step for step in steps_of(place / f"{number:04d}") if step["time"] > began]) < 8, 30, f"layout {number} runs")
        if way == "supervisor":
            for process in processes(f"one\0{place}\0{number}"):
                os.kill(process, signal.SIGKILL)
            until(lambda: (place / "0004").exists(), 30, "the sweep goes on with the next layout")
        driver.send_signal(signal.SIGTERM if way == "term" else signal.SIGKILL)
        code = driver.wait()
        expect(code == (75 if way == "term" else -signal.SIGKILL), f"{way}: code {code}")
        nothing_left("swept")
        arguments = ["run", "swept"]
    expect((place / "0002/starts").read_text() == "1", "a start counts that was killed, not those that were asked to leave")
    expect((place / "0001/result.json").exists() and not (place / "0002/result.json").exists(), "layout 1 is done, layout 2 isn't")
    written = (place / "0001/result.json").stat().st_mtime_ns
    output = run("run", "swept", "--at-once", 3, has="2 ok, 1 invalid, 2 hang, 2 failed, 1 out of memory")
    expect((place / "0001/result.json").stat().st_mtime_ns == written and "\n1/8" not in output, "what has a result is not run again")
    nothing_left("swept")
    run("run", "swept", has="8 layouts, 0 to run")


def check_rows():
    rows = rows_of("swept")
    expect(list(rows) == list(CLASSES), f"rows {list(rows)}")
    for number, row in rows.items():
        expect(row["class"] == CLASSES[number], f"layout {number} is {row['class']}, not {CLASSES[number]}: {row['line']}")
        expect(LINES.get(number, "") in row["line"], f"layout {number}: no '{LINES.get(number)}' in {row['line']}")
        expect((row["mesh.tp"], row["mesh.pp"]) == tuple(TABLE.split("\n")[number].split(",")[:2]), f"keys of {number}: {row}")
    expect([rows[n]["code"] for n in (1, 3, 4, 5, 7, 8)] == ["0", "2", "86", "-9", "6", "2"], f"codes {[row['code'] for row in rows.values()]}")
    expect([rows[n]["ranks"] for n in (1, 2, 3, 4)] == ["1", "2", "", "2"], "ranks of the meshes")
    for number in (1, 2):
        steps = steps_of(WORK / f"swept/{number:04d}")
        expect([step["step"] for step in steps] == list(range(1, 9)), f"layout {number} has other steps than eight")
        middle = sorted(step["step_seconds"] for step in steps[1:])[3:5]
        row = rows[number]
        expect(float(row["step_seconds"]) in [float(f"{s:.6g}") for s in middle], f"step_seconds {row['step_seconds']} of {middle}")
        expect(abs(float(row["tokens_per_second"]) * float(row["step_seconds"]) / 128 - 1) < 1e-3, f"tokens/s of {row}")
        expect(int(row["peak_bytes"]) == int(row["planned_bytes"]) == steps[-1]["peak_bytes"], f"bytes of {row}")
        expect(abs(float(row["loss"]) / steps[-1]["loss"] - 1) < 1e-5, f"loss of {row}")
    expect(not (WORK / "elsewhere").exists() and not (WORK / "never").exists(), "a layout wrote where the deck says")


def check_search():
    """Predictions stand beside what was measured; a table and decks of one search say the same."""
    done = subprocess.run([FORGE, "plan", "deck.yaml", "--machine", "h100_8", "--ranks", "1,2", "--search", "--best", "2", "--json", "s.json",
                           "--write", "found"], cwd=WORK, capture_output=True, text=True)
    expect(done.returncode == 0, f"plan: {done.stderr}")
    best = [one for search in json.loads((WORK / "s.json").read_text())["searches"] for one in search["best"]]
    run("run", "of_json", "deck.yaml", "--layouts", "s.json", "--threads", "--steps", 3, "--forge", FORGE, "--at-once", 2, has="4 ok")
    run("run", "of_decks", "--layouts", "found", "--grid", "optimizer.learning_rate=1e-3,1e-2", "--steps", 3, "--forge", FORGE, "--at-once", 4, has="8 ok")
    for number, row in rows_of("of_json").items():
        told = best[number - 1]
        expect(abs(float(row["predicted_step_seconds"]) / told["step_seconds"] - 1) < 1e-5, f"prediction of {number}: {row}")
        per_rank = float(row["predicted_tokens_per_second"]) / int(row["ranks"])
        expect(abs(per_rank / told["tokens_per_second_per_rank"] - 1) < 1e-5 and int(row["predicted_bytes"]) == told["peak_bytes"], f"of {row}")
        expect(row["steps"] == "3" and row["schedule.name"] == told["layout"]["schedule.name"], f"layout of {row}")
    for number, row in rows_of("of_decks").items():
        told = best[(number - 1) // 2]
        expect(abs(float(row["predicted_step_seconds"]) / told["step_seconds"] - 1) < 1e-3 and row["deck"] == "deck", f"a deck's prediction: {row}")
        expect(row["optimizer.learning_rate"] == ("1e-3", "1e-2")[(number - 1) % 2], f"the grid of {row}")
    (WORK / "two.csv").write_text("mesh.tp\n1\n2\n")
    run("run", "planned", "deck.yaml", "--layouts", "two.csv", "--machine", "h100_8", "--threads", "--steps", 2, "--forge", FORGE, has="2 ok")
    expect(all(float(row["predicted_step_seconds"]) > 0 for row in rows_of("planned").values()), "--machine predicts")


def check_time():
    """A layout that is alive when its time is over is measured. One that has been started five times without a result has failed."""
    run("run", "timed", "deck.yaml", "--grid", "train.seed=1", "--steps", 10**9, "--minutes", 0.15, "--forge", FORGE, "--ranks", 2, "--set", "mesh.tp=2")
    row = rows_of("timed")[1]
    said = re.fullmatch(r"its 9 s were over in step (\d+)", row["line"])
    expect(row["class"] == "ok" and said and 1 < int(said[1]) <= int(row["steps"]) and float(row["step_seconds"]) > 0, f"timed: {row}")
    nothing_left("timed")
    (WORK / "timed/0001/result.json").unlink()
    (WORK / "timed/0001/starts").write_text("5")
    run("run", "timed", has="failed: started 5 times, and never came to an end; its last line: ")


def check_report():
    text = run("report", "of_decks", "swept", "--output", "pictures")
    rows = [row for row in rows_of("of_decks").values() if row["class"] == "ok"]
    errors = {number: abs(float(row["predicted_step_seconds"]) / float(row["step_seconds"]) - 1) for number, row in enumerate(rows, 1)}
    worst = max(errors, key=errors.get)
    named = re.search(r"worst ([\d.]+) %\n.*of_decks/(\d{4})", text)
    expect(named and int(named[2]) == worst and abs(float(named[1]) / 100 - errors[worst]) < 1e-3, f"the worst is {worst}: {text}")
    every = [row for name in ("of_decks", "swept") for row in rows_of(name).values() if row["class"] == "ok"]
    fastest = max(float(row["tokens_per_second"]) / int(row["ranks"]) for row in every)
    expect(abs(fastest / float(re.search(r"best of deck on 1 node: ([\d.]+)k", text)[1]) / 1e3 - 1) < 6e-3, f"the best has {fastest}: {text}")
    expect(text.startswith("16 layouts: 10 ok, ") and "hang: swept/0004 (deck, 1 node, " in text, f"the report says {text}")
    counts = {}
    for name in ("best", "predicted", "speed", "rates"):
        picture = xml.dom.minidom.parse(str(WORK / f"pictures/{name}.svg"))
        counts[name] = len(picture.getElementsByTagName("circle"))
    expect(counts == {"best": 0, "predicted": 8, "speed": 2, "rates": 8}, f"points of the pictures: {counts}")
    expect((WORK / "pictures/report.txt").read_text() in text, "report.txt is what is printed")


def check_refusals():
    run("run", "x", "deck.yaml", "--grid", "mesh.tp", code=2, has="legal: --grid KEY=VALUE")
    run("run", "x", "--grid", "mesh.tp=1", code=2, has="a deck is missing")
    run("run", "x", code=2, has="x is no sweep")
    run("run", "swept", "deck.yaml", "--grid", "mesh.tp=1", code=2, has="is a sweep already")
    run("run", "x", "none.yaml", "--grid", "mesh.tp=1", code=2, has="there is no deck none.yaml")
    run("run", "x", "deck.yaml", "--layouts", "none.json", code=2, has="none.json: no such file")
    run("run", "x", "deck.yaml", "--layouts", "deck.yaml.json", code=2, has="no search")
    run("run", "x", "deck.yaml", "--grid", "mesh.tp=1", "--minutes", 0, code=2, has="--minutes = 0; legal: more than 0")
    run("run", "x", "deck.yaml", "--grid", "mesh.tp=1", "--slurm", code=2, has="--slurm needs --ranks-per-node")
    run("run", "x", "deck.yaml", "--grid", "mesh.tp=1", "--machine", "nowhere", "--forge", FORGE, code=2, has="nowhere")
    run("table", "found", code=2, has="found is no sweep")
    expect(not (WORK / "x").exists(), f"a sweep that is refused leaves {list((WORK / 'x').glob('*')) if (WORK / 'x').exists() else ''}")
    expect(not list(WORK.glob("*/*.partial")), "half-written files are left")


def main():
    (WORK / "deck.yaml").write_text(DECK)
    (WORK / "deck.yaml.json").write_text("{}")
    (WORK / "tokens.bin").write_bytes(bytes(value for i in range(4000) for value in (i * 7 % 256, 0)))
    (WORK / "faulty").write_text(FAULTY)
    (WORK / "faulty").chmod(0o755)
    check_kills()
    check_rows()
    check_search()
    check_time()
    check_report()
    check_refusals()
    sys.exit(bool(failures))


main()
