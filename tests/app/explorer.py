#!/usr/bin/env python3
"""explorer.py FORGE BUILD: the explorer (BUILD/explorer.html) against the program. The page's module runs under node, and where
Chromium is installed the page itself: memory, traffic, times, warnings, changes, refusals and a search are `forge plan`'s over drawn
settings, bytes exactly and times to 1e-12; decks that it reads without yaml-cpp resolve as `forge show` resolves them. 5 settings, with
FORGE_LONG=1 50. Needs emscripten and node; 77 where one is missing."""

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
import urllib.parse

forge, build = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
root = pathlib.Path(__file__).resolve().parents[2]
long = os.environ.get("FORGE_LONG") == "1"

DRIVER = """
const [planner, requests] = process.argv.slice(2);
require(planner)().then((m) => {
  const kinds = { string: "string", number: "number" };
  const answers = JSON.parse(require("fs").readFileSync(requests)).map(([name, ...values]) =>
    m.ccall(name, "string", values.map((v) => kinds[typeof v]), values));
  require("fs").writeFileSync(requests + ".answers", JSON.stringify(answers));
});
"""


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


def program(folder, *arguments):
    """What `forge` writes as JSON, or its refusal."""
    output = folder / "forge.json"
    run = subprocess.run([forge, *map(str, arguments), "--json", output], cwd=root, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return json.loads(output.read_text())
    assert run.returncode == 2, f"forge {arguments}: {run.returncode}: {run.stderr}"
    return {"error": run.stderr.removeprefix("forge: error: ").rstrip("\n")}


def drawn(rng, decks):
    """A deck, a machine, ranks and settings: not all of them legal."""
    deck = rng.choice(decks)
    gpus = int(re.search(r"_(\d+)gpu", deck).group(1))
    settings = []
    for key, values in (
        ("mesh.tp", (1, 2, 3, 4, 8)), ("mesh.pp", (1, 2, 4)), ("mesh.cp", (1, 2)), ("train.microbatch_sequences", (1, 2)),
        ("train.recompute", ("none", "selective", "full")), ("train.zero_stage", (0, 1, 2, 3)),
        ("schedule.name", ("1f1b", "gpipe", "zero_bubble")), ("train.sequence_tokens", (2048, 4096)),
    ):  # fmt: skip
        if rng.random() < 0.5:
            settings.append(f"{key}={rng.choice(values)}")
    settings.append("mesh.dp_shard=-1")
    machine = rng.choice(("h100_8", "h200_8", "b200_8", "a100_8", "h100_8_ethernet"))
    return deck, machine, gpus, settings


def arguments_of(setting):
    deck, machine, gpus, settings = setting
    sets = [word for s in settings for word in ("--set", s)]
    return ["plan", f"inputs/{deck}.yaml", "--machine", machine, "--ranks", gpus, *sets]


class Module:
    """The planner of the page, under node."""

    def __init__(self, page, folder):
        self.folder = folder
        (folder / "module.cjs").write_text(re.search(r'id="module">(.*?)</script>', page, re.S).group(1))
        (folder / "driver.cjs").write_text(DRIVER)
        self.files = json.loads(re.search(r'id="files">(.*?)</script>', page, re.S).group(1).replace("<\\/", "</"))
        self.machines = [["explorer_file", f"inputs/machines/{n}.yaml", t] for n, t in self.files["machines"].items()]

    def ask(self, calls):
        requests = self.folder / "requests.json"
        requests.write_text(json.dumps(self.machines + calls))
        subprocess.run(["node", self.folder / "driver.cjs", self.folder / "module.cjs", requests], check=True)
        answers = json.loads(pathlib.Path(f"{requests}.answers").read_text())
        return [json.loads(a) for a in answers[len(self.machines) :]]


def check(name, differences):
    assert not differences, f"{name}:\n  " + "\n  ".join(differences[:10])


def check_settings(module, folder, settings):
    texts = module.files["decks"]
    wanted = [program(folder, *arguments_of(s)) for s in settings]
    got = module.ask([["explorer_plan", texts[d], "\n".join(s), m, g] for d, m, g, s in settings])
    for setting, w, g in zip(settings, wanted, got):
        if "error" in w:  # a place in the deck begins with the deck's path, or with "the deck"
            w = {"error": w["error"].replace(f"inputs/{setting[0]}.yaml", "the deck")}
        check(setting, compare(w, g))
    return wanted


def check_facts(module, folder, settings):
    """Memory of the fullest rank, as `forge plan` has it."""
    texts = module.files["decks"]
    got = module.ask([["explorer_facts", texts[d], "\n".join(s), m, g] for d, m, g, s in settings])
    for setting, facts in zip(settings, got):
        plan = program(folder, *arguments_of(setting))
        assert facts["peak_bytes"] == plan["peak_bytes"] and facts["usable_bytes"] == plan["usable_bytes"], setting
        largest = max(facts["memory"]["ranks"], key=lambda r: r["total_bytes"])["bytes"]
        check(setting, compare({**largest, **{a["name"]: a["bytes"] for a in facts["allowances"]}}, plan["memory"]))


def check_decks(module, decks):
    asked = [[module.files["decks"][d], "", "h100_8", 0] for d in decks]
    answers = module.ask([["explorer_facts", *a] for a in asked] + [["explorer_sent", *a] for a in asked])
    for deck, facts, sent in zip(decks, answers, answers[len(decks) :]):
        assert "error" not in facts, f"{deck}: {facts['error']}"
        shown = subprocess.run([forge, "show", f"inputs/{deck}.yaml", "--json"], cwd=root, capture_output=True, check=True)
        wanted = json.loads(shown.stdout)
        check(deck, compare(wanted["deck"], facts["deck"]))
        if facts["experts"] == 0:  # whose groups follow the machine's nodes, of which show knows nothing
            check(deck, compare(wanted["sent"], sent))


def check_config(module, folder):
    """A pasted config.json against `forge plan DIRECTORY`."""
    config = json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "max_position_embeddings": 8192,
    })  # fmt: skip
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(config)
    deck = (
        "model: {hf: model}\ntrain: {steps: 1, global_batch_sequences: 8, sequence_tokens: 2048}\nmesh: {dp_shard: -1}\n"
        "optimizer: {learning_rate: 1e-4}\ndata: {files: [train.bin]}\noutput: {directory: runs/model}\n"
    )
    got = module.ask([["explorer_file", "model/config.json", config], ["explorer_plan", deck, "", "h100_8", 8]])[1]
    check("config.json", compare(program(folder, "plan", folder / "model", "--machine", "h100_8", "--ranks", 8), got))


