#!/usr/bin/env python3
"""grid.py FORGE: forge plan --grid: each cell is what --search finds; a start goes on where a killed one ended; sizes; the heat map."""
import csv
import json
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import xml.etree.ElementTree as xml

from program import FORGE, expect, finish, run

DECK = """model: {{layers: {layers}, width: 1024, heads: 8, kv_heads: 8, ffn: 4096, vocabulary: 32000{experts}}}
train: {{steps: 10, global_batch_sequences: {batch}, sequence_tokens: 2048}}
optimizer: {{learning_rate: 1e-3}}
data: {{files: [train.bin], dtype: uint16}}
output: {{directory: run}}
"""
PUBLISHED = {"1B": 1235814400, "3B": 3212749824, "8B": 8030261248, "70B": 70553706496, "405B": 405853388800}
BETWEEN = ("2B", "13B", "30B", "175B", "1T")


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def value_of(text):
    """A cell's as JSON has it."""
    if text in ("", "true", "false"):
        return {"": None, "true": True, "false": False}[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_cells(work, dense, mixture):
    """A table, JSON and decks of four cells, which are those of --search."""
    table, answer, decks, again = work / "grid.csv", work / "grid.json", work / "decks", work / "again.json"
    grid = ["plan", "--grid", "--machine", "h200_4", "--models", f"{dense},{mixture}"]
    code, output = run(*grid, "--nodes", "1,2", "--output", table, "--json", answer, "--write", decks, "--svg", work / "grid.svg")
    expect(code == 0, f"grid: {output.strip()[-300:]}")
    rows, told = rows_of(table), json.loads(answer.read_text())
    note = "no prediction for more than one GPU has been compared with a run of forge yet"
    expect(output.count(note) == 1 and told["note"] == note, f"the grid says that no run was compared: {output[-300:]}")
    expect([(r["model"], r["nodes"], r["ranks"]) for r in rows] == [(m, n, r) for m in ("dense", "mixture") for n, r in (("1", "4"), ("2", "8"))], f"cells: {rows}")
    # Of 12 sequences four ranks get three each; eight don't share them out, and get the next multiple.
    expect([r["global_batch_sequences"] for r in rows] == ["12", "16", "8", "8"] and rows[0]["step_tokens"] == str(12 * 2048), f"batches: {rows}")
    for row, cell in zip(rows, told["cells"]):
        where = f"{row['model']} on {row['ranks']}"
        deck = dense if row["model"] == "dense" else mixture
        run("plan", deck, "--machine", "h200_4", "--search", "--best", "1", "--ranks", row["ranks"], "--json", again,
            "--set", f"train.global_batch_sequences={row['global_batch_sequences']}")
        best = json.loads(again.read_text())["searches"][0]["best"][0]
        expect(row["result"] == "fits" and row["left"] == "0", f"{where}: {row}")
        for key in ("step_seconds", "low", "high", "tokens_per_second_per_rank", "mfu", "hfu", "peak_bytes", "usable_bytes", "binds"):
            expect(value_of(row[key]) == best[key] == cell[key], f"{where}: {key} = {row[key]}, {cell[key]} in JSON, --search says {best[key]}")
        layout = {key: str(value) for key, value in best["layout"].items()}
        expect({key: row[key] for key in layout} == layout, f"{where}: layout {layout}, not {row}")
        expect(0 < int(row["least_bytes"]) <= int(row["peak_bytes"]), f"{where}: needs at least {row['least_bytes']} B, takes {row['peak_bytes']}")
        code, said = run("plan", decks / f"{row['model']}_{row['ranks']}gpu.yaml", "--machine", "h200_4", "--json", again)
        expect(code == 0 and json.loads(again.read_text())["step_seconds"] == best["step_seconds"], f"the deck of {where}: {said[:200]}")
    expect([(n["model"], n["nodes"]) for n in told["needs"]] == [("dense", 1), ("mixture", 1)], f"needs: {told['needs']}")
    return rows, output


def check_map(path, rows):
    """The heat map is XML, with the figures of each cell and a darker colour for a higher MFU."""
    svg = xml.parse(path).getroot()
    name = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in svg.iter(f"{name}text")]
    cells = {}
    for rectangle in svg.iter(f"{name}rect"):
        title = rectangle.find(f"{name}title")
        if title is not None:
            cells[title.text.split(":")[0]] = sum(int(c) for c in re.findall(r"\d+", rectangle.get("fill"))[:3])
    expect(len(cells) == len(rows), f"cells of the map: {cells}")
    for row in rows:
        for figure in (f"{100 * float(row['mfu']):.1f} %", f"{float(row['tokens_per_second_per_rank']):.0f} tokens/s"):
            expect(figure in texts, f"the map lacks {figure}: {texts}")
    shades = [cells[f"{r['model']} on {r['ranks']}"] for r in sorted(rows, key=lambda r: float(r["mfu"]))]
    expect(shades == sorted(shades, reverse=True), f"colours by MFU: {shades}")


