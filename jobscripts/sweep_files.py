"""The files that a sweep reads: layouts from elsewhere, and its own sweep.json and result.json, each checked. Serves sweep.py."""
import csv
import json
import os
import re
from pathlib import Path

from refusal import Refused, named

PREDICTED = ("step_seconds", "tokens_per_second", "mfu", "bytes")
FIGURES = ("step_seconds", "low", "high", "tokens_per_second_per_rank", "peak_bytes", "legal", "fits")  # forge plan --candidates adds them
CLASSES = ("ok", "out of memory", "invalid", "hang", "failed")
SEARCH = "what forge plan --search --json FILE writes"
TABLE = "keys of the deck as columns, a layout in each line, as forge plan --candidates reads and writes it"


def is_word(value):
    return isinstance(value, str)


def is_text(value):
    """Whether a program can have it as an argument, and a table as a cell."""
    return is_word(value) and value.isprintable()


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e300


def is_flag(value):
    return isinstance(value, bool)


def none_or(holds):
    return lambda value: value is None or holds(value)


def list_of(holds):
    return lambda value: isinstance(value, list) and all(map(holds, value))


def table_of(holds):
    return lambda value: isinstance(value, dict) and all(is_text(key) and holds(one) for key, one in value.items())


def check(path, place, thing, members, legal):
    """Refuses an object of a file one of whose members is missing or isn't as members, {name: a function that says so}, has it."""
    if not isinstance(thing, dict):
        raise Refused(f"{path}: {place} is no object; legal: {legal}")
    for name, holds in members.items():
        if name not in thing:
            raise Refused(f"{path}: {place} has no '{name}'; legal: {legal}")
        if not holds(thing[name]):
            raise Refused(f"{path}: {place}: '{name}' is {json.dumps(thing[name])[:60]}; legal: {legal}")


def check_place(directory):
    """Refuses a directory in whose place a file stands."""
    for path in (directory, *directory.parents):
        if path.exists() and not path.is_dir():
            raise Refused(f"{path} is no directory; legal: one, or a name that isn't there yet")


def write_text(path, text):
    """A whole file or none."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with named(path):
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path, legal):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: no JSON: {error}; legal: {legal}") from error


def text_of(value):
    return json.dumps(value) if isinstance(value, bool) else str(value)


def predicted_of(step_seconds, per_rank, mfu, size, ranks):
    number = lambda value: None if value in (None, "") else float(value)
    speed = number(per_rank)
    return dict(zip(PREDICTED, (number(step_seconds), None if speed is None else speed * ranks, number(mfu), number(size))))


def of_search(path):
    """Layouts of a search: what forge plan --search --json has written."""
    found, layouts = read_json(path, SEARCH), []
    if not isinstance(found, dict) or "searches" not in found:
        raise Refused(f"{path}: no search; legal: {SEARCH}")
    check(path, "the search", found, {"searches": list_of(lambda one: isinstance(one, dict))}, SEARCH)
    for n, search in enumerate(found["searches"], 1):
        check(path, f"search {n}", search, {"ranks": is_count, "best": list_of(lambda one: isinstance(one, dict))}, SEARCH)
        for m, best in enumerate(search["best"], 1):
            check(path, f"search {n}, layout {m}", best, {"layout": table_of(lambda one: is_text(one) or is_flag(one) or is_figure(one))}, SEARCH)
            figures = ("step_seconds", "tokens_per_second_per_rank", "mfu", "peak_bytes")
            check(path, f"search {n}, layout {m}", best, dict.fromkeys(figures, none_or(is_figure)), SEARCH)
            layouts.append({"ranks": search["ranks"], "settings": {key: text_of(value) for key, value in best["layout"].items()},
                            "predicted": predicted_of(*(best[name] for name in figures), search["ranks"])})
    return layouts


def rows_of_table(path):
    """(number of the line, cells) of a CSV file, the head first."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{path}: no CSV: {error}; legal: {TABLE}") from error
    if not rows:
        raise Refused(f"{path}: no head; legal: {TABLE}")
    head = rows[0][1]
    for column in head:
        if not re.fullmatch(r"[a-z_]+\.[a-z_0-9]+", column) and column not in FIGURES:
            raise Refused(f"{path}:1: column {column!r} is no key of a deck; legal: {TABLE}")
        if head.count(column) > 1:
            raise Refused(f"{path}:1: column {column} stands twice; legal: {TABLE}")
    for line, row in rows:
        if len(row) != len(head):
            raise Refused(f"{path}:{line}: {len(row)} cell{'s' if len(row) > 1 else ''}, the head has {len(head)}; legal: {TABLE}")
    return rows


