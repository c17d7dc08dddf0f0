#!/usr/bin/env python3
"""report.py FORGE [STEPS]: what the page of `forge report` holds is what the runs' files say; torn and missing files; nothing of a run becomes HTML."""
import array
import fcntl
import html.parser
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile

FORGE = os.path.abspath(sys.argv[1])
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000  # of the long run
DECK = """model: {family: mixtral, layers: 2, width: 16, heads: 2, ffn: 32, vocabulary: 256, experts: 4, experts_per_token: 2}
train: {steps: 12, global_batch_sequences: 2, microbatch_sequences: 2, sequence_tokens: 32, validate_every_steps: 4}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [tokens.bin], dtype: uint16, validation_files: [tokens.bin]}
output: {directory: run, norms_every_steps: 3, sample_prompt: "</script><b onload=x>", sample_tokens: 8}
checkpoint: {directory: saved, every_steps: 8}
machine: {threads: 1, peak_tflops: 1}
"""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Behind the page's own script: every choice of its controls and maps in turn, and a zoom; then what was drawn wrong.
EXERCISE = """
const wrong = [], drawn = [];
addEventListener("error", (event) => wrong.push(event.message));
const look = () => {
  drawn.push([...document.querySelectorAll("svg path")].length);
  if (document.querySelector("main").innerHTML.includes("NaN")) wrong.push("NaN");
};
for (const choice of document.querySelectorAll("select"))
  for (const option of choice.options) { choice.value = option.value; choice.dispatchEvent(new Event("change")); look(); }
for (const box of document.querySelectorAll("input")) { box.click(); look(); }
for (const box of document.querySelectorAll("input")) { box.click(); look(); }
const first = document.querySelector("svg"), at = first.getBoundingClientRect().left;
const point = (kind, x) => first.dispatchEvent(new PointerEvent(kind, { clientX: at + x, clientY: 9 }));
point("pointermove", 200); point("pointerdown", 150); point("pointerup", 300); look();
document.body.append(node("p", { id: "seen" }, `${wrong.length} wrong: ${wrong}; ${Math.min(...drawn)} lines at least; ${tip.textContent}`));
"""
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what)


