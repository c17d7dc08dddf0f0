#!/usr/bin/env python3
"""explorer.py FORGE BUILD: the explorer (BUILD/explorer.html) against the program. The page's module runs under node, and where
Chromium is installed the page itself (explorer_page.py): memory, traffic, times, warnings, changes, refusals and a search are
`forge plan`'s over drawn settings, with --as and --imbalance, bytes exactly and times to 1e-12; decks that it reads without yaml-cpp
resolve as `forge show` resolves them; config.json of every family gives `forge plan DIRECTORY`; the decks that it copies are planned
and shown alike. 5 settings, with FORGE_LONG=1 50. Needs emscripten and node; 77 where one is missing."""

import collections
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import explorer_page

forge, build = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
root = pathlib.Path(__file__).resolve().parents[2]
long = os.environ.get("FORGE_LONG") == "1"

DRIVER = """
const fs = require("fs"), [planner, input] = process.argv.slice(2), { files, calls } = JSON.parse(fs.readFileSync(input));
let told = [];
require(planner)({ tell: (text) => told.push(JSON.parse(text)) }).then((m) => {
  const call = (name, ...texts) => JSON.parse(m.ccall(name, "string", texts.map(() => "string"), texts));
  for (const [path, text] of files) call("explorer_file", path, text);
  const answers = calls.map(([what, question]) => {
    told = [];
    const answer = call("explorer_answer", what, JSON.stringify(question));
    return { answer, told };
  });
  fs.writeFileSync(input + ".answers", JSON.stringify(answers));
});
"""

Setting = collections.namedtuple("Setting", "deck machine ranks settings program imbalance")


