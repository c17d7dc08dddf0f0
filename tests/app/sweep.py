#!/usr/bin/env python3
"""sweep.py FORGE: jobscripts/sweep.py on this machine. Eight layouts, each with an end of its own, in a sweep that is killed in three ways and goes on:
one row each, with the class, the line and the figures of the run; nothing is left running; layouts of a search, its decks and a table;
the report; what is refused. Nothing is decided by time: what has to fall into a layout's minutes is tried with more of them."""
import csv
import json
import os
import re
import resource
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
    output.directory=*/silent*/run) export FORGE_FAULT=stop:0:3 ;;
    output.directory=*/broken/*) echo "none of the rank's" > {WORK}/broken/0001/starts; kill -9 $PPID ;;
    output.directory=*/0004/run) export FORGE_FAULT=hang:1:3; set -- "$@" --set machine.deadline_seconds=10 ;;
    output.directory=*/0005/run) export FORGE_FAULT=kill:1:3 ;;
    output.directory=*/0006/run) export FORGE_FAULT=hang:1:3; set -- "$@" --set machine.deadline_seconds=10; echo "rank 1: cudaMalloc: out of memory" ;;
    output.directory=*/0007/run) export FORGE_FAULT=throw:0:3:6 ;;
    output.directory=*/000[12]/run) [ -e {WORK}/undisturbed${{word: -5:1}} ] || export FORGE_FAULT=slow:0:6:15 ;;
  esac