def check_resumed(work, dense, mixture, rows):
    """A killed start leaves whole rows; the next one keeps those that answer its question, and makes the others."""
    table = work / "killed.csv"
    grid = ["plan", "--grid", "--machine", "h200_4", "--models", f"{dense},{mixture}", "--nodes", "1,2", "--output", table]
    started = subprocess.Popen([FORGE, *map(str, grid)], stdout=subprocess.DEVNULL)
    while started.poll() is None and not table.exists():
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait()
    left = rows_of(table)
    expect(left == rows[:len(left)] and left, f"a killed start left {left}")
    code, output = run(*grid)
    expect(code == 0 and rows_of(table) == rows, f"the next start: {output[-300:]}")
    expect(f"{len(left)} of 4 cells were in {table}" in output, f"kept cells: {output[-600:]}")
    # Two rows are there, of which one is marked and the other answers another question: the first stays.
    marked, other = dict(rows[0], binds="marked"), dict(rows[1], question="0" * 16, binds="other")
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows([marked, other])
    code, output = run(*grid)
    expect(code == 0 and [r["binds"] for r in rows_of(table)] == ["marked"] + [r["binds"] for r in rows[1:]], f"marked rows: {output[-600:]}")
    expect("answer another question, and are left out: 1 of 2" in output, f"rows of another question: {output[:300]}")
    one, asked = work / "one.csv", ["plan", "--grid", "--models", dense, "--ranks", "1", "--output", work / "one.csv"]
    code, output = run(*asked, "--machine", "h100_8")
    first = one.read_text()
    for question in (["--machine", "a100_8"], ["--machine", "h100_8", "--set", "train.sequence_tokens=1024"], ["--machine", "h100_8", "--as", "nanotron"]):
        one.write_text(first)
        code, output = run(*asked, *question)
        expect(code == 0 and "answer another question, and are left out: 1 of 1" in output and one.read_text() != first, f"{question}: {output[:300]}")
    # Figures that aren't any are made again.
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows([dict(rows[0], mfu="nan"), dict(rows[1], result="fi,ts"), *rows[2:]])
    code, output = run(*grid)
    expect(code == 0 and rows_of(table) == rows and "left out: 2 of 4" in output, f"rows without figures: {output[:300]}")
    # Decks come from the rows.
    decks = work / "of_rows"
    decks.mkdir()
    (decks / "dense_4gpu.yaml").write_text("model: {layers: 1}\n")
    code, output = run(*grid, "--write", decks)
    expect(code == 0 and "4 of 4 cells were in" in output and rows_of(table) == rows, f"decks of rows: {output[-400:]}")
    for row in rows:
        code, output = run("plan", decks / f"{row['model']}_{row['ranks']}gpu.yaml", "--machine", "h200_4", "--json", work / "row.json")
        expect(code == 0 and value_of(row["step_seconds"]) == json.loads((work / "row.json").read_text())["step_seconds"], f"the deck of a row: {output[:300]}")
    # A cell that had too little time is marked, and searched again with more.
    cut = work / "cut.csv"
    asked = ["plan", "--grid", "--machine", "h200_4", "--models", mixture, "--nodes", "2", "--output", cut, "--svg", work / "cut.svg"]
    code, output = run(*asked, "--seconds", "0.001")
    expect(code == 0 and int(rows_of(cut)[0]["left"]) > 0 and "GiB*" in output and "1 cell had layouts left when time was up" in output, f"a cut cell: {output[-400:]}")
    expect("%*<" in (work / "cut.svg").read_text(), "a cut cell of the map is marked")
    code, output = run(*asked, "--seconds", "0.001")
    expect("1 of 1 cells were in" in output, f"a cut cell stays: {output[-400:]}")
    code, output = run(*asked)
    expect(code == 0 and "1 cell had left layouts out, and will be searched again" in output and rows_of(cut) == rows[3:], f"more time: {output[-400:]}")
    # Cells that are not asked for stay.
    before = rows_of(table)
    code, output = run(*grid[:-4], "--nodes", "2", "--output", table)
    expect(code == 0 and sorted(map(str, rows_of(table))) == sorted(map(str, before)) and "left out" not in output, f"rows that weren't asked for: {output[-400:]}")
    # A search that has too little time is marked; --seconds 0 isn't silently another number.
    code, output = run(*grid, "--seconds", "0")
    expect(code == 2 and "--seconds must be above 0" in output, f"--seconds 0: {output[:300]}")
    named = work / "with a space.yaml"
    named.write_text(pathlib.Path(dense).read_text())
    code, output = run("plan", "--grid", "--machine", "h200_4", "--models", named, "--nodes", "1", "--seconds", "5", "--write", work / "named")
    said = next(iter((work / "named").iterdir())).read_text()
    expect(code == 0 and f"--models '{named}' --ranks 4 --machine h200_4 --seconds 5" in said, f"the command of a deck: {output[:200]} {said[:400]}")
    for words, text in ((["--best", "5"], "--best is of --search"), (["--set", "mesh.tp=2"], "would ignore --set mesh.tp=2")):
        code, output = run(*grid, *words)
        expect(code == 2 and text in output, f"{words}: {output[:300]}")
    late = work / "late.csv"
    code, output = run("plan", "--grid", "--machine", "h100_8", "--models", f"{dense},verify/llama/input.yaml", "--nodes", "1", "--output", late)
    expect(code == 2 and "--models verify/llama/input.yaml: " in output and "no rates for products in fp64" in output and not late.exists(), f"a model without rates: {output[:300]}")
    text = table.read_text()
    table.write_text("mesh.tp,mesh.cp\n1,1\n")
    code, output = run(*grid)
    expect(code == 2 and "is no grid of this version of forge" in output and table.read_text() == "mesh.tp,mesh.cp\n1,1\n", f"another table: {output[:300]}")
    table.write_text(text[:-20] + "\n")
    code, output = run(*grid)
    expect(code == 2 and "killed.csv:5: has " in output and "legal: the table without that line" in output, f"a cut row: {output[:300]}")
    # An error of one of several decks names it.
    wrong = work / "wrong.yaml"
    wrong.write_text(pathlib.Path(dense).read_text().replace("width: 1024", "width: 1023"))
    code, output = run("plan", "--grid", "--machine", "h200_4", "--models", f"{mixture},{wrong}", "--nodes", "1")
    expect(code == 2 and str(wrong) in output, f"an error of one deck: {output[:300]}")


