"""The layouts of a sweep, of a search of forge plan, a table or a grid of keys, and the directory that holds them. Serves sweep.py."""
import csv
import itertools
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from refusal import Refused

HERE = Path(__file__).resolve().parent
MOST = 1000  # layouts: Slurm's arrays take indices up to this by default
PREDICTED = ("step_seconds", "tokens_per_second", "mfu", "bytes")
NO_MEMORY = re.compile(r"the deck doesn't fit|out of memory|out_of_memory|oom.?kill|Cannot allocate memory|ALLOC_FAILED", re.I)
TELLS_NO_SPEED = re.compile(r"optimizer\.|train\.seed$|output\.|checkpoint\.")  # keys on which no prediction depends


def write_text(path, text):
    """A whole file or none."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: no JSON: {error}") from error


def telling(lines):
    """The line that says how a job ended: forge's error, else that of a launcher, else the last one."""
    for i, line in enumerate(lines):
        if re.match(r"forge: error", line):
            more = lines[i + 1:i + 2] if line.endswith("errors:") else []
            return " ".join([line, *more])
    for line in lines:
        if NO_MEMORY.search(line) or re.search(r"exited on signal|signal \d+|: (Killed|Aborted|Segmentation fault)|srun: error", line):
            return line
    return lines[-1] if lines else ""


def find_forge(named):
    """The program: --forge, or as the job scripts find it."""
    if named:
        if not (os.path.isfile(named) and os.access(named, os.X_OK)):
            raise Refused(f"--forge {named} is no program")
        return str(Path(named).resolve())
    command = 'root=$1; . "$root/jobscripts/job.sh"; find_forge cuda 2> /dev/null || find_forge cpu'
    done = subprocess.run(["bash", "-c", command, "sweep", str(HERE.parent)], capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip())
    return str(Path(done.stdout.strip()).resolve())


def text_of(value):
    return json.dumps(value) if isinstance(value, bool) else str(value)


def values_of(text):
    """a,[b,c] as a and [b,c]: commas in brackets and quotes separate nothing."""
    return [part.strip() for part in re.findall(r"(?:\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^,])+", text)]


def grid_of(options):
    """KEY=A,B … as all combinations of settings."""
    axes = []
    for option in options:
        key, _, text = option.partition("=")
        values = values_of(text)
        if not re.fullmatch(r"[a-z_]+\.[a-z_0-9]+", key) or not values:
            raise Refused(f"--grid {option}; legal: --grid KEY=VALUE,VALUE,… with a key of the deck, as in --grid mesh.tp=1,2")
        if key in [other for other, _ in axes]:
            raise Refused(f"--grid names {key} twice; legal: all of its values in one --grid")
        axes.append((key, values))
    return [dict(zip([key for key, _ in axes], chosen)) for chosen in itertools.product(*[values for _, values in axes])]


def predicted_of(step_seconds, per_rank, mfu, size, ranks):
    number = lambda value: None if value in (None, "") else float(value)
    speed = number(per_rank)
    return dict(zip(PREDICTED, (number(step_seconds), None if speed is None else speed * ranks, number(mfu), number(size))))


def of_search(path):
    """Layouts of a search: what forge plan --search --json has written."""
    found = read_json(path)
    if not isinstance(found, dict) or "searches" not in found:
        raise Refused(f"{path}: no search; legal: what forge plan --search --json FILE writes")
    layouts = []
    for search in found["searches"]:
        for best in search["best"]:
            layouts.append({"ranks": search["ranks"], "settings": {key: text_of(value) for key, value in best["layout"].items()},
                            "predicted": predicted_of(best["step_seconds"], best["tokens_per_second_per_rank"], best["mfu"],
                                                      best["peak_bytes"], search["ranks"])})
    return layouts