done
exec {FORGE} "$@"
"""
TABLE = """mesh.tp,mesh.pp,mesh.dp_shard,model.layers,model.width,train.seed
1,,,,,
2,,,,,
3,,,,,
,2,,,,
,,2,,,
2,,,,,2
1,,,,,2
,,,64,16384,
2,,,,,2
"""
CLASSES = {1: "ok", 2: "ok", 3: "invalid", 4: "hang", 5: "failed", 6: "out of memory", 7: "failed", 8: "out of memory"}
LINES = {2: "8/8 ", 3: "mesh.tp = 3 does not divide model.heads = 4", 4: "a deadline was missed", 5: "ended by signal 9 (SIGKILL) behind step ", 6: "rank 1: cudaMalloc: out of memory",
         7: "fails on purpose", 8: "the deck doesn't fit"}


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, code=0, has="", **options):
    done = subprocess.run([*SWEEP, *map(str, arguments)], cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    expect(done.returncode == code and has in done.stdout, f"{arguments}: code {done.returncode}, not {code} and '{has}': {done.stdout}")
    return done.stdout


def refused(*arguments, has, **options):
    """One error, which says what is legal."""
    said = run(*arguments, code=2, has=has, **options)
    expect(said.startswith("sweep.py: error: ") and said.count("\n") == 1 and "legal: " in said, f"{arguments}: no single error: {said}")


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


def until(holds, what):
    end = time.monotonic() + 300
    while not holds():
        if time.monotonic() > end:
            expect(False, f"this did not come true in 300 s: {what}")
            return
        time.sleep(0.02)


def nothing_left(name):
    until(lambda: not processes(f"{WORK}/{name}"), f"no process of {name} is left")


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
    arguments = ["run", "swept", "deck.yaml", "--layouts", "table.csv", "--forge", WORK / "faulty", "--threads", "--minutes", 30]
    place = WORK / "swept"
    for number, way in ((1, "kill"), (2, "term"), (2, "supervisor")):
        began = time.time()
        driver = subprocess.Popen([*SWEEP, *map(str, arguments)], cwd=WORK, stdout=subprocess.DEVNULL, start_new_session=True)
        until(lambda: 3 <= len([step for step in steps_of(place / f"{number:04d}") if step["time"] > began]) < 8, f"layout {number} runs")
        if way == "supervisor":
            for process in processes(f"one\0{place}\0{number}"):
                os.kill(process, signal.SIGKILL)
            until(lambda: (place / "0004").exists(), "the sweep goes on with the next layout")
        driver.send_signal(signal.SIGTERM if way == "term" else signal.SIGKILL)
        code = driver.wait()
        expect(code == (75 if way == "term" else -signal.SIGKILL), f"{way}: code {code}")
        nothing_left("swept")
        (WORK / "undisturbed1").touch()
        arguments = ["run", "swept"]
    (WORK / "undisturbed2").touch()
    expect((place / "0002/starts").read_text() == "1", "a start counts that was killed, not those that were asked to leave")
    expect((place / "0001/result.json").exists() and not (place / "0002/result.json").exists(), "layout 1 is done, layout 2 isn't")
    written = (place / "0001/result.json").stat().st_mtime_ns
    output = run("run", "swept", "--at-once", 3, has="2 ok, 1 invalid, 1 hang, 2 failed, 2 out of memory")
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


def with_minutes(name, *arguments, ends):
    """The row of a sweep of one layout, whose minutes are more in each sweep until ends(row)."""
    for number, minutes in enumerate((0.15, 0.6, 2.4, 9.6)):
        run("run", f"{name}{number}", "deck.yaml", "--minutes", minutes, *arguments)
        nothing_left(f"{name}{number}")
        row = rows_of(f"{name}{number}")[1]
        if ends(row):
            break
    return row


def check_time():
    """A layout that is alive when its time is over is measured; one whose steps had stopped hangs."""
    row = with_minutes("timed", "--grid", "train.seed=1", "--steps", 10**9, "--forge", FORGE, "--ranks", 2, "--set", "mesh.tp=2", ends=lambda row: row["class"] == "ok")
    said = re.fullmatch(r"its [\d.]+ s were over in step (\d+)", row["line"])
    expect(row["class"] == "ok" and said and 1 < int(said[1]) <= int(row["steps"]) and float(row["step_seconds"]) > 0, f"timed: {row}")
    row = with_minutes("silent", "--grid", "mesh.tp=2", "--threads", "--forge", WORK / "faulty", ends=lambda row: "silent" in row["line"])
    expect(row["class"] == "hang" and re.match(r"its [\d.]+ s were over in step 2, and it was silent for \d+ s; its last line: ", row["line"]), f"silent: {row}")


def check_starts():
    """One that has been started five times without a result has failed. Of one whose starts can't be counted the sweep says so, and ends."""
    (WORK / "timed0/0001/result.json").unlink()
    (WORK / "timed0/0001/starts").write_text("5")
    run("run", "timed0", has="failed: started 5 times, and never came to an end; its last line: ")
    said = run("run", "broken", "deck.yaml", "--grid", "mesh.tp=1", "--forge", WORK / "faulty", code=2, has="layout 1 can't be run; legal: sweep.py run ")
    expect("0001/starts is \"none of the rank's" in said and "Traceback" not in said, f"starts: {said}")
    refused("run", "timed0", has="FORGE_MOST_FAILURES = many; legal: a whole number above 0", env=dict(os.environ, FORGE_MOST_FAILURES="many"))


def check_silence():
    """Steps have stopped where ten of them, and twice the longest pause, would be over."""
    sys.path.insert(0, str(ROOT / "jobscripts"))
    from sweep_one import Silence, classify
    file, now = WORK / "lines", [0.0]
    for step_seconds, at, end, hangs in ((0.5, (20, 21, 22), 25.9, False), (0.5, (20, 21, 22), 27.1, True), (0.5, (20, 26), 37, False), (0.5, (20, 26), 39, True),
                                         (0.001, (2, 3), 4, False), (0.001, (2, 2.01), 3.5, True), (4, (50, 54), 90, False), (4, (50, 54), 95, True)):
        now[0] = 0.0
        file.unlink(missing_ok=True)
        silence = Silence(file, lambda: now[0])
        for number, now[0] in enumerate(at, 1):
            file.write_text("x" * number)
            silence.look()
        now[0] = end
        words = silence.words(600, [{"step": 3, "step_seconds": step_seconds}] * len(at))
        expect(words == "its 600 s were over in step 3" + (f", and it was silent for {end - at[-1]:.0f} s" if hangs else ""), f"silence at {end} behind {at}: {words}")
    steps = [{"step": 1}, {"step": 2}]
    lines = ["cudaMalloc: out of memory", "forge: error: a deadline was missed"]
    for code, over, expected in ((86, "", "out of memory"), (75, "over, and it was silent for 9 s", "out of memory"), (0, "over", "ok"), (2, "over", "ok")):
        expect(classify(code, lines, steps, over)[0] == expected, f"{code}, {over}: {classify(code, lines, steps, over)}")
    said = classify(1, ["1/4  5.5", "error with words", "", "-" * 74], steps)[1]
    expect(said == "error with words", f"the line of a failed layout whose launcher ends with a frame: {said}")
    expect(classify(2, ["forge: error: the deck doesn't fit: 9 GiB"], [], "its 9 s were over")[0] == "out of memory", "refused for memory behind its minutes")


