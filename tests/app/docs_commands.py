#!/usr/bin/env python3
"""docs_commands.py FORGE BUILD: the commands of README and docs/ are what the program takes, and what they are said to print is
what it prints. Takes every command of a code block or in backquotes. Runs as typed what ends at once: show, help, gradients,
generate from a model of verify/. Of training it runs `forge show` with the same deck, options and ranks, and gives the
options to a deck that isn't there: what must be complained of is the deck, not the options. Of scripts, tests and programs
it looks whether they are there, and know the options. Needs no network and changes nothing in the checkout."""
import glob, itertools, json, os, re, shlex, subprocess, sys, tempfile

forge, build = (os.path.abspath(path) for path in sys.argv[1:3])
root = os.getcwd()
scratch = tempfile.TemporaryDirectory()
failures, counts, printed = [], {}, {}
WRONG_LINE = re.compile(r"unrecognised option|is invalid|required argument|takes (one|at most|no|the)|neither a verb|"
                        r"exclude each other|must be|legal are|legal is|is no token id|is missing")
NOT_THERE = re.compile(r"cannot open|there is no run|No such file|neither a checkpoint|no problem|has no input\.yaml|cannot be opened|measures products on GPUs")
VERBS = ("train", "gradients", "evaluate", "show", "plan", "replay", "calibrate", "check", "export", "generate", "tokenize", "report", "verify", "verify-checkpoint", "help", "version")
PLACES = ("inputs/", "docs/", "tests/", "jobscripts/", "verify/", "src/", ".ci/")


def fail(where, text):
    failures.append(f"{where}: {text}")


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def run(arguments):
    """Code and output of forge, in a folder that has the checkout's files and nothing else."""
    key = tuple(arguments)
    if key not in printed:
        done = subprocess.run([forge, *arguments], cwd=scratch.name, capture_output=True, text=True, timeout=120)
        printed[key] = done.returncode, done.stdout + done.stderr
    return printed[key]


def flat(text):
    return " ".join(text.split())


def blocks_of(text):
    """Code blocks, indented by four, as lists of lines; each with its place in the text."""
    blocks, lines, start, at = [], [], 0, 0
    for line in text.split("\n") + ["end"]:
        if line.startswith("    "):
            start = at if not lines else start
            lines.append(line[4:])
        elif lines and not line.strip():
            lines.append("")
        elif lines:
            blocks.append((start, lines))
            lines = []
        at += len(line) + 1
    return blocks


FIRST = re.compile(r"^(\$ )?((\w+=\S+ )*)(sudo )?(forge|mpirun|srun|sbatch|ctest|cmake|bash|python3|jobscripts/\S+|tests/\S+|build/\S+)( |$)")


def commands_of(text):
    """(place, command, quoted output) of every command."""
    found = []
    for place, lines in blocks_of(text):
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).split("\n")
        session = any(line.startswith("$ ") for line in joined)  # whose other lines are output
        for i, line in enumerate(joined):
            if session and not line.startswith("$ "):
                continue
            line = re.split(r"\s{2,}|\s#", line.strip())[0].replace("$FORGE_ROOT/", "")
            if FIRST.match(line):
                said = itertools.takewhile(lambda other: not other.startswith("$ "), joined[i + 1:])
                quoted = "\n".join(said) if line.startswith("$ ") else ""
                found.append((place, line.removeprefix("$ "), quoted))
    prose = re.sub(r"(?m)^    .*$", lambda m: " " * len(m.group()), text)
    for span in re.finditer(r"`([^`]+)`", prose):
        line = flat(span.group(1))
        if FIRST.match(line) and " " in line and not re.fullmatch(r"forge [a-z-]+", line):  # a verb by its name
            found.append((span.start(), line, ""))
    return sorted(found)