def forge(*arguments, code=0):
    done = subprocess.run([FORGE, *map(str, arguments)], capture_output=True, text=True)
    expect(done.returncode == code, f"forge {' '.join(map(str, arguments))}: code {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    return done.stdout + done.stderr


class Page(html.parser.HTMLParser):
    """Tags of a page, and the texts of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.attributes = [], [], []
        self.feed(text)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def page_of(*runs):
    forge("report", *runs, "--output", "report.html")
    page = Page(pathlib.Path("report.html").read_text())
    plain = ["html", "head", "meta", "meta", "meta", "title", "style", "body", "main", "noscript", "script", "script"]
    expect(page.tags == plain, f"tags of the page: {page.tags}")
    expect(not {"src", "href", "onload"} & set(page.attributes), f"attributes of the page: {page.attributes}")
    return page


def lines_of(run):
    return [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]


def check_values(told, lines):
    """Each number of metrics.jsonl stands in the page, exactly."""
    steps = [line for line in lines if "loss" in line]
    validations = [line for line in lines if "validation_loss" in line]
    for key in ("loss", "total_loss", "grad_norm", "learning_rate", "step_seconds", "tokens_per_second", "mfu", "peak_bytes"):
        series = told["series"][key]
        expect(series["steps"] == [line["step"] for line in steps], f"{key}: steps {series['steps']}")
        expect(series["values"] == [line[key] for line in steps], f"{key}: {series['values']}")
    for key in ("validation_loss", "validation_perplexity", "validation_labels"):
        expect(told["series"][key]["values"] == [line[key] for line in validations], key)
    expect(told["series"]["validation_loss"]["steps"] == [line["step"] for line in validations], "steps of validations")
    expect(told["tokens"]["values"] == [line["tokens"] for line in steps], "tokens")
    expect(told["seconds"]["values"] == [line["elapsed_seconds"] for line in steps], "seconds")
    layers = [layer["layer"] for layer in steps[0]["experts"]]
    expect(told["experts"]["rows"] == layers, f"layers {told['experts']['rows']}")
    for key in ("load_max", "load_min", "entropy"):
        for place, row in enumerate(told["experts"][key]):
            expect(all(abs(a - line["experts"][place][key]) < 1e-4 for a, line in zip(row, steps, strict=True)), f"{key} of layer {layers[place]}")
    normed = [line for line in steps if "norms" in line]
    for unit, weights, update in zip(*(told["norms"][key] for key in ("rows", "weights", "update")), strict=True):
        expect(all(abs(a / line["norms"][unit]["weights"] - 1) < 1e-3 for a, line in zip(weights, normed, strict=True)), f"norms of {unit}")
        expect(all(abs(a / line["norms"][unit]["update"] - 1) < 1e-3 for a, line in zip(update, normed, strict=True)), f"updates of {unit}")


def check_run():
    """A run and its restart."""
    random.seed(5)
    array.array("H", random.choices(range(256), k=4000)).tofile(open("tokens.bin", "wb"))
    pathlib.Path("deck.yaml").write_text(DECK)
    forge("deck.yaml")
    shutil.copytree("run", "first")
    forge("deck.yaml", "--restart", "--set", "train.steps=16")
    told = page_of("run").data["runs"][0]
    check_values(told, lines_of("run"))
    expect((told["first_step"], told["last_step"], told["steps"], told["notes"]) == (1, 16, 16, []), f"steps, notes {told['notes']}")
    kinds = {kind: [e["step"] for e in told["events"] if e["kind"] == kind] for kind in told["event_counts"]}
    jobs = [e["text"] for e in told["events"] if e["kind"] == "job"]
    expect(kinds["job"] == [0, 12] and "restarted from" not in jobs[0] and "restarted from" in jobs[1], f"jobs {kinds}, {jobs}")
    expect(kinds["save"] == [8, 12, 16] and kinds["start"] == [1] and kinds["restart"] == [13], f"events {kinds}")
    expect(told["event_counts"] == {kind: len(steps) for kind, steps in kinds.items()}, f"counts {told['event_counts']}")
    log = pathlib.Path("run/log.txt").read_text()
    table = re.findall(r"(?m)^  (\S.*?) +([\d.]+) s", log.split("time of rank 0:\n")[-1].split("memory of rank")[0])
    expect([[p["name"], p["seconds"]] for p in told["phases"]] == [[n, float(s)] for n, s in table if n != "total"], f"phases {told['phases']}")
    expect(told["memory"] in log and "high-water mark" in told["memory"], f"memory {told['memory']}")
    expect(len(told["samples"]) == 2 and all(s.startswith("</script><b onload=x>") for s in told["samples"]), f"samples {told['samples']}")
    expect(all(sample + "\n" in log and "forge" not in sample for sample in told["samples"]), "samples of the log")
    expect(told["job"] == json.loads(pathlib.Path("run/job_info.json").read_text()), "job_info.json")
    expect(told["deck"] == pathlib.Path("run/deck.yaml").read_text(), "deck.yaml")
    both = page_of("first", "run").data
    expect([run["name"] for run in both["runs"]] == ["first", "run"], "names")
    expect([(d["key"], *d["values"]) for d in both["differences"]] == [("optimizer.decay_steps", "12", "16"), ("train.steps", "12", "16")], f"differences {both['differences']}")
    check_values(both["runs"][0], lines_of("first"))
    alone = page_of("run/metrics.jsonl").data["runs"][0]
    expect(alone["series"] == told["series"] and alone["job"] is None, "a metrics.jsonl alone")


def check_browser():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        return print("LEFT OUT: no browser here draws the page")
    page_of("first", "run")

    def drawn_by(page):
        return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{os.getcwd()}/{page}"],
                              capture_output=True, text=True, timeout=120).stdout

    page = pathlib.Path("report.html").read_text()
    begin, end = page.rsplit("</script>", 1)
    pathlib.Path("exercised.html").write_text(begin + EXERCISE + "</script>" + end)
    seen = re.search(r'<p id="seen">(.*?)</p>', drawn_by("exercised.html"), re.S)
    expect(seen and re.match(r"0 wrong: ; \d+ lines at least; .*loss, step \d+: ", seen[1]), f"the controls: {seen and seen[1]}")
    drawn = drawn_by("report.html")
    expect(drawn.count("<svg") >= 7 and drawn.count("<canvas") == 4, f"{drawn.count('<svg')} charts, {drawn.count('<canvas')} maps")
    expect("Differences of the decks" in drawn and "&lt;/script&gt;&lt;b onload=x&gt;" in drawn and "<b " not in drawn, "texts of the page")


def check_torn():
    """Lines that are torn, none or of other types; validation sets; files that are missing."""
    run = pathlib.Path("torn")
    run.mkdir()
    steps = [{"step": s, "loss": 2.5 + s / 8, "step_seconds": 0.5, "tokens": 64 * s, "updated": s != 3} for s in range(1, 6)]
    steps[3]["loss"] = None
    steps[1]["computation"] = {"median": 0.1, "slow": 1, "slow_ranks": [{"rank": 7, "node": "n3", "of_median": 1.5}]}
    sets = [{"step": 0, "set": "<i>books</i>", "validation_loss": 3.5}, {"step": 2, "set": "web", "validation_loss": 3.25}]
    text = "\n".join(map(json.dumps, [sets[0], *steps[:2], sets[1], *steps[2:4]]))
    (run / "metrics.jsonl").write_text(text + '\n{"step": 4, "lo\n\n[1]\n' + json.dumps(steps[1]) + "\n" + json.dumps(steps[4]) + '\n{"step": 6, "loss": 1')
    (run / "log.txt").write_text("sample (temperature 0.70):\nforge is\nforge 1, cpu\n  started   then on n1\n       5/9    1.0 \nstopped: left: SIGTERM\n            saved step_00000006 in 1 s\nstopped: saved step_00000006 and left\n")
    told = page_of("torn").data["runs"][0]
    expect(told["series"]["loss"] == {"width": 1, "count": 4, "steps": [1, 2, 3, 5], "values": [2.625, 2.75, 2.875, 3.125]}, f"{told['series']['loss']}")
    expect(told["series"]["validation_loss/<i>books</i>"]["values"] == [3.5] and told["series"]["validation_loss/web"]["steps"] == [2], "sets")
    expect(told["seconds"]["values"] == [0.5, 1, 1.5, 2, 2.5], f"seconds {told['seconds']}")
    events = [(e["step"], e["kind"], e["text"]) for e in told["events"]]
    expect((2, "slow ranks", "rank 7 on n3 (1.50 times the median)") in events and (5, "stop", "left: SIGTERM") in events, f"{events}")
    expect(events[-2:] == [(6, "save", "saved step_00000006 in 1 s"), (6, "stop", "saved step_00000006 and left")], f"the end stands behind its save: {events}")
    expect([e[0] for e in events if e[1] == "skipped"] == [3] and told["samples"] == ["forge is"], f"{events}, {told['samples']}")
    notes = " ".join(told["notes"])
    for part in ("last line of metrics.jsonl has no end", "3 lines are not JSON as forge writes it", "the first is line 7", "1 line is no line of a step behind",
                 "job_info.json is missing", "deck.yaml is missing"):
        expect(part in notes, f"'{part}' in: {notes}")
    (run / "job_info.json").write_text('{"machine": "n1", "ran')
    told = page_of("torn").data["runs"][0]
    expect(told["series"]["loss"]["count"] == 4 and "job_info.json" in told["notes"][-2] and "layout and planned memory are unknown" in told["notes"][-2],
           f"a job_info.json that is cut: {told['notes']}")
    (run / "job_info.json").unlink()
    os.mkfifo(run / "job_info.json")
    notes = page_of("torn").data["runs"][0]["notes"]
    expect(any("job_info.json is no file" in note for note in notes), f"a job_info.json that is a pipe: {notes}")
    (run / "job_info.json").unlink()
    (run / "log.txt").write_text("       5/9    1.0 \n            saved step_0")
    (run / "deck.yaml").write_text("train:\n  steps: 9\nmesh:\n  p")
    (run / "metrics.jsonl").write_text("")
    notes = " ".join(page_of("torn").data["runs"][0]["notes"])
    for part in ("log.txt ends in the middle of a line", "deck.yaml ends in the middle of a line", "metrics.jsonl has no step"):
        expect(part in notes, f"'{part}' in: {notes}")


def check_writer():
    """Who holds the run's lock writes; a lock that nobody holds was left."""
    lock = pathlib.Path("torn/.lock")
    lock.write_text("n1, process 7, since 2026-11-29\n0123456789abcdef\n")
    expect("has left its lock" in forge("report", "torn", "--output", "report.html"), "a lock that was left")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = forge("report", "torn", "--output", "report.html")
    expect("The run still writes: n1, process 7" in said and "was killed, or runs" not in said, f"a run that writes: {said}")


def check_stopped():
    """A run that stops on NaN or on a full disk says so in its log, gives its lock back, and wasn't killed."""
    options = ("--set", "optimizer.learning_rate=1e30", "--set", "train.max_not_finite_steps=2", "--set", "checkpoint.directory=", "--set", "checkpoint.every_steps=0",
               "--set", "train.validate_every_steps=0")
    for directory, code, reason, more in (("nan", 4, "train.max_not_finite_steps", options), ("full", 5, "writing full/metrics.jsonl failed: ", ())):
        command = [FORGE, "deck.yaml", "--set", f"output.directory={directory}", "--set", "train.steps=4000", "--set", "checkpoint.directory=", "--set", "checkpoint.every_steps=0", *more]
        limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))) if directory == "full" else None
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
        expect(done.returncode == code and reason in done.stderr, f"{directory}: code {done.returncode}: {done.stderr[-400:]}")
        last = pathlib.Path(directory, "log.txt").read_text().splitlines()[-1]
        expect(last.startswith("stopped: ") and reason in last and last.endswith(f" (exit code {code})"), f"{directory}: the log ends with {last}")
        expect(not pathlib.Path(directory, ".lock").exists(), f"{directory}: its lock is there")
        told = page_of(directory).data["runs"][0]
        expect([e["text"] for e in told["events"] if e["kind"] == "stop"] == [last.removeprefix("stopped: ")], f"{directory}: events {told['events']}")
        expect(not any("has left its lock" in note for note in told["notes"]), f"{directory}: notes {told['notes']}")
    # Steps without a line in the log count, too.
    command = [FORGE, "deck.yaml", "--set", "output.directory=thrown", "--set", "output.every_steps=50", "--set", "checkpoint.directory=", "--set", "checkpoint.every_steps=0"]
    subprocess.run(command, capture_output=True, env={**os.environ, "FORGE_FAULT": "throw:0:9"})
    told = page_of("thrown").data["runs"][0]
    expect([(e["step"], e["kind"]) for e in told["events"]][-1] == (8, "stop"), f"a stop behind the last line: {told['events']}")