def compare(wanted, got, path=""):
    """Where two JSON values differ: numbers with a fraction by more than 1e-12."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        if list(wanted) != list(got):
            return [f"{path}: keys {list(wanted)} and {list(got)}"]
        return [d for k in wanted for d in compare(wanted[k], got[k], f"{path}/{k}")]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        return [d for i, (a, b) in enumerate(zip(wanted, got)) for d in compare(a, b, f"{path}/{i}")]
    both = (wanted, got)
    if any(isinstance(x, float) for x in both) and all(isinstance(x, (int, float)) for x in both):
        return [] if math.isclose(wanted, got, rel_tol=1e-12, abs_tol=1e-18) else [f"{path}: {wanted!r}, not {got!r}"]
    return [] if wanted == got else [f"{path}: {wanted!r}, not {got!r}"]


def check(name, differences):
    assert not differences, f"{name}:\n  " + "\n  ".join(differences[:10])


def program(folder, *arguments, where=root):
    """What `forge` writes as JSON, or its refusal."""
    output = folder / "forge.json"
    run = subprocess.run([forge, *map(str, arguments), "--json", output], cwd=where, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return json.loads(output.read_text())
    assert run.returncode == 2, f"forge {arguments}: {run.returncode}: {run.stderr}"
    return {"error": run.stderr.removeprefix("forge: error: ").rstrip("\n")}


def drawn(rng, decks):
    """A deck, a machine, ranks, settings and options: not all of them legal."""
    deck = rng.choice(decks)
    gpus = int(re.search(r"_(\d+)gpu", deck).group(1))
    settings = []
    for key, values in (
        ("mesh.tp", (1, 2, 3, 4, 8)), ("mesh.pp", (1, 2, 4)), ("mesh.cp", (1, 2)), ("train.microbatch_sequences", (1, 2)),
        ("train.recompute", ("none", "selective", "full")), ("train.zero_stage", (0, 1, 2, 3)), ("train.overlap", ("none", "pairs")),
        ("schedule.name", ("1f1b", "gpipe", "zero_bubble")), ("train.sequence_tokens", (2048, 4096)),
    ):  # fmt: skip
        if rng.random() < 0.5:
            settings.append(f"{key}={rng.choice(values)}")
    settings.append("mesh.dp_shard=-1")
    machine = rng.choice(("h100_8", "h200_8", "b200_8", "a100_8", "h100_8_ethernet"))
    program = rng.choice(("", "", "megatron", "nanotron", "torchtitan"))
    return Setting(deck, machine, gpus, settings, program, rng.choice(("", "", "1.3", "2")))


def options_of(setting):
    options = ["--machine", setting.machine, "--ranks", setting.ranks]
    options += ["--as", setting.program] if setting.program else []
    return options + (["--imbalance", setting.imbalance] if setting.imbalance else [])


def arguments_of(setting):
    sets = [word for s in setting.settings for word in ("--set", s)]
    return ["plan", f"inputs/{setting.deck}.yaml", *options_of(setting), *sets]


class Module:
    """The planner of the page, under node."""

    def __init__(self, page, folder):
        self.folder = folder
        (folder / "module.cjs").write_text(re.search(r'id="module">(.*?)</script>', page, re.S).group(1))
        (folder / "driver.cjs").write_text(DRIVER)
        self.files = json.loads(re.search(r'id="files">(.*?)</script>', page, re.S).group(1).replace("<\\/", "</"))
        self.shared = [[f"inputs/{f}/{n}.yaml", t] for f in ("machines", "programs") for n, t in self.files[f].items()]

    def question(self, setting):
        return {"deck": self.files["decks"][setting.deck], "settings": "\n".join(setting.settings), "machine": setting.machine,
                "ranks": str(setting.ranks), "as": setting.program, "imbalance": setting.imbalance}  # fmt: skip

    def run(self, calls):
        """Of [what, question] each answer, and what was told before it."""
        requests = self.folder / "requests.json"
        requests.write_text(json.dumps({"files": self.shared, "calls": calls}))
        subprocess.run(["node", self.folder / "driver.cjs", self.folder / "module.cjs", requests], check=True)
        return json.loads(pathlib.Path(f"{requests}.answers").read_text())

    def ask(self, calls):
        return [done["answer"] for done in self.run(calls)]


def check_settings(module, folder, settings):
    wanted = [program(folder, *arguments_of(s)) for s in settings]
    got = module.ask([["plan", module.question(s)] for s in settings])
    for setting, w, g in zip(settings, wanted, got):
        if "error" in w:  # a place in the deck begins with the deck's path, or with "the deck"
            w = {"error": w["error"].replace(f"inputs/{setting.deck}.yaml", "the deck")}
        check(setting, compare(w, g))
    return wanted


def check_facts(module, settings, plans):
    """Memory of the fullest rank, as `forge plan` has it."""
    got = module.ask([["facts", module.question(s)] for s in settings])
    for setting, plan, facts in zip(settings, plans, got):
        assert facts["peak_bytes"] == plan["peak_bytes"] and facts["usable_bytes"] == plan["usable_bytes"], setting
        most = max(r["total_bytes"] for r in facts["memory"]["ranks"])
        libraries = {a["name"]: a["bytes"] for a in facts["allowances"]}
        fullest = [{**r["bytes"], **libraries} for r in facts["memory"]["ranks"] if r["total_bytes"] == most]
        assert plan["memory"] in fullest, f"{setting}: {plan['memory']} is not of {fullest}"


def check_decks(module, decks):
    asked = [["facts", {"deck": module.files["decks"][d], "machine": "h100_8"}] for d in decks]
    for deck, facts in zip(decks, module.ask(asked)):
        assert "error" not in facts, f"{deck}: {facts['error']}"
        shown = subprocess.run([forge, "show", f"inputs/{deck}.yaml", "--json"], cwd=root, capture_output=True, check=True)
        wanted = json.loads(shown.stdout)
        check(deck, compare(wanted["deck"], facts["deck"]))
        if facts["experts"] == 0:  # whose groups follow the machine's nodes, of which show knows nothing
            check(deck, compare(wanted["sent"], facts["sent"]))


def check_timeline(module):
    """The page has a name for each kind of stretch, and a place for its stream: in pairs of passes all streams but transfers run."""
    show = (root / "src/explorer/show.js").read_text()
    names, lanes = (json.loads(re.search(rf"{what} = (\[.*\])[;,]", show).group(1)) for what in ("const kinds", "(?<=, )lanes"))
    question = module.question(Setting("olmoe_8gpu", "h100_8", 8, ["train.overlap=pairs"], "", ""))
    (timeline,) = module.ask([["timeline", question]])
    kinds = {kind for rank in timeline["ranks"] for kind, _, _ in rank["stretches"]}
    assert kinds >= {0, 1, 3, 7} and max(kinds) < len(names) and len(names) == len(lanes) + 3, (kinds, names, lanes)


def check_copied(module, folder, questions, plans):
    """Copied decks, alone in a directory, under the command that the page shows beside them."""
    alone = folder / "alone"
    alone.mkdir(exist_ok=True)
    for question, plan, copied in zip(questions, plans, module.ask([["deck", q] for q in questions])):
        assert "error" not in copied, f"{question}: {copied['error']}"
        (alone / "deck.yaml").write_text(copied["deck"])
        options = ["--machine", question["machine"], "--ranks", question["ranks"]]
        for option in ("as", "imbalance"):
            options += [f"--{option}", question[option]] if question.get(option) else []
        check(copied["deck"], compare(plan, program(folder, "plan", "deck.yaml", *options, where=alone)))
        subprocess.run([forge, "show", "deck.yaml"], cwd=alone, capture_output=True, check=True)


def check_configs(module, folder):
    """A config.json of each family, as it would be pasted, against `forge plan DIRECTORY`; then nonsense."""
    configs = sorted(root.glob("verify/*/model/config.json"))
    questions = [{"config": c.read_text(), "machine": "h100_8", "ranks": "2"} for c in configs]
    plans = [program(folder, "plan", c.parent, "--machine", "h100_8", "--ranks", 2) for c in configs]
    families = {json.loads(q["config"])["model_type"] for q, p in zip(questions, plans) if "error" not in p}
    assert len(families) >= 15, families
    for config, plan, got in zip(configs, plans, module.ask([["plan", q] for q in questions])):
        plan = {k: str(v).replace(str(config.parent), "model") if k == "error" else v for k, v in plan.items()}
        check(config, compare(plan, got))
    some = [i for i, p in enumerate(plans) if "error" not in p][:: 1 if long else 6]
    check_copied(module, folder, [questions[i] for i in some], [plans[i] for i in some])
    nonsense = ["", "  ", "hello", "[]", "null", "{}", "{", '{"model_type": "gpt5"}', '{"model_type": "llama", "hidden_size": "wide"}',
                '{"model_type": "llama", "hidden_size": -4}', "{'model_type': 'llama'}", "\x00\x01", "[" * 5000, '{"a": ' * 5000]  # fmt: skip
    for text, got in zip(nonsense, module.ask([["facts", {"config": t, "machine": "h100_8"}] for t in nonsense])):
        assert list(got) == ["error"] and "config.json" in got["error"], f"{text[:60]!r}: {got}"


def check_options(module):
    """Fields of the form that are no numbers, and a machine that isn't there."""
    deck = module.files["decks"]["7b_8gpu_tp4"]
    wrong = {"ranks": ("0", "-1", "eight", "1.5", "99999999"), "imbalance": ("0", "x", "1001", "1.5"), "machine": ("moon", ""),
             "as": ("moon",), "best": ("0", "1.5"), "seconds": ("-1", "soon")}  # fmt: skip
    asked = [[option, {"deck": deck, "machine": "h100_8", option: value}] for option, values in wrong.items() for value in values]
    for (option, question), got in zip(asked, module.ask([["facts", q] for _, q in asked])):
        word = {"machine": "machine", "as": "program"}.get(option, "--" + option)
        assert list(got) == ["error"] and word in got["error"], f"{option} {question[option]!r}: {got}"


