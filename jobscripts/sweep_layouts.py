"""The layouts of a sweep, of a search of forge plan, a table or a grid of keys, and the directory that gets them. Serves sweep.py."""
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
from sweep_files import check_place, is_text, of_decks, of_search, of_table, predicted_of, write_text

HERE = Path(__file__).resolve().parent
MOST = 1000  # layouts: Slurm's arrays take indices up to this by default
SAVES_NOTHING = {"checkpoint.directory": "", "checkpoint.every_steps": "0", "checkpoint.every_seconds": "0", "checkpoint.keep_last": "0",
                 "checkpoint.keep_every_steps": "0", "checkpoint.asynchronous": "false", "checkpoint.resume": "never",
                 "checkpoint.stop_on_failure": "true", "checkpoint.end_margin_seconds": "60", "output.save_hf": "false", "output.sample_tokens": "0"}
SAVES = {"checkpoint.resume": "auto", "checkpoint.end_margin_seconds": "0"}  # the time of a job of Slurm is longer than the layout's
DEADLINES = ("machine.first_deadline_seconds", "machine.deadline_seconds")
NO_MEMORY = re.compile(r"the deck doesn't fit|out of memory|out_of_memory|oom.?kill|Cannot allocate memory|ALLOC_FAILED", re.I)
TELLS_NO_SPEED = re.compile(r"optimizer\.|train\.seed$|output\.|checkpoint\.")  # keys on which no prediction depends


def telling(lines):
    """The line that says how a job ended: forge's error, else that of a launcher, else the last one with words."""
    for i, line in enumerate(lines):
        if re.match(r"forge: error", line):
            more = lines[i + 1:i + 2] if line.endswith("errors:") else []
            return " ".join([line, *more])
    for line in lines:
        if NO_MEMORY.search(line) or re.search(r"exited on signal|signal \d+|: (Killed|Aborted|Segmentation fault)|srun: error", line):
            return line
    return last_words(lines)


def last_words(lines):
    """The last line that isn't the frame of a message."""
    return next((line for line in reversed(lines) if re.search(r"\w", line)), "")


def find_forge(named):
    """The program: --forge, FORGE, or as the job scripts find it."""
    named = named or os.environ.get("FORGE")
    if named:
        if not (os.path.isfile(named) and os.access(named, os.X_OK)):
            raise Refused(f"--forge {named} is no program; legal: a file that can be run, as build/cpu/forge")
        return str(Path(named).resolve())
    command = 'root=$1; . "$root/jobscripts/job.sh"; find_forge cuda 2> /dev/null || find_forge cpu'
    done = subprocess.run(["bash", "-c", command, "sweep", str(HERE.parent)], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{done.stderr.strip()}; legal: --forge PROGRAM")
    return str(Path(done.stdout.strip()).resolve())


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


def listed(options):
    """What --layouts names, for the decks."""
    path = Path(options.layouts) if options.layouts else None
    if path and path.is_dir():
        if options.decks:
            raise Refused(f"--layouts {path} is a folder of decks; legal: no deck beside it")
        found = of_decks(path)
    elif path and not path.exists():
        raise Refused(f"--layouts {path}: no such file; legal: a search's JSON, its folder of decks, or a CSV file with keys as columns")
    else:
        if not options.decks:
            raise Refused("a deck is missing; legal: sweep.py run DIRECTORY DECK… with --layouts FILE or --grid KEY=VALUE,…, or --layouts DIRECTORY")
        if path:
            found = of_search(path) if path.suffix == ".json" else of_table(path)
        else:
            found = [{"ranks": None, "settings": {}, "predicted": None}]
    if not found:
        raise Refused(f"--layouts {path} has no layout; legal: at least one")
    decks = [Path(deck) for deck in options.decks]
    for deck in decks:
        if not deck.is_file():
            raise Refused(f"there is no deck {deck}; legal: a file")
    if len({deck.stem for deck in decks}) < len(decks):
        raise Refused(f"two of the decks {', '.join(map(str, decks))} have one name; legal: decks that differ in their names")
    return [{"deck": deck, "model": deck.stem, **layout} for deck in decks for layout in found] if decks else found


def resolve(forge, layout, settings, directory):
    """Completes a layout by what forge show says of it: ranks, deadlines; or why it isn't legal."""
    command = [forge, "show", str(layout["deck"]), "--json"]
    command += ["--ranks", str(layout["ranks"])] if layout["ranks"] else []
    for key, value in {**settings, **layout["settings"]}.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        try:
            shown = json.loads(done.stdout)
            layout["ranks"] = shown["layout"]["mesh"]["ranks"]
            layout["deadlines"] = [shown["deck"]["machine"][key.partition(".")[2]] for key in DEADLINES]
            layout["saves"] = bool(shown["deck"]["checkpoint"]["directory"])
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"{forge} show doesn't describe {layout['deck']}; legal: --forge PROGRAM with forge itself") from error
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