def of_table(path):
    """Layouts of a CSV file whose columns are keys, with predictions where forge plan --candidates has added them."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    layouts = []
    for row in rows:
        settings = {key: value for key, value in row.items() if key and "." in key and value}
        layout = {"ranks": None, "settings": settings, "predicted": None}
        if row.get("step_seconds"):
            layout["per_rank"] = [row["step_seconds"], row.get("tokens_per_second_per_rank"), None, row.get("peak_bytes")]
        layouts.append(layout)
    return layouts


def of_decks(folder):
    """The decks that forge plan --search --write has written, with the predictions in their heads."""
    layouts = []
    for path in sorted(folder.glob("*.yaml"), key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)]):
        text = path.read_text(encoding="utf-8")
        head = re.search(r"^# A layout of (\S+) for (\d+) ranks? of", text)
        if not head:
            raise Refused(f"{path}: no deck of forge plan --search --write {folder}, whose first line has the number of ranks")
        ranks = int(head[2])
        said = re.search(r"^# predicted: (\S+) s a step .*?, (\d+) tokens/s a \w+, mfu ([\d.]+) %, ([\d.]+) (\w+) of", text, re.M)
        predicted = None
        if said:
            size = float(said[4]) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[said[5]]
            predicted = predicted_of(said[1], said[2], float(said[3]) / 100, size, ranks)
        layouts.append({"deck": path, "model": Path(head[1]).stem, "ranks": ranks, "settings": {}, "predicted": predicted})
    return layouts


def listed(options):
    """What --layouts names, for the decks."""
    path = Path(options.layouts) if options.layouts else None
    if path and path.is_dir():
        if options.decks:
            raise Refused(f"--layouts {path} has decks of its own; legal: no other deck")
        found = of_decks(path)
    elif path and not path.exists():
        raise Refused(f"--layouts {path}: no such file")
    else:
        if not options.decks:
            raise Refused("a deck is missing; legal: sweep.py run DIRECTORY DECK… with --layouts FILE or --grid KEY=VALUE,…, or --layouts DIRECTORY")
        if path:
            found = of_search(path) if path.suffix == ".json" else of_table(path)
        else:
            found = [{"ranks": None, "settings": {}, "predicted": None}]
    if not found:
        raise Refused(f"--layouts {path} has no layout")
    decks = [Path(deck) for deck in options.decks]
    for deck in decks:
        if not deck.is_file():
            raise Refused(f"there is no deck {deck}")
    if len({deck.stem for deck in decks}) < len(decks):
        raise Refused("two decks have one name; legal: decks that differ in their names")
    return [{"deck": deck, "model": deck.stem, **layout} for deck in decks for layout in found] if decks else found


def resolve(forge, layout, settings, directory):
    """Completes a layout by what forge show says of it: ranks, deadlines; or why it isn't legal."""
    command = [forge, "show", str(layout["deck"]), "--json"]
    command += ["--ranks", str(layout["ranks"])] if layout["ranks"] else []
    for key, value in {**settings, **layout["settings"]}.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        shown = json.loads(done.stdout)
        layout["ranks"] = shown["layout"]["mesh"]["ranks"]
        layout["deadlines"] = [shown["deck"]["machine"][f"{name}deadline_seconds"] for name in ("first_", "")]
        layout["saves"] = bool(shown["deck"]["checkpoint"]["directory"])
    elif done.returncode == 2:
        layout["refused"] = telling([line.strip() for line in done.stderr.splitlines()])
    else:
        raise Refused(f"forge show {layout['deck']} ends with {done.returncode}: {done.stderr.strip()}")


def predict(forge, machine, layouts, settings, directory, scratch):
    """Fills in what forge plan says of the legal layouts that have no prediction."""
    missing = [layout for layout in layouts if not layout["predicted"] and "refused" not in layout]
    groups = {}
    for layout in missing:
        groups.setdefault((str(layout["deck"]), layout["ranks"]), []).append(layout)
    for (deck, ranks), group in groups.items():
        keys = sorted({key for layout in group for key in layout["settings"]}) or ["train.steps"]
        asked, answer = scratch / "asked.csv", scratch / "answer.csv"
        with asked.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([keys, *[[layout["settings"].get(key, "1" if key == "train.steps" else "") for key in keys] for layout in group]])
        command = [forge, "plan", deck, "--machine", machine, "--ranks", str(ranks), "--candidates", str(asked), "--output", str(answer)]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise Refused(f"forge plan says of {deck}: {done.stderr.strip()}")
        with answer.open(newline="", encoding="utf-8") as file:
            for layout, row in zip(group, csv.DictReader(file)):
                if row["step_seconds"]:
                    layout["predicted"] = predicted_of(row["step_seconds"], row["tokens_per_second_per_rank"], None, row["peak_bytes"], ranks)