def check_full():
    """Errors of a full disk name the file."""
    from sweep_files import write_text
    from track import State
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    state = State.__new__(State)
    state.path, state.text = WORK / "track.json", {"step": 1}
    for path, write in ((WORK / "sweep.csv", lambda: write_text(WORK / "sweep.csv", "text")), (state.path, state.write)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            write()
            said = "nothing"
        except OSError as error:
            said = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        expect(str(path) in said, f"a write on a full disk: {said}")
    signal.signal(signal.SIGXFSZ, ignored)


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
    run("report", "swept", "of_decks", "swept", "swept/../swept", has="16 layouts: 10 ok, ")
    text = run("report", "silent0", "--output", "pictures", has="silent0/0001 (deck, ")
    expect([path.name for path in sorted((WORK / "pictures").iterdir())] == ["best.svg", "report.txt"] and text.startswith("1 layout: 1 "), f"a report of a sweep without a good layout: {text}")


def check_refusals():
    one = ("run", "x", "deck.yaml", "--forge", FORGE, "--grid", "mesh.tp=1")
    for words, has in (
            (("run", "x", "deck.yaml", "--grid", "mesh.tp"), "legal: --grid KEY=VALUE"), (("run", "x", "--grid", "mesh.tp=1"), "a deck is missing"),
            (("run", "x"), "x is no sweep"), (("run", "swept", "deck.yaml", "--grid", "mesh.tp=1"), "is a sweep already"),
            (("run", "x", "none.yaml", "--grid", "mesh.tp=1"), "there is no deck none.yaml"), ((*one[:3], "found/../deck.yaml", *one[3:]), "have one name"),
            (("run", "deck.yaml", "deck.yaml", *one[3:]), "deck.yaml is no directory"), (("run", "deck.yaml/x", "deck.yaml", *one[3:]), "deck.yaml is no directory"),
            ((*one[:3], "--forge", "deck.yaml", *one[5:]), "--forge deck.yaml is no program"), ((*one[:3], "--forge", "/bin/true", *one[5:]), "/bin/true show doesn't describe deck.yaml"),
            ((*one, "--slurm"), "--slurm needs --ranks-per-node"), ((*one, "--", "--nodes=1"), "-- --nodes=1 without --slurm"), ((*one, "--no-wait"), "--no-wait without --slurm"),
            (("table", "swept", "--", "x"), "table takes no words behind --"), (("run", "swept", "--steps", 3), "--steps: "), (("table", "found"), "found is no sweep"),
            (("cancel", "swept"), "swept has no jobs of Slurm"), (("report", "swept", "--output", "deck.yaml"), "deck.yaml is no directory"), (("one", "swept", 9), "no layout 9"),
            (("run", "x", "bare.yaml", *one[3:], "--saves"), "--saves: bare.yaml has no checkpoint.directory"), ((*one, "--set", "train.seed"), "--set train.seed; legal: "), ((*one, "--set", "train.seed=1\t"), "printable")):
        refused(*words, has=has)
    for option, bad in (("--minutes", ("nan", "inf", "-inf", "0", "-1", "1e300", "x")), *[(name, ("0", "-3", "1.5", "nan", "9" * 30)) for name in ("--steps", "--ranks", "--at-once", "--ranks-per-node")]):
        for value in bad:
            refused(*one, f"{option}={value}", has=f"argument {option}: {value}; legal: ")
    for key in ("output.directory", "output.save_hf", "checkpoint.directory", "checkpoint.every_steps", "checkpoint.resume", "machine.deadline_seconds"):
        refused(*one, "--grid", f"{key}=1,2", has=f"--grid: {key}: ")
        (WORK / "own.csv").write_text(f"{key}\n1\n")
        refused(*one[:5], "--layouts", "own.csv", has=f"--layouts own.csv: {key}: ")
    refused(*one, "--set", "output.directory=y", has="--set: output.directory: each layout has its own")
    refused(*one, "--grid", "checkpoint.resume=auto", "--saves", has="--grid: checkpoint.resume: the sweep sets it itself; legal")
    refused(*one, "--grid", "train.steps=3,4", "--steps", 9, has="--grid: train.steps: --steps sets it")
    refused(*one, "--set", "mesh.tp=2", has="--set mesh.tp: --grid has it already")
    refused(*one, "--layouts", "two.csv", has="--grid mesh.tp: --layouts two.csv has it already")
    refused(*one, "--machine", "nowhere", has="nowhere")
    expect(not (WORK / "x").exists(), f"a sweep that is refused leaves {list((WORK / 'x').glob('*')) if (WORK / 'x').exists() else ''}")
    expect(not list(WORK.glob("*/*.partial")), "half-written files are left")


def check_files():
    """Layouts and a sweep's own files that nobody could have meant."""
    search = json.loads((WORK / "s.json").read_text())
    best = search["searches"][0]["best"][0]
    of_search = lambda **more: json.dumps({"searches": [{"ranks": 1, "best": [{**best, **more}]}]}).encode()
    for name, content, has in (
            ("j.json", bytes(range(256)), "no JSON: "), ("j.json", b"", "no JSON: "), ("j.json", b"[" * 99999, "no JSON: "), ("j.json", b"[]", "no search"), ("j.json", b"{}", "no search"),
            ("j.json", b'{"searches": [1]}', "the search: 'searches' is [1]"), ("j.json", b'{"searches": [{"ranks": 2}]}', "search 1 has no 'best'"),
            ("j.json", b'{"searches": [{"ranks": -2, "best": []}]}', "search 1: 'ranks' is -2"), ("j.json", b'{"searches": []}', "has no layout"),
            ("j.json", of_search(layout=[]), "search 1, layout 1: 'layout' is []"), ("j.json", of_search(step_seconds="abc"), "layout 1: 'step_seconds' is \"abc\""),
            ("j.json", of_search(mfu=float("nan")), "layout 1: 'mfu' is NaN"), ("j.json", of_search(layout={"mesh.tp": "\0"}), "layout 1: 'layout' is "),
            ("t.csv", bytes(range(256)), "no CSV: "), ("t.csv", b"", "no head"), ("t.csv", b"mesh.tp\n", "has no layout"), ("t.csv", b'mesh.tp\n"1', "no CSV: "),
            ("t.csv", b"a,mesh.tp\n1,2\n", "t.csv:1: column 'a' is no key"), ("t.csv", b"mesh.tp,mesh.tp\n1,2\n", "t.csv:1: column mesh.tp stands twice"),
            ("t.csv", b"mesh.tp,mesh.pp\n1,1\n2,1,3,4\n", "t.csv:3: 4 cells, the head has 2"), ("t.csv", b"mesh.tp,mesh.pp\n1\n", "t.csv:2: 1 cell, the head has 2"),
            ("t.csv", b"mesh.tp,step_seconds\n1,abc\n", "t.csv:2: step_seconds is 'abc'"), ("t.csv", b"mesh.tp,peak_bytes\n1,inf\n", "t.csv:2: peak_bytes is 'inf'"),
            ("t.csv", b"mesh.tp\n\0\n", "mesh.tp = '\\x00'; legal: printable")):
        (WORK / name).write_bytes(content)
        refused("run", "x", "deck.yaml", "--layouts", name, "--forge", FORGE, has=f"{name}")
        refused("run", "x", "deck.yaml", "--layouts", name, "--forge", FORGE, has=has)
    (WORK / "decks").mkdir()
    (WORK / "decks/1.yaml").write_bytes(b"# A layout of x for 2 ranks of y\n# predicted: 1.1.1 s a step on z, 2 tokens/s a GPU, mfu 3 %, 4 GiB of 5\n\xff")
    refused("run", "x", "--layouts", "decks", "--forge", FORGE, has="decks/1.yaml: ")
    expect(not (WORK / "x").exists(), "a sweep of bad layouts is left")
    made = json.loads((WORK / "of_json/sweep.json").read_text())
    for content, has in (("[]", "the sweep is no object"), ('{"layouts": []}', "the sweep: 'layouts' is []"), ("{", "no JSON"), (json.dumps({**made, "seconds": None}), "the sweep: 'seconds' is null"),
                         (json.dumps({**made, "layouts": [{**made["layouts"][0], "settings": {"a": 1}}]}), "layout 1: 'settings' is ")):
        (WORK / "of_json/sweep.json").write_text(content)
        for verb in ("run", "table", "report", "cancel"):
            refused(verb, "of_json", has=f"of_json/sweep.json: {has}")
    (WORK / "of_json/sweep.json").write_text(json.dumps(made))
    for content in (b"\xff", b'{"class": "o\n', b"[]", b'{"class": "fine", "code": 0, "line": ""}', b'{"class": "ok", "code": "0", "line": ""}', b'{"class": "ok"}'):
        (WORK / "of_json/0002/result.json").write_bytes(content)
        for verb in ("run", "table", "report"):
            refused(verb, "of_json", has="of_json/0002/result.json: ")
    with (WORK / "of_json/0001/run/metrics.jsonl").open("ab") as file:
        file.write(b'\xff\n[1]\n{"step": 9, "loss": 1}\n{"step": "9", "loss": "x", "step_seconds": []}\n{"st')
    (WORK / "of_json/0001/run/job_info.json").write_text("[]")
    (WORK / "of_json/0002/result.json").unlink()
    run("run", "of_json", has="4 ok")
    expect([row["steps"] for row in rows_of("of_json").values()] == ["3"] * 4, "a result that was removed is made anew; lines that are no steps don't count")


def check_slurm():
    """Without Slurm, and with one that takes no job."""
    one = ("run", "x", "deck.yaml", "--forge", FORGE, "--grid", "mesh.tp=1", "--slurm", "--ranks-per-node", 1)
    (WORK / "bin").mkdir()
    nowhere, there = dict(os.environ, PATH=str(WORK / "nowhere")), dict(os.environ, PATH=f"{WORK}/bin:/usr/bin:/bin")
    refused(*one, has="squeue fails; legal: --slurm where Slurm is", env=nowhere)
    for name, text in (("squeue", "exit 1"), ("sbatch", "echo 'sbatch: error: no such partition' >&2; exit 1"), ("scancel", "echo 'scancel: error: down' >&2; exit 1")):
        (WORK / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (WORK / "bin" / name).chmod(0o755)
    refused(*one, has="squeue fails; legal: --slurm where Slurm is", env=there)
    expect(not (WORK / "x").exists(), "without Slurm a sweep is left")
    (WORK / "bin/squeue").write_text("#!/bin/sh\n")
    said = run(*one, code=2, has="sweep.py: error: sbatch: error: no such partition; legal: sweep.py run ", env=there)
    expect("Traceback" not in said, f"sbatch: {said}")
    for environment in (nowhere, there):
        refused("cancel", "x", has="scancel fails; legal: ", env=environment)


def main():
    (WORK / "deck.yaml").write_text(DECK)
    (WORK / "bare.yaml").write_text(re.sub("checkpoint: .*", "", DECK))
    (WORK / "tokens.bin").write_bytes(bytes(value for i in range(4000) for value in (i * 7 % 256, 0)))
    (WORK / "faulty").write_text(FAULTY)
    (WORK / "faulty").chmod(0o755)
    check_kills()
    check_rows()
    check_search()
    check_time()
    check_starts()
    check_silence()
    check_full()
    check_report()
    check_refusals()
    check_files()
    check_slurm()
    sys.exit(bool(failures))


main()