def check_long():
    """A million steps: bounded page and memory, exact extremes, means of all."""
    run, steps = pathlib.Path("long"), STEPS
    high_at, low_at = steps * 3 // 5 + 1, steps * 7 // 9
    run.mkdir()
    with (run / "metrics.jsonl").open("w") as file:
        for s in range(1, steps + 1):
            loss = {high_at: 99.125, low_at: -1.0625}.get(s, 2 + s % 7 / 64)
            file.write(f'{{"step": {s}, "tokens": {64 * s}, "loss": {loss}, "step_seconds": 0.5}}\n')
    started = subprocess.Popen([FORGE, "report", "long", "--output", "report.html"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(started.pid, 0)
    expect(status == 0, f"a long run: status {status}")
    expect(usage.ru_maxrss < 100_000 or steps < 1_000_000, f"{usage.ru_maxrss} KiB for {(run / 'metrics.jsonl').stat().st_size} bytes of metrics")
    told = Page(pathlib.Path("report.html").read_text()).data["runs"][0]
    loss, size = told["series"]["loss"], os.path.getsize("report.html")
    high, low = max(zip(loss["high"], loss["high_steps"])), min(zip(loss["low"], loss["low_steps"]))
    expect(high == (99.125, high_at) and low == (-1.0625, low_at), f"extremes {high}, {low}")
    expect(loss["count"] == steps and loss["steps"][-1] == steps and 500 <= len(loss["steps"]) <= 1000, f"{len(loss['steps'])} points")
    expect(abs(sum(loss["values"]) / len(loss["values"]) - (2 + 3 / 64)) < 1e-3, "means")
    expect(told["tokens"]["values"][-1] == 64 * steps and told["seconds"]["values"][-1] == steps / 2, "tokens and seconds")
    expect(size < 400_000, f"a page of {size} bytes")
    shutil.rmtree(run)


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        check_run()
        check_browser()
        check_torn()
        check_writer()
        check_stopped()
        check_long()
        os.chdir("/")
    print(f"{len(failures)} failures")
    sys.exit(bool(failures))


main()