def own_keys(options):
    """{key: why} of the settings that the sweep makes itself."""
    saving = ["checkpoint.directory", *SAVES] if options.saves else SAVES_NOTHING
    own = {key: "the sweep sets it itself" + ("" if options.saves or key == "checkpoint.directory" else "; --saves keeps the deck's") for key in saving}
    return {**own, "output.directory": "each layout has its own", **({"train.steps": "--steps sets it"} if options.steps else {})}


def check_keys(where, settings, own):
    for key, value in settings.items():
        if key in own:
            raise Refused(f"{where}: {key}: {own[key]}; legal: other keys of the deck")
        if not is_text(value):
            raise Refused(f"{where}: {key} = {value!r}; legal: printable characters")


def settings_of(options):
    """Those of --set and --steps."""
    settings = {}
    for setting in options.set:
        key, equals, value = setting.partition("=")
        if not equals or key in settings:
            raise Refused(f"--set {setting}; legal: --set KEY=VALUE, each key once")
        settings[key] = value
    check_keys("--set", settings, own_keys(options))
    return {**settings, "train.steps": str(options.steps)} if options.steps else settings


def check_together(settings, grid, layouts, source):
    """No key stands where another one of the same name hides it."""
    for layout in layouts:
        for key in set(layout["settings"]) & set(grid):
            raise Refused(f"--grid {key}: {source} has it already; legal: one of them")
    for key in settings:
        if key in grid or all(key in layout["settings"] for layout in layouts):
            raise Refused(f"--set {key}: {'--grid' if key in grid else source} has it already; legal: one of them")


def make(options):
    """A sweep from the command line: what sweep.json holds, but for what a start fills in. Equal layouts are made once."""
    settings, grid, found = settings_of(options), grid_of(options.grid), listed(options)
    own = {**own_keys(options), **dict.fromkeys(DEADLINES, "its minutes bound it, too; --set gives all layouts one")}
    for where, one in [("--grid", one) for one in grid] + [(f"--layouts {options.layouts}", layout["settings"]) for layout in found]:
        check_keys(where, one, own)
    check_together(settings, grid[0], found, f"--layouts {options.layouts}")
    layouts, keeps = {}, all(TELLS_NO_SPEED.match(key) for key in grid[0])
    for layout in found:
        for more in grid:
            one = {**layout, "settings": {**layout["settings"], **more}, "predicted": layout["predicted"] if keeps else None}
            if options.ranks and options.ranks != one["ranks"]:
                one.update(ranks=options.ranks, predicted=None if one["ranks"] else one["predicted"])
            layouts.setdefault(json.dumps([str(one["deck"]), one["ranks"], sorted(one["settings"].items())]), one)
    if len(layouts) > MOST:
        raise Refused(f"{len(layouts)} layouts; legal: at most {MOST}")
    return {"settings": settings, "layouts": list(layouts.values()), "equal": len(found) * len(grid) - len(layouts)}


def create(directory, options):
    """Writes a sweep: sweep.json and its decks. Nothing stays of one that is refused."""
    check_place(directory)
    sweep = make(options)
    forge, here = find_forge(options.forge), os.getcwd()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda layout: resolve(forge, layout, sweep["settings"], here), sweep["layouts"]))
    if all("refused" in layout for layout in sweep["layouts"]):
        raise Refused(f"no layout is legal; the first one: {sweep['layouts'][0]['refused']}")
    for layout in sweep["layouts"]:
        if options.saves and not layout.get("saves", True):
            raise Refused(f"--saves: {layout['deck']} has no checkpoint.directory; legal: decks that save, or no --saves")
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
    sweep.update(name=f"sweep-{secrets.token_hex(4)}", forge=forge, directory=here, seconds=60 * (options.minutes or 10), saves=options.saves,
                 threads=options.threads, ranks_per_node=options.ranks_per_node, at_once=options.at_once, slurm=options.slurm, sbatch=options.sbatch)
    write_text(directory / "sweep.json", json.dumps(sweep, indent=1) + "\n")
    return sweep