def substituted(words):
    """Of a command with placeholders, one that could be typed."""
    out = []
    for word in words:
        word = word.strip("[]").replace("TEXT…", "TEXT")
        if word in ("", "…", "PROBLEM…"):
            if out and out[-1] == "--set":
                out.pop()
            continue
        word = {"DECK": "deck.yaml", "N": "2", "RANK": "0", "R": "0", "GPU": "h100-80", "VERB": "show", "NAME|FILE": "h100_8", "DIR": "decks", "X": "1", "STEP": "1", "SECTION": "train", "key=value": "train.steps=1",
                "KEY=VALUE": "train.steps=1"}.get(word, word)
        if word.endswith("…") and out and out[-1] == "--set":
            out.pop()
            continue
        out.append(word.split("|")[0])
    return out


def check_forge(where, words, ranks, quoted):
    typed = substituted(words)
    if typed[0].startswith("--"):  # options of training, without a deck
        typed.insert(0, "none.yaml")
    verb = typed[0] if typed and typed[0] in VERBS else "train"
    there = [word for word in typed if word.endswith(".yaml") and os.path.exists(os.path.join(scratch.name, word))]
    told = verb
    if verb == "train" and any("hf: runs/" in read(word) for word in there):  # of a model that another command makes
        typed, there = ["none.yaml" if word in there else word for word in typed], []
    if verb == "train" and there:
        rest = [word for word in typed if word not in ("train", "--fresh")]
        if "--restart" in rest:
            at = rest.index("--restart")  # alone, or with where from
            del rest[at:at + (2 if rest[at + 1:] and not rest[at + 1].startswith("-") else 1)]
        code, output = run(["show", "--all", "--deck", *rest, *(["--ranks", str(ranks)] if ranks else [])])
        if code != 0:
            fail(where, f"forge show refuses it: {flat(output)}")
        for said in re.findall(r"(?m)^  (?:model|work|batch|memory)  .*", quoted):  # of a run's head what show says, too
            if flat(said) not in flat(output):
                fail(where, f"forge show doesn't say: {said}")
        typed = ["none.yaml" if word in there else word for word in typed]
        told = "train, as show"
    elif verb in ("help", "version", "show", "plan", "replay", "gradients") and (there or verb in ("help", "version")):
        code, output = run(typed)
        small = verb == "replay" and "the deck doesn't fit" in output  # a rank of a GPU's size, on a node with less memory
        if code != (2 if "forge: error" in quoted or small else 0):
            fail(where, f"exit code {code}: {flat(output)[-300:]}")
        if flat(quoted) not in flat(output):
            fail(where, "prints something else than the docs have: " + flat(quoted)[:200])
        counts[verb] = counts.get(verb, 0) + 1
        return
    elif verb == "check":  # of a cluster's deck its options alone; else as typed, but that a busy machine has slow ranks
        code, output = run([*typed, "--slow", "1" if any(word.endswith(".yaml") for word in typed) else "1000"])
        if (code, "nothing slow or wrong" in output) != (0, True) and "--slow must be more than 1" not in output:
            fail(where, f"exit code {code}: {flat(output)[:300]}")
        counts[verb] = counts.get(verb, 0) + 1
        return
    elif "--grid" in typed:  # minutes: up to its models
        at = typed.index("--models") if "--models" in typed else len(typed)
        code, output = run([*typed[:at], *typed[at + 2:], "--models", "none.yaml"])
        if "cannot open the deck none.yaml" not in output:
            fail(where, f"exit code {code}: {flat(output)[:300]}")
        counts[verb] = counts.get(verb, 0) + 1
        return
    elif verb == "calibrate":  # minutes, and other ranks: its options alone
        if "--machine" in typed:
            del typed[typed.index("--machine"):typed.index("--machine") + 2]
        code, output = run([*typed, "none.yaml"])
        if "takes decks, whose collectives it measures, and --machine together" not in output:
            fail(where, f"exit code {code}: {flat(output)[:300]}")
        counts[verb] = counts.get(verb, 0) + 1
        return
    elif "--checkpoint" in typed:
        typed += ["--set", "checkpoint.directory=nowhere"]
    elif verb in ("evaluate", "generate") and there:
        code, output = run(typed)
        if code != 0:
            fail(where, f"exit code {code}: {flat(output)[-300:]}")
    if verb != "verify" or len(typed) > 1:
        code, output = run(typed)
        if WRONG_LINE.search(output) or (code != 0 and not NOT_THERE.search(output)):
            fail(where, f"exit code {code}: {flat(output)[:300]}")
    counts[told] = counts.get(told, 0) + 1