def check_search(module, folder):
    deck = "7b_8gpu_tp4"
    arguments = ["plan", f"inputs/{deck}.yaml", "--machine", "h100_8", "--ranks", 8, "--search", "--best", 3]
    wanted = program(folder, *arguments)["searches"][0]["best"]
    got = module.ask([["explorer_search", module.files["decks"][deck], "", "h100_8", 8, 3, 1e6]])[0]
    check("search", compare(wanted, got["best"]))


class Browser:
    """A headless Chromium, by its debugging pipe."""

    def __init__(self, chromium, folder):
        there, self.out = os.pipe()
        self.inward, back = os.pipe()

        def on_3_and_4():
            first, second = os.dup(there), os.dup(back)
            os.dup2(first, 3)
            os.dup2(second, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--remote-debugging-pipe"]
        self.process = subprocess.Popen([chromium, *options, "about:blank"], preexec_fn=on_3_and_4, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(there)
        os.close(back)
        self.rest, self.count, self.session = b"", 0, None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.inward, 1 << 16)
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def read(self, page, setting):
        """Numbers that the page shows for a setting, by their names."""
        deck, machine, gpus, settings = setting
        query = urllib.parse.urlencode({"model": deck, "machine": machine, "ranks": gpus, "more": "\n".join(settings)})
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{page.as_uri()}#{query}")
        return self.value("""new Promise((done) => {
          const look = () => document.body && ["done", "problem"].includes(document.body.dataset.state) ? done(Object.fromEntries(
            [...document.querySelectorAll("[data-name]")].map((e) => [e.dataset.name, e.dataset.value]))) : setTimeout(look, 50);
          look();
        })""")

    def close(self):
        self.process.kill()
        self.process.wait()


def check_page(page, folder, settings, plans):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        return print("LEFT OUT: the explorer's page: Chromium is missing; jobscripts/setup.sh --web installs it")
    browser = Browser(chromium, folder)
    try:
        for setting, plan in zip(settings, plans):
            if "error" in plan:
                continue
            shown = browser.read(page, setting)
            got = {k: float(shown[k]) for k in ("step_seconds", "low", "high", "mfu", "hfu")}
            check(f"page of {setting}", compare({k: float(plan[k]) for k in got}, got))
            bytes_of = {n: v for n, v in plan["memory"].items()}
            check(f"page of {setting}", compare(bytes_of, {n: int(shown["memory " + n]) for n in bytes_of}))
            assert int(shown["peak_bytes"]) == plan["peak_bytes"], setting
            check(setting, compare({n: float(v) for n, v in plan["seconds"].items()}, {n: float(shown["seconds " + n]) for n in plan["seconds"]}))
        milliseconds = float(browser.value("document.body.dataset.factsMilliseconds"))
        print(f"explorer: the page shows memory after {milliseconds:.0f} ms")
    finally:
        browser.close()
    return None


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
        decks = list(module.files["decks"])
        small = [d for d in decks if re.search(r"_(8|12|16|24|32)gpu", d)]
        settings = []
        legal = 0
        while legal < (50 if long else 5):
            settings.append(drawn(rng, small))
            legal += "error" not in program(folder, *arguments_of(settings[-1]))
        plans = check_settings(module, folder, settings)
        check_facts(module, folder, [s for s, p in zip(settings, plans) if "error" not in p][:5])
        check_decks(module, decks if long else decks[::8])
        check_config(module, folder)
        check_search(module, folder)
        check_page(page, folder, settings, plans)
        print(f"explorer: {legal} settings as the program plans them, {len(settings) - legal} refused alike")


if __name__ == "__main__":
    main()
