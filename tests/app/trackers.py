#!/usr/bin/env python3
"""trackers.py FORGE: event files say what metrics.jsonl says, over restarts, too; read by their format, and by TensorBoard where it is."""
import array
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import event_files

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "jobscripts"))
import track

FORGE = os.path.abspath(sys.argv[1])
DECK = """model: {family: mixtral, layers: 2, width: 16, heads: 2, ffn: 32, vocabulary: 256, experts: 4, experts_per_token: 2, moe_every: 2}
train: {steps: 12, global_batch_sequences: 2, microbatch_sequences: 2, sequence_tokens: 32, validate_every_steps: 4}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {sources: [{name: web, files: [tokens.bin], weight: 3}, {name: code, files: [code.bin], weight: 1}], dtype: uint16, validation_files: [tokens.bin]}
output: {directory: run, tensorboard: true, sample_prompt: "a <b>", sample_tokens: 4, every_steps: 4, norms_every_steps: 3}
checkpoint: {directory: saved, every_steps: 4, keep_last: 9}
machine: {threads: 1, peak_tflops: 1}
"""
KEYS = {"train/loss": "loss", "train/total_loss": "total_loss", "train/grad_norm": "grad_norm", "train/learning_rate": "learning_rate",
        "train/tokens": "tokens", "perf/tokens_per_second": "tokens_per_second", "perf/mfu": "mfu", "perf/step_seconds": "step_seconds",
        "perf/peak_bytes": "peak_bytes", "validation/loss": "validation_loss", "validation/perplexity": "validation_perplexity"}
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what)


def forge(*arguments):
    done = subprocess.run([FORGE, *arguments], capture_output=True, text=True)
    expect(done.returncode == 0, f"forge {' '.join(arguments)}: {(done.stdout + done.stderr)[-400:]}")


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def files():
    return sorted(pathlib.Path("run/tensorboard").iterdir())


def check_values(count, last):
    """`count` files, which say what metrics.jsonl says up to step `last`."""
    lines = [json.loads(line) for line in open("run/metrics.jsonl")]
    expect(len(files()) == count, f"{len(files())} files, not {count}")
    values = {}
    for path in files():
        event_files.read(path, values)
    for tag, key in KEYS.items():
        expected = [(line["step"], single(line[key])) for line in lines if key in line]
        told = values.get(tag, [])
        expect([step for step, _ in told] == [step for step, _ in expected] and expected[-1][0] == last, f"steps of {tag}: {told}")
        expect(all(abs(a - b) <= 1e-6 * abs(b) for (_, a), (_, b) in zip(told, expected)), f"{tag}: {told}, not {expected}")
    routers = {line["step"]: line["experts"][0] for line in lines if "experts" in line}
    loads = values["experts/load/layer_1"]
    expect([step for step, _ in loads] == list(range(4, last + 1, 4)), f"histograms of steps {[step for step, _ in loads]}")
    for step, load in loads:
        expect(load["num"] == sum(load["counts"]) == 2 * 32 * 2 and load["limits"] == [1, 2, 3, 4], f"step {step}: {load}")
        expect(max(load["counts"]) * 4 / load["num"] == routers[step]["load_max"], f"step {step}: {load}, {routers[step]}")
        expect(load["sum"] == sum(n * (i + 0.5) for i, n in enumerate(load["counts"])), f"step {step}: the sum of {load}")
    expect([v for _, v in values["experts/load_max"]] == [single(r["load_max"]) for r in routers.values()], "the largest load")
    expect({v for _, v in values["perf/forced_balance"]} == {0}, "forced balance")
    expect({v for _, v in values["perf/sequences"]} == {2}, "sequences of a step")
    check_names(lines, values)
    deck = "\n".join("    " + line for line in pathlib.Path("run/deck.yaml").read_text().split("\n"))
    expect(values["deck"][-1][1] == deck, f"the deck: {values['deck'][-1]}")
    sample = pathlib.Path("run/log.txt").read_text().split("sample (temperature 0.70):\n")[-1]
    expect(values["sample"][-1] == (last, "    " + sample[:-1].replace("\n", "\n    ")), f"the sample: {values['sample']}, not {sample!r}")
    return values


def check_names(lines, values):
    """Names and values are those that track.py gives W&B, but for histograms and texts."""
    run, named = pathlib.Path("run"), {}
    facts = track.facts_of(track.deck_of(run), track.job_of(run))
    for line in lines:
        for name, value in track.figures_of(line, facts).items():
            if not math.isnan(value):
                named.setdefault(name, []).append((line["step"], single(value)))
    scalars = {name for name in values if not name.startswith("experts/load/") and name not in ("deck", "sample")}
    expect(scalars == set(named) and {"sources/code/loss", "norms/embedding/update"} < scalars, f"names: {scalars ^ set(named)}")
    for name in scalars & set(named):
        far = [(a, b) for a, b in zip(values[name], named[name]) if a[0] != b[0] or abs(a[1] - b[1]) > 1e-5 * abs(b[1])]
        expect(len(values[name]) == len(named[name]) and not far, f"{name}: {far[:3]}, {len(values[name])} and {len(named[name])} values")


def check_with_tensorboard(values):
    """The same by TensorBoard's own reader."""
    try:
        from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    except ImportError:
        return print("LEFT OUT: TensorBoard's own reader: no package tensorboard here")
    reader = event_accumulator.EventAccumulator("run/tensorboard", size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    reader.Reload()
    tags = reader.Tags()
    for tag in tags["scalars"]:
        expect([(e.step, e.value) for e in reader.Scalars(tag)] == values[tag], f"{tag} of TensorBoard")
    loads = [(e.step, list(e.histogram_value.bucket)) for e in reader.Histograms("experts/load/layer_1")]
    expect(loads == [(step, load["counts"]) for step, load in values["experts/load/layer_1"]], "histograms of TensorBoard")
    # The older reader drops no texts at a start.
    newer = plugin_event_accumulator.EventAccumulator("run/tensorboard", tensor_size_guidance={"text": 0})
    newer.Reload()
    texts = [e.tensor_proto.string_val[0].decode() for e in newer.Tensors("deck")]
    expect(texts == [text for _, text in values["deck"]], "texts of TensorBoard")
    expect(set(tags["scalars"]) | set(tags["histograms"]) | set(tags["tensors"]) == set(values), f"tags of TensorBoard: {tags}")


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        random.seed(5)
        array.array("H", random.choices(range(256), k=4000)).tofile(open("tokens.bin", "wb"))
        array.array("H", random.choices(range(256), k=2000)).tofile(open("code.bin", "wb"))
        pathlib.Path("deck.yaml").write_text(DECK)
        forge("deck.yaml")
        check_values(1, 12)
        forge("deck.yaml", "--restart", "--set", "train.steps=14")
        check_values(2, 14)
        # Behind step 8 again: what the first two starts have said of later steps counts no more.
        forge("deck.yaml", "--restart", "saved/step_00000008", "--set", "train.steps=16")
        check_with_tensorboard(check_values(3, 16))
        forge("deck.yaml", "--fresh")
        check_values(1, 12)
        expect(len(list(pathlib.Path("run/tensorboard.1").iterdir())) == 3, "event files of the run before are moved aside")
        shutil.rmtree("run")
        forge("deck.yaml", "--fresh", "--set", "output.tensorboard=false")
        expect(not pathlib.Path("run/tensorboard").exists(), "event files without the key")
        os.chdir("/")
    print(f"{len(failures)} failures")
    sys.exit(bool(failures))


main()