def targets():
    text = "".join(read(path) for path in glob.glob("tests/**/CMakeLists.txt", recursive=True) + ["src/app/CMakeLists.txt"])
    names = set(re.findall(r"add_executable\(\s*([a-z_]+)", text))
    return names | {"test_" + name for name in re.findall(r"forge_(?:kernel_)?test\((\w+)", text)}


def check_program(where, words):
    name = os.path.basename(words[0])
    if name not in targets():
        fail(where, f"no CMakeLists.txt makes {name}")
    for word in words[1:]:
        if word.startswith("--gtest_filter="):
            suite = re.split(r"[.*/]", word.split("=")[1].removeprefix("-"))[0]
            if not re.search(rf"TEST(_\w+)?\({suite}\b", "".join(read(p) for p in glob.glob("tests/**/*.cpp", recursive=True))):
                fail(where, f"no test is called {suite}")


def check_ctest(where, words):
    if "--test-dir" in words:
        at = words.index("--test-dir") + 1
        if words[at] != "build/cpu":
            return
        del words[at - 1:at + 1]
    listed = subprocess.run([*words, "-N", "--test-dir", build], capture_output=True, text=True).stdout
    if not re.search(r"Total Tests: [1-9]", listed):
        fail(where, "no test of this build is meant")


def check_cmake(where, words):
    presets = {p["name"] for p in json.loads(read("CMakePresets.json"))["configurePresets"]}
    for i, word in enumerate(words):
        if word == "--preset" and words[i + 1] not in presets:
            fail(where, f"no preset {words[i + 1]}")
        if word.startswith("-DFORGE_") and word[2:].split("=")[0] not in read("CMakeLists.txt"):
            fail(where, f"no option {word}")


def check_script(where, words):
    path = words[0]
    if not os.path.exists(path):
        return fail(where, f"there is no {path}")
    if path.endswith(".sh") and not os.access(path, os.X_OK):
        fail(where, f"{path} is not executable")
    own = words[1:words.index("--")] if "--" in words else words[1:]  # what follows is another program's
    for word in own:
        if word.startswith("--") and word.split("=")[0] not in read(path):
            fail(where, f"{path} doesn't know {word}")


def check_command(where, line, quoted):
    for part in re.split(r" (?:&&|;) ", line):
        words = shlex.split(part)
        while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[0] == "sudo"):
            name = words.pop(0).split("=")[0]
            if name.startswith("FORGE_") and subprocess.run(["grep", "-rqF", name, "src", "tests", "jobscripts"]).returncode:
                fail(where, f"nothing reads {name}")
        for word in words:
            if word.startswith(PLACES) and not glob.glob(word):
                fail(where, f"there is no {word}")
        ranks = 0
        if words[0] in ("mpirun", "srun"):
            options = words[:next((i for i, w in enumerate(words) if os.path.basename(w) == "forge"), len(words))]
            if len(options) == len(words):
                continue
            value = lambda name: next((int(options[i + 1]) for i, w in enumerate(options) if w == name), 0)
            per_node = next((int(w.split("=")[1]) for w in options if w.startswith("--ntasks-per-node=")), 0)
            ranks = value("-n") or value("-N") * per_node  # 0: an allocation says it
            words = words[len(options):]
        elif words[0] in ("sbatch", "bash", "python3"):
            at = next((i for i, w in enumerate(words) if w.endswith((".sh", ".py"))), 0)
            if at:
                check_script(where, words[at:])
            words = ["forge", *words[at + 1:]] if at and words[0] == "sbatch" and at + 1 < len(words) else []
            words = [w for w in words if not w.endswith(".sif")]
        if not words:
            counts["scripts"] = counts.get("scripts", 0) + 1
        elif os.path.basename(words[0]) == "forge":
            check_forge(where, words[1:], ranks, quoted)
        else:
            counts["scripts"] = counts.get("scripts", 0) + 1
            if words[0] == "ctest":
                check_ctest(where, words)
            elif words[0] == "cmake":
                check_cmake(where, words)
            elif words[0].startswith("build/"):
                check_program(where, words)
            elif words[0].startswith(("tests/", "jobscripts/")):
                check_script(where, words)


