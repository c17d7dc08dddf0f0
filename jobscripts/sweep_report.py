"""The table of a sweep and the pictures of several. Serves sweep.py."""
import csv
import io
import json
import textwrap
from collections import Counter
from pathlib import Path
from statistics import median

from refusal import counted
from sweep_files import check_place, place, result_of, write_text
from sweep_one import steps_of
from sweep_pictures import INKS, Axes, heat_map, number

FIRST = ["layout", "deck", "nodes", "ranks"]
FIGURES = ["class", "steps", "step_seconds", "predicted_step_seconds", "tokens_per_second", "predicted_tokens_per_second", "mfu", "predicted_mfu",
           "peak_bytes", "planned_bytes", "predicted_bytes", "loss", "dropped_share", "code", "line"]


def measured(directory, number_):
    """Figures of a run: those of the step that took the median time, of all but the first, which starts what others find there."""
    run = place(directory, number_) / "run"
    steps = steps_of(run)
    found = {"steps": len(steps)}
    later = sorted(steps[1:], key=lambda step: step["step_seconds"])
    if later:
        middle = later[len(later) // 2]
        found.update({name: middle[name] for name in ("step_seconds", "tokens_per_second", "mfu")}, peak_bytes=max(step["peak_bytes"] for step in later))
        dropped = [layer["dropped_share"] for step in later for layer in step.get("experts", [])]
        if dropped:
            found["dropped_share"] = sum(dropped) / len(dropped)
    losses = [step["loss"] for step in steps[-max(1, len(steps) // 10):] if step["loss"] is not None]
    if losses:
        found["loss"] = sum(losses) / len(losses)
    try:
        found["planned_bytes"] = json.loads((run / "job_info.json").read_text(encoding="utf-8"))["planned_memory_bytes"]["total"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return found


def rows_of(directory, sweep):
    """A dictionary for each layout."""
    rows, varying = [], varying_of(sweep)
    for n, layout in enumerate(sweep["layouts"], 1):
        names = [(key, layout["settings"].get(key, "deck")) for key in varying]
        row = {"layout": n, "deck": layout["model"], "nodes": layout["nodes"], "ranks": layout["ranks"], "settings": layout["settings"], "from": directory.name,
               "words": ([("", Path(layout["deck"]).stem)] if Path(layout["deck"]).stem != layout["model"] else []) + names}
        result = result_of(directory, sweep, n) or {"class": "not run", "code": None, "line": ""}
        row.update(result, line=" ".join(result["line"].split()))
        if result["class"] != "invalid":
            row.update(measured(directory, n))
        if layout["predicted"]:
            row.update({f"predicted_{name}": value for name, value in layout["predicted"].items()})
        rows.append(row)
    return rows


def cell(value):
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and value < 1e6 else f"{value:.0f}" if isinstance(value, float) else value


def write_table(directory, sweep):
    rows = rows_of(directory, sweep)
    keys = sorted({key for row in rows for key in row["settings"]})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIRST, *keys, *FIGURES])
    for row in rows:
        writer.writerow([*(cell(row.get(name)) for name in FIRST), *(row["settings"].get(key, "") for key in keys),
                         *(cell(row.get(name)) for name in FIGURES)])
    write_text(directory / "sweep.csv", text.getvalue())


def varying_of(sweep):
    """Keys in which a sweep's layouts differ."""
    settings = [layout["settings"] for layout in sweep["layouts"]]
    keys = sorted({key for one in settings for key in one})
    return [key for key in keys if len({one.get(key) for one in settings}) > 1]


def named(row, without=None):
    """A layout in words: its file and the settings in which layouts differ, but for one."""
    return [f"{key.partition('.')[2]} {value}".strip() for key, value in row["words"] if key != without]


def nodes_of(count):
    return f"{count} node{'s' if count > 1 else ''}"


def label(row):
    words = [row["deck"], *([nodes_of(row["nodes"])] if row["nodes"] else []), *named(row)]
    return f"{row['from']}/{row['layout']:04d} ({', '.join(words)})"


def speed(row):
    return row["tokens_per_second"] / row["ranks"]


def best_of(done, size):
    """The fastest row of each deck and size: nodes or ranks."""
    best = {}
    for row in done:
        key = row["deck"], row[size]
        if key not in best or speed(row) > speed(best[key]):
            best[key] = row
    return best


def draw_best(rows, best):
    rows = [row for row in rows if row["nodes"]]
    decks, nodes = list(dict.fromkeys(row["deck"] for row in rows)), sorted({row["nodes"] for row in rows})
    most = max((row["mfu"] for row in best.values()), default=0) or 1
    cells = {}
    for key in {(row["deck"], row["nodes"]) for row in rows}:
        if key in best:
            row = best[key]
            lines = [f"{100 * row['mfu']:.1f} % MFU, {number(speed(row))} tokens/s", f"layout {row['layout']:04d}"]
            cells[key] = row["mfu"] / most, lines + textwrap.wrap(", ".join(named(row)), 32, max_lines=2, placeholder=" …"), label(row)
        else:
            counts = Counter(row["class"] for row in rows if (row["deck"], row["nodes"]) == key)
            cells[key] = None, [f"{count} {name}" for name, count in counts.items()], ""
    return heat_map("The fastest layout of each model and number of nodes; tokens/s of a rank", decks, nodes, cells, "model \\ nodes")


def draw_predicted(compared):
    seconds = [value for row in compared for value in (row["step_seconds"], row["predicted_step_seconds"])]
    axes = Axes("Seconds of a step, measured and predicted", "predicted", "measured", seconds, seconds, (True, True))
    axes.picture.line([axes.at(min(seconds), min(seconds)), axes.at(max(seconds), max(seconds))], "#888", 1, "4 3")
    decks = list(dict.fromkeys(row["deck"] for row in compared))
    for i, deck in enumerate(decks):
        points = [(row["predicted_step_seconds"], row["step_seconds"], label(row)) for row in compared if row["deck"] == deck]
        axes.curve(points[:1], INKS[i % len(INKS)], deck)
        axes.points(points[1:], INKS[i % len(INKS)])
    worst = max(compared, key=lambda row: abs(error_of(row)))
    x, y = axes.at(worst["predicted_step_seconds"], worst["step_seconds"])
    axes.picture.text(min(x + 8, 540), y - 8, f"worst: layout {worst['layout']:04d}, {100 * error_of(worst):+.0f} %", size=10,
                      anchor="start" if x < 400 else "end")
    return axes.svg()


def error_of(row):
    return row["predicted_step_seconds"] / row["step_seconds"] - 1


def draw_speed(best):
    """Tokens a second of a rank over ranks."""
    rows = list(best.values())
    values = [speed(row) for row in rows]
    values += [row["predicted_tokens_per_second"] / row["ranks"] for row in rows if row.get("predicted_tokens_per_second")]
    axes = Axes("Tokens a second of a rank, the fastest layouts; predicted: dashed", "ranks", "tokens/s", [row["ranks"] for row in rows], [0, *values], (True, False),
                sorted({row["ranks"] for row in rows})[:12])
    for i, deck in enumerate(dict.fromkeys(row["deck"] for row in rows)):
        mine = sorted((row for row in rows if row["deck"] == deck), key=lambda row: row["ranks"])
        axes.curve([(row["ranks"], speed(row), label(row)) for row in mine], INKS[i % len(INKS)], deck)
        told = [(row["ranks"], row["predicted_tokens_per_second"] / row["ranks"], "") for row in mine if row.get("predicted_tokens_per_second")]
        if told:
            axes.curve(told, INKS[i % len(INKS)], f"{deck}, predicted", "5 4")
    return axes.svg()


RATE = "optimizer.learning_rate"


def draw_rates(done):
    """The last loss over the learning rate, a curve for each choice of the other settings; None where rates don't vary."""
    rows = [row for row in done if RATE in row["settings"] and "loss" in row and float(row["settings"][RATE]) > 0]
    curves, several = {}, len({row["ranks"] for row in rows}) > 1
    for row in rows:
        name = ", ".join([row["deck"], *([f"{row['ranks']} ranks"] if several else []), *named(row, RATE)])
        curves.setdefault(name, []).append((float(row["settings"][RATE]), row["loss"], label(row)))
    if len({rate for points in curves.values() for rate, _, _ in points}) < 2:
        return None
    axes = Axes("Loss of the last tenth of the steps", "learning rate", "loss", [float(row["settings"][RATE]) for row in rows],
                [row["loss"] for row in rows], (True, False))
    for i, (name, points) in enumerate(sorted(curves.items())):
        axes.curve(sorted(points), INKS[i % len(INKS)], name)
    return axes.svg()


def text_of(rows, best, compared):
    counts = Counter(row["class"] for row in rows)
    lines = [f"{counted(len(rows), 'layout')}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()), ""]
    for (deck, nodes), row in sorted(best.items(), key=lambda item: (item[0][0], item[0][1])):
        lines.append(f"best of {deck} on {nodes_of(nodes)}: {number(speed(row))} tokens/s a rank, MFU {100 * row['mfu']:.2f} %, {label(row)}")
    if compared:
        errors = sorted(abs(error_of(row)) for row in compared)
        worst = sorted(compared, key=lambda row: -abs(error_of(row)))[:3]
        lines += ["", f"predicted steps of {counted(len(compared), 'layout')}: median error {100 * median(errors):.1f} %, worst {100 * errors[-1]:.1f} %"]
        lines += [f"  {100 * error_of(row):+.1f} %: {row['step_seconds']:.4g} s measured, {row['predicted_step_seconds']:.4g} s predicted, {label(row)}"
                  for row in worst]
    failed = [row for row in rows if row["class"] not in ("ok", "not run")]
    lines += [""] if failed else []
    lines += [f"{row['class']}: {label(row)}: {row['line']}" for row in failed]
    return "\n".join(lines) + "\n"


def report(sweeps, folder):
    """Writes report.txt and the pictures for which there are figures, and prints the text."""
    rows = [row for directory, sweep in sweeps for row in rows_of(directory, sweep)]
    done = [row for row in rows if row["class"] == "ok" and row.get("step_seconds")]
    compared = [row for row in done if row.get("predicted_step_seconds")]
    best = best_of(done, "nodes")
    check_place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"best": draw_best(rows, best), "predicted": draw_predicted(compared) if compared else None,
                "speed": draw_speed(best_of(done, "ranks")) if done else None, "rates": draw_rates(done)}
    text = text_of(rows, best, compared)
    for name, picture in pictures.items():
        if picture:
            write_text(folder / f"{name}.svg", picture)
        else:
            (folder / f"{name}.svg").unlink(missing_ok=True)  # of an earlier report
    write_text(folder / "report.txt", text)
    drawn = ", ".join(f"{name}.svg" for name, picture in pictures.items() if picture)
    print(f"{text}\n{folder}: report.txt, {drawn}")