def check_search(module, folder):
    """The same ranking as the program's; before it parts of it, each with no less known than the one before."""
    deck = "7b_8gpu_tp4"
    arguments = ["plan", f"inputs/{deck}.yaml", "--machine", "h100_8", "--ranks", 8, "--search", "--best", 3]
    wanted = program(folder, *arguments)["searches"][0]["best"]
    question = {"deck": module.files["decks"][deck], "machine": "h100_8", "ranks": "8", "best": "3", "seconds": "1000000"}
    done = module.run([["search", question]])[0]
    check("search", compare(wanted, done["answer"]["best"]))
    told = [t for t in done["told"] if t["best"]]
    assert told, "nothing was told while the search ran"
    for before, after in zip(done["told"], done["told"][1:]):
        assert after["left"] <= before["left"] and len(after["best"]) >= len(before["best"]), (before, after)
    for partial in told:
        times = [b["step_seconds"] for b in partial["best"]]
        assert times == sorted(times) and len(times) <= 3, times
    return question, wanted


def main():
    if not shutil.which("em++") or not shutil.which("node"):
        print("LEFT OUT: the explorer: em++ or node is missing; jobscripts/setup.sh --web installs them")
        sys.exit(77)
    subprocess.run(["cmake", "--build", build, "--target", "explorer"], check=True, stdout=subprocess.DEVNULL)
    page = build / "explorer.html"
    rng = random.Random(50)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        module = Module(page.read_text(), folder)
        assert re.search(r'<span id="revision">([0-9a-f]{12}( with changes)?|unknown revision)</span>', page.read_text())
        decks = list(module.files["decks"])
        small = [d for d in decks if re.search(r"_(8|12|16|24|32)gpu", d)]
        settings = []
        legal = 0
        while legal < (50 if long else 5):
            settings.append(drawn(rng, small))
            legal += "error" not in program(folder, *arguments_of(settings[-1]))
        plans = check_settings(module, folder, settings)
        good = [(s, p) for s, p in zip(settings, plans) if "error" not in p]
        check_facts(module, [s for s, _ in good], [p for _, p in good])
        check_copied(module, folder, [module.question(s) for s, _ in good], [p for _, p in good])
        check_timeline(module)
        check_decks(module, decks if long else decks[::8])
        check_configs(module, folder)
        check_options(module)
        question, best = check_search(module, folder)
        explorer_page.check_page(page, folder, good, question, best, compare)
        print(f"explorer: {legal} settings as the program plans them, {len(settings) - legal} refused alike")


if __name__ == "__main__":
    main()