def check_excerpts(doc, text, commands):
    """Blocks that quote a part of what the show command before them prints."""
    for place, lines in blocks_of(text):
        if not lines[0].strip().startswith(("group ", "mesh of ")):
            continue
        before = [line for at, line, _ in commands if at < place and re.match(r"forge show --all inputs/", line)]
        output = flat(run(shlex.split(before[-1])[1:])[1]) if before else ""
        for line in filter(None, map(flat, lines)):
            if line not in output:
                fail(doc, f"`{before[-1] if before else '?'}` doesn't print: {line}")
        counts["excerpts"] = counts.get("excerpts", 0) + 1


# Tables of figures: the header's line, and the arguments that a row's first cell stands for.
HSDP, PP4 = "show --all inputs/7b_32gpu_hsdp.yaml --set train.zero_stage=", "show --all inputs/70b_32gpu_tp4_pp4.yaml --set train.recompute=none"
BY_SCHEDULE = PP4 + " --set train.global_batch_sequences=16 --set schedule.name="
BY_EP = "show --all inputs/moe_32gpu.yaml --set mesh.ep={} --set mesh.etp={}"
TABLES = [
    ("docs/notes/bytes.md", "| | gradients | gradient_shards | gradient_replicas | parameter_shards | sum |", {
        "zero_stage 0": HSDP + "0", "1": HSDP + "1", "2, and 1 with `accumulate: sharded`": HSDP + "2", "3 (the deck)": HSDP + "3",
        "3 with `gather: step`": HSDP + "3 --set train.gather=step"}),
    ("docs/notes/bytes.md", "| zero_stage | parameters | gradients | optimizer | peak |", {str(z): HSDP + str(z) for z in range(4)}),
    ("docs/notes/bytes.md", "| pp 4, M 8, no recompute | idle, equal stages | activations, largest rank | peak, largest rank | pp bytes |", {
        "gpipe": BY_SCHEDULE + "gpipe", "1f1b": BY_SCHEDULE + "1f1b",
        "interleaved, 2 chunks": BY_SCHEDULE + "interleaved --set schedule.virtual_stages=2",
        "zero_bubble": BY_SCHEDULE + "zero_bubble", "zb_v": BY_SCHEDULE + "zb_v"}),
    ("docs/notes/bytes.md", "| ep x etp | edp | a rank has | ep | etp | peak |", {
        "1 x 4": BY_EP.format(1, 4), "2 x 4": BY_EP.format(2, 4), "2 x 1 (the deck)": BY_EP.format(2, 1), "4 x 2": BY_EP.format(4, 2), "8 x 1": BY_EP.format(8, 1)}),
]
FIGURE = re.compile(r"\d[\d,]{4,}|\d+\.\d+ (?:GiB|TiB|%)")


def check_table(doc, header, rows):
    text = read(doc)
    lines = text[text.index(header):].split("\n\n")[0].split("\n")[2:] if header in text else []
    if len(lines) != len(rows):
        fail(doc, f"{len(lines)} rows, not {len(rows)}, below {header}")
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] not in rows:
            fail(doc, f"no command is known for the row {cells[0]}")
            continue
        output = run(rows[cells[0]].split())[1]
        figures = [figure.replace(",", "") for cell in cells[1:] for figure in FIGURE.findall(cell)]
        if header.endswith("| sum |"):
            total = int(figures.pop())
            if total != sum(map(int, figures)):
                fail(doc, f"the sum of {line} is another")
        for figure in figures:
            if figure not in output:
                fail(doc, f"forge {rows[cells[0]]} doesn't print {figure}")
        counts["figures"] = counts.get("figures", 0) + len(figures)


# Blocks of Python: by their first line, what holds behind them, and the picture that they write.
PYTHON_BLOCKS = {
    "import pandas": ("list(steps.step) == [1, 2, 3, 4] and held_out.step.max() == 4 and steps.loss.notna().all()", "loss.png"),
    "import h5py": ("weights.shape == (48, 32) and weights.std() > 0", "weights.png"),
    "import torch": ("likely.shape == (256,) and abs(likely.sum() - 1) < 1e-5", "next.png"),
}