def check_sizes(work):
    """Sizes have published dimensions, or such between them; what one GPU can't hold is said without a search."""
    table = work / "sizes.csv"
    code, output = run("plan", "--grid", "--machine", "rtx4090_1", "--ranks", "1", "--models", ",".join([*PUBLISHED, *BETWEEN]), "--output", table)
    expect(code == 0, f"sizes: {output.strip()[-300:]}")
    for row in rows_of(table)[1:]:
        size, name = int(row["parameters"]), row["model"]
        asked = float(name[:-1]) * (1e12 if name[-1] == "T" else 1e9)
        expect(row["result"] == "no room" and row["layouts"] == "0" and row["mfu"] == "", f"{name} on one GPU: {row}")
        expect(size == PUBLISHED[name] if name in PUBLISHED else abs(size / asked - 1) < 0.02, f"{name} has {size} parameters")
    expect("8B: none of these" in output, f"needs of 8B: {output[-900:]}")


def check_need_and_fill(work):
    """How many GPUs a size needs, and which size needs two thirds of so many: one command each, and each answer holds."""
    answer, table = work / "need.json", work / "need.csv"
    small = ["--set", "train.sequence_tokens=1024", "--set", "train.global_batch_sequences=8"]
    code, output = run("plan", "--grid", "--machine", "a100_40_8", "--models", "30B", "--json", answer, "--output", table, *small)
    told = json.loads(answer.read_text())
    need, fill = told["needs"][0], told["fills"][0]
    expect(code == 0 and need["nodes"] == 2 and "30B: 2 nodes, 16 GPUs" in output, f"needs: {output[-600:]}")
    expect([cell["result"] for cell in told["cells"]] == ["no room", "fits"], f"cells on the way: {output[-600:]}")
    expect(fill["nodes"] == 1 and 5e9 < fill["smallest_dense_parameters"] < fill["largest_dense_parameters"] < 2e10, f"fills: {fill}")
    middle = f"{(fill['smallest_dense_parameters'] * fill['largest_dense_parameters']) ** 0.5 / 1e9:.3g}B"
    expect(re.search(r"1 node, 8 GPUs: dense models of [\d.]+B to [\d.]+B", output), f"fills: {output[-600:]}")
    code, output = run("plan", "--grid", "--machine", "a100_40_8", "--models", middle, "--nodes", "1", "--output", table, "--json", answer, *small)
    row, told = rows_of(table)[0], json.loads(answer.read_text())
    expect(0.6 < int(row["least_bytes"]) / int(row["usable_bytes"]) < 0.7 and told["fills"][0]["models"] == [middle], f"{middle}: {row}")


