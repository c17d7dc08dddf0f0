#!/usr/bin/env python3
"""troubleshooting.py FORGE: provokes what "When something is wrong" of docs/running.md tells of, and looks for each of its lines, but
for their figures and folders, in what forge prints. Commands of the page are run by docs_commands.py."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

FORGE = os.path.abspath(sys.argv[1])
PAGE = "docs/running.md"
DECK = """model: {{layers: 4, width: 32, heads: 4, ffn: 48, vocabulary: 256}}
train: {{steps: 8, global_batch_sequences: 8, microbatch_sequences: 1, sequence_tokens: 32, precision: fp32}}
optimizer: {{learning_rate: 1e-3}}
data: {{files: [{0}/train.bin], dtype: uint16}}
output: {{directory: {0}/run, every_steps: 1}}
checkpoint: {{directory: {0}/saved, every_steps: 4}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 20, deadline_seconds: 5}}
"""
EXPERTS = ["model.family=mixtral", "model.experts=8", "model.experts_per_token=2", "model.expert_ffn=24"]


def sets(*keys):
    return [word for key in keys for word in ("--set", key)]


def run(arguments, code, ranks=1, fault="", ends_by=None):
    launcher = ["tests/mpirun.sh", str(ranks)] if ranks > 1 else []
    environment = {**os.environ, **({"FORGE_FAULT": fault} if fault else {})}
    process = subprocess.Popen([*launcher, FORGE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    output = ""
    if ends_by:
        for line in process.stdout:
            output += line
            if " 2/" in line:
                process.send_signal(ends_by)
                break
    output += process.communicate(timeout=120)[0]
    output = output.replace("exited on\nsignal", "exited on signal")  # Open MPI 5 breaks its lines
    if code is not None and process.returncode != code:
        sys.exit(f"FAILED: {arguments}: code {process.returncode}, not {code}: {output[-500:]}")
    return output


def provoked(work):
    deck = work / "deck.yaml"
    deck.write_text(DECK.format(work))
    run(["tokenize", "docs/running.md", "--output", work / "train.bin"], 0)
    deck, fresh = str(deck), [str(deck), "--fresh"]
    yield run([deck, "--restart", "latest"], 3)
    yield run([deck], 0)
    yield run([deck], 2)
    yield run([deck, "--restart", "latest", *sets("model.width=64")], None)
    yield run([*fresh, *sets("mesh.pp=4"), "--ranks", "2"], 2)
    yield run([*fresh, *sets("mesh.tp=3")], 2)
    yield run([*fresh, *sets("data.files=[nothere.bin]")], 2)
    yield run([*fresh, *sets("mesh.pp=2")], 86, ranks=2, fault="stop:1:3")
    yield run([*fresh, *sets("mesh.pp=2")], None, ranks=2, fault="kill:1:3")
    yield run(fresh, 4, fault="nan:0:3")
    yield run([*fresh, *sets(*EXPERTS)], 0)
    yield run([*fresh, *sets("train.steps=100000")], 75, ends_by=signal.SIGTERM)
    for shown in ("7b_1gpu", "70b_32gpu_tp4_pp4"):
        yield run(["show", f"inputs/{shown}.yaml", "--gpu", "h100-80"], 0)
    yield run(["plan", "inputs/7b_4gpu.yaml", "--machine", "h200_4"], 0)


def plain(line):
    """Without figures, folders and machines: those of the page are of another run."""
    line = re.sub(r"\S*/(?=saved)", "", line)
    line = re.sub(r"(working directory, )\S+", r"\1here", line)
    line = line.replace("prterun noticed", "mpirun noticed")  # Open MPI 5
    line = re.sub(r"(answer from|on node) [\w.-]+", r"\1 node", line)
    return " ".join(re.sub(r"-?\d[\d.,]*(e[+-]\d+)?%?", "#", line).split())


def main():
    with tempfile.TemporaryDirectory() as folder:
        printed = {plain(line) for output in provoked(pathlib.Path(folder)) for line in output.splitlines()}
    lines = []
    text = pathlib.Path(PAGE).read_text().split("\n## When something is wrong\n")[1].split("\n## ")[0]
    for line in text.splitlines():
        is_code = line.startswith("    ")
        command = re.match(r"    (\$ )?(build/|forge (show|plan) )", line)
        if is_code and not command:
            lines.append(line)
    missing = [line for line in lines if plain(line) not in printed]
    for line in missing:
        print("FAILED: nothing printed:", line.strip())
    print(f"{len(lines)} lines of {PAGE}, {len(missing)} not provoked")
    sys.exit(bool(missing) or len(lines) < 20)


main()