def make(options):
    """A sweep from the command line: what sweep.json holds, but for what a start fills in."""
    settings = {}
    for setting in options.set:
        key, equals, value = setting.partition("=")
        if not equals:
            raise Refused(f"--set {setting}; legal: --set KEY=VALUE")
        settings[key] = value
    if options.steps is not None:
        settings["train.steps"] = str(options.steps)
    layouts, grid = [], grid_of(options.grid)
    keeps = all(TELLS_NO_SPEED.match(key) for key in grid[0])
    for layout in listed(options):
        for more in grid:
            one = {**layout, "settings": {**layout["settings"], **more}, "predicted": layout["predicted"] if keeps else None}
            if options.ranks:
                one["ranks"] = options.ranks
            layouts.append(one)
    if len(layouts) > MOST:
        raise Refused(f"{len(layouts)} layouts; legal: at most {MOST}")
    return {"settings": settings, "layouts": layouts}


def create(directory, options):
    """Writes a sweep: sweep.json and its decks. Nothing stays of one that is refused."""
    forge, here = find_forge(options.forge), os.getcwd()
    sweep = make(options)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda layout: resolve(forge, layout, sweep["settings"], here), sweep["layouts"]))
    if all("refused" in layout for layout in sweep["layouts"]):
        raise Refused(f"no layout is legal; the first one: {sweep['layouts'][0]['refused']}")
    for layout in sweep["layouts"]:
        figures = layout.pop("per_rank", None)
        if figures and layout["ranks"] and not layout["predicted"]:
            layout["predicted"] = predicted_of(*figures, layout["ranks"])
    if options.machine:
        with tempfile.TemporaryDirectory() as scratch:
            predict(forge, options.machine, sweep["layouts"], sweep["settings"], here, Path(scratch))
    (directory / "decks").mkdir(parents=True, exist_ok=True)
    for layout in sweep["layouts"]:
        copy = directory / "decks" / Path(layout["deck"]).name
        shutil.copyfile(layout["deck"], copy)
        layout["deck"] = str(copy.relative_to(directory))
        ranks = layout["ranks"]
        layout["nodes"] = ranks and -(-ranks // (options.ranks_per_node or ranks))
    sweep.update(name=f"sweep-{secrets.token_hex(4)}", forge=forge, directory=here, seconds=60 * options.minutes, saves=options.saves,
                 threads=options.threads, ranks_per_node=options.ranks_per_node, at_once=options.at_once, slurm=options.slurm, sbatch=options.sbatch)
    write_text(directory / "sweep.json", json.dumps(sweep, indent=1) + "\n")
    return sweep


def load(directory):
    path = directory / "sweep.json"
    if not path.is_file():
        raise Refused(f"{directory} is no sweep; legal: a directory that sweep.py run DIRECTORY DECK… has made")
    return read_json(path)


def place(directory, number):
    """Of a layout, which are numbered from 1."""
    return directory / f"{number:04d}"


def result_of(directory, sweep, number):
    """{"class", "line", …}; None where it has none yet."""
    refused = sweep["layouts"][number - 1].get("refused")
    if refused:
        return {"class": "invalid", "code": 2, "line": refused}
    path = place(directory, number) / "result.json"
    return read_json(path) if path.exists() else None


def missing(directory, sweep):
    return [number for number in range(1, len(sweep["layouts"]) + 1) if result_of(directory, sweep, number) is None]