def check_long_steps(work, dense):
    """Steps of many microbatches, which the search estimates first: no layout is faster than what it finds."""
    batch, asked, told, answer = "train.global_batch_sequences=128", work / "all.csv", work / "told.csv", work / "long.json"
    names = ["mesh.pp", "mesh.tp", "mesh.dp_shard", "schedule.name", "train.microbatch_sequences", "train.zero_stage", "train.recompute", "train.overlap"]
    rows = [[pp, tp, 4 // pp // tp, schedule, b, zero, recompute, overlap] for pp in (1, 2, 4) for tp in (1, 2, 4) if pp * tp <= 4
            for schedule in (("1f1b", "zero_bubble", "zb_v") if pp > 1 else ("1f1b",)) for b in (1, 2, 4) for zero in ((0,) if pp * tp == 4 else (1, 3)) for recompute in ("none", "selective")
            for overlap in (("none", "pairs") if tp > 1 else ("none",))]
    with asked.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    code, output = run("plan", dense, "--machine", "h100_8", "--ranks", "4", "--candidates", asked, "--output", told, "--set", batch)
    steps = [float(row["step_seconds"]) for row in rows_of(told) if row["fits"] == "true"]
    expect(code == 0 and len(steps) > 50, f"candidates: {output[-300:]}")
    code, output = run("plan", dense, "--machine", "h100_8", "--ranks", "4", "--search", "--best", "1", "--json", answer, "--set", batch)
    found = json.loads(answer.read_text())["searches"][0]
    expect(found["left"] == 0 and found["best"][0]["step_seconds"] <= min(steps) * (1 + 1e-5), f"the search has {found['best'][0]['step_seconds']} s, all layouts {min(steps)}")


def check_docs(work):
    """The grids that docs/choosing.md shows have the figures of today's predictions, in a cell of each."""
    for machine in ("h100_8", "h200_4", "b200_8"):
        run("plan", "--grid", "--machine", machine, "--models", "8B", "--nodes", "1", "--output", work / f"{machine}.csv")
        row = rows_of(work / f"{machine}.csv")[0]
        for figure in (f"{100 * float(row['mfu']):.1f} %", f"{float(row['tokens_per_second_per_rank']):.0f} tokens/s"):
            expect(f">{figure}<" in pathlib.Path(f"docs/grid_{machine}.svg").read_text(), f"docs/grid_{machine}.svg, which the command of docs/choosing.md makes, lacks {figure}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        dense, mixture = work / "dense.yaml", work / "mixture.yaml"
        dense.write_text(DECK.format(layers=4, batch=12, experts=""))
        mixture.write_text(DECK.format(layers=2, batch=8, experts=", experts: 4, experts_per_token: 2"))
        rows, output = check_cells(work, dense, mixture)
        check_map(work / "grid.svg", rows)
        check_resumed(work, dense, mixture, rows)
        check_sizes(work)
        check_need_and_fill(work)
        check_long_steps(work, dense)
        check_docs(work)
    finish()


main()