def of_table(path):
    """Layouts of a CSV file whose columns are keys, with predictions where forge plan --candidates has added them."""
    (_, head), *rows = rows_of_table(path)
    layouts = []
    for line, cells in rows:
        row = dict(zip(head, cells))
        settings = {key: value for key, value in row.items() if "." in key and value}
        layout = {"ranks": None, "settings": settings, "predicted": None}
        for name in FIGURES[:5]:
            if row.get(name) and not is_figure(number_of(row[name])):
                raise Refused(f"{path}:{line}: {name} is {row[name]!r}; legal: a number from 0, or nothing")
        if row.get("step_seconds"):
            layout["per_rank"] = [row["step_seconds"], row.get("tokens_per_second_per_rank"), None, row.get("peak_bytes")]
        layouts.append(layout)
    return layouts


def number_of(text):
    try:
        return float(text)
    except ValueError:
        return None


def of_decks(folder):
    """The decks that forge plan --search --write has written, with the predictions in their heads."""
    layouts = []
    for path in sorted(folder.glob("*.yaml"), key=lambda p: [int(n) for n in re.findall(r"[0-9]+", p.name)]):
        text = path.read_text(encoding="utf-8", errors="replace")
        head = re.search(r"^# A layout of (\S+) for ([0-9]{1,9}) ranks? of", text)
        if not head:
            raise Refused(f"{path}: its first line has no number of ranks; legal: a deck that forge plan --search --write {folder} has written")
        ranks = int(head[2])
        number = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
        said = re.search(rf"^# predicted: {number} s a step .*?, {number} tokens/s a \w+, mfu {number} %, {number} (B|KiB|MiB|GiB|TiB) of", text, re.M)
        predicted = None
        if said:
            values = [number_of(one) for one in said.groups()[:4]]
            if not all(map(is_figure, values)):
                raise Refused(f"{path}: {said[0]!r} has no four numbers; legal: a deck that forge plan --search --write {folder} has written")
            size = values[3] * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[said[5]]
            predicted = predicted_of(values[0], values[1], values[2] / 100, size, ranks)
        layouts.append({"deck": path, "model": Path(head[1]).stem, "ranks": ranks, "settings": {}, "predicted": predicted})
    return layouts


MADE = "what sweep.py run DIRECTORY DECK… has written; without it, the sweep made in another directory"
SWEEP = {"layouts": lambda value: isinstance(value, list) and value, "settings": table_of(is_text), "name": is_text, "forge": is_word, "directory": is_word,
         "seconds": lambda value: is_figure(value) and value, "saves": is_flag, "threads": is_flag, "slurm": is_flag, "sbatch": list_of(is_word),
         "ranks_per_node": none_or(is_count), "at_once": none_or(is_count)}
LAYOUT = {"model": is_word, "deck": is_word, "settings": table_of(is_text), "ranks": none_or(is_count), "nodes": none_or(is_count),
          "predicted": none_or(lambda value: isinstance(value, dict) and all(none_or(is_figure)(value.get(name, "")) for name in PREDICTED))}
LEGAL = {"ranks": is_count, "nodes": is_count, "saves": is_flag, "deadlines": lambda value: list_of(is_figure)(value) and len(value) == 2}


def load(directory):
    path = directory / "sweep.json"
    if not path.is_file():
        raise Refused(f"{directory} is no sweep; legal: a directory that sweep.py run DIRECTORY DECK… has made")
    sweep = read_json(path, MADE)
    check(path, "the sweep", sweep, SWEEP, MADE)
    for n, layout in enumerate(sweep["layouts"], 1):
        check(path, f"layout {n}", layout, LAYOUT, MADE)
        check(path, f"layout {n}", layout, {"refused": is_word} if "refused" in layout else LEGAL, MADE)
    return sweep


def place(directory, number):
    """Of a layout, which are numbered from 1."""
    return directory / f"{number:04d}"


def result_of(directory, sweep, number):
    """{"class", "line", …}; None where it has none yet."""
    refused = sweep["layouts"][number - 1].get("refused")
    if refused:
        return {"class": "invalid", "code": 2, "line": refused}
    path = place(directory, number) / "result.json"
    if not path.exists():
        return None
    legal = f"what sweep.py has written; without the file, sweep.py run {directory} runs the layout again"
    result = read_json(path, legal)
    check(path, "the result", result, {"class": lambda value: value in CLASSES, "line": is_word,
                                       "code": none_or(lambda value: isinstance(value, int))}, legal)
    return result


def missing(directory, sweep):
    return [number for number in range(1, len(sweep["layouts"]) + 1) if result_of(directory, sweep, number) is None]