def check_python_blocks():
    """Runs those of running.md on a training of the quickstart with a smaller model and few steps."""
    blocks = {lines[0]: lines for _, lines in blocks_of(read("docs/running.md")) if lines[0].startswith(("import ", "from "))}
    if blocks.keys() != PYTHON_BLOCKS.keys():
        return fail("docs/running.md", f"blocks of Python begin with {list(blocks)}, not {list(PYTHON_BLOCKS)}")
    with tempfile.TemporaryDirectory() as here:
        os.makedirs(os.path.join(here, "data/quickstart"))
        for name in ("train", "validation"):
            with open(os.path.join(here, f"data/quickstart/{name}.bin"), "wb") as file:
                file.write(b"".join((i * i % 251).to_bytes(2, "little") for i in range(2000)))
        settings = ("model.layers=1 model.width=32 model.heads=2 model.kv_heads=1 model.ffn=48 train.steps=4 train.validate_every_steps=2 optimizer.warmup_steps=1 "
                    "train.validation_sequences=4 train.sequence_tokens=32 output.sample_tokens=4 machine.threads=1 machine.peak_tflops=1").split()
        done = subprocess.run([forge, os.path.join(root, "inputs/quickstart.yaml"), *[word for one in settings for word in ("--set", one)]], cwd=here,
                              capture_output=True, text=True, timeout=120)
        if done.returncode:
            return fail("docs/running.md", f"the quickstart with {settings}: {done.stdout + done.stderr}")
        for first, (holds, picture) in PYTHON_BLOCKS.items():
            code = "\n".join(blocks[first]).replace("step_00001800", "step_00000004") + f"\nassert {holds}\n"
            done = subprocess.run([os.environ.get("PYTHON", sys.executable), "-c", code], cwd=here, env={**os.environ, "MPLBACKEND": "Agg"}, capture_output=True, text=True)
            lacks = re.search(r"No module named '(\w+)'|requires the (\w+) library", done.stderr)
            drawn = os.path.join(here, picture)
            if done.returncode and lacks:
                print(f"LEFT OUT: the block `{first}` of docs/running.md: Python has no package {lacks[1] or lacks[2]} (PYTHON names a Python that has it)")
            elif done.returncode or not (os.path.exists(drawn) and os.path.getsize(drawn) > 5000):
                fail("docs/running.md", f"the block `{first}`: {done.stderr[-500:] or 'no ' + picture}")
            else:
                counts["python"] = counts.get("python", 0) + 1


def main():
    for name in ("inputs", "docs", "tests", "jobscripts", "verify", "src"):
        os.symlink(os.path.join(root, name), os.path.join(scratch.name, name))
    for verb in VERBS:  # examples of help
        examples = run([verb, "--help"])[1].partition("for example:")[2].split("options:")[0]
        for line in examples.split("\n"):
            if line.strip():
                check_command(f"forge {verb} --help: {line.strip()}", line.strip(), "")
    docs = ["README.md", "inputs/README.md", "verify/README.md", *sorted(glob.glob("docs/**/*.md", recursive=True)), *sorted(glob.glob("tests/*/README.md"))]
    for doc in docs:
        text = read(doc)
        commands = commands_of(text)
        for place, line, quoted in commands:
            check_command(f"{doc}:{text.count(chr(10), 0, place) + 1}: {line}", line, quoted)
        check_excerpts(doc, text, commands)
    for table in TABLES:
        check_table(*table)
    check_python_blocks()
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    # What there was when this was written, less a little: an extraction that finds nothing must not pass.
    for kind, least in {"show": 12, "train, as show": 6, "generate": 3, "scripts": 35, "excerpts": 4, "figures": 50}.items():
        if counts.get(kind, 0) < least:
            fail("docs", f"only {counts.get(kind, 0)} of kind {kind} were found, at least {least} were expected")
    for failure in failures:
        print("FAILED:", failure, file=sys.stderr)
    sys.exit(bool(failures))


main()
