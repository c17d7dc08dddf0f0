#!/usr/bin/env python3
"""tune.py FORGE: forge tune writes an algorithm for each product of a step, and machine.product_algorithms takes those; a wrong file is refused."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FORGE = os.path.abspath(sys.argv[1])
DECK = """
model: {layers: 2, width: 32, heads: 2, ffn: 48, vocabulary: 96}
train: {steps: 2, global_batch_sequences: 4, sequence_tokens: 32, precision: fp32}
optimizer: {learning_rate: 1e-2, schedule: constant}
data: {files: [%s], dtype: uint16}
output: {directory: %s}
machine: {workspace_mib: 4, peak_tflops: 1}
"""
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text, file=sys.stderr)


def forge(*arguments):
    done = subprocess.run([FORGE, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def entries(text):
    return dict(re.findall(r"(?m)^([^#\n]+?) = ([0-9a-f]{128}), [\d.]+ us, first [\d.]+ us$", text))


def losses(deck, run, *settings):
    code, output = forge("train", deck, "--set", f"output.directory={run}", *settings)
    expect(code == 0, f"training with {settings}: {output[-500:]}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] if code == 0 else []
    return [line["loss"] for line in lines if "loss" in line]


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "tokens.bin").write_bytes(bytes(b for i in range(4096) for b in (i * i % 89, 0)))
        deck, table, other = work / "deck.yaml", work / "table", work / "other"
        deck.write_text(DECK % (work / "tokens.bin", work / "run"))
        code, output = forge("tune", deck, "--output", table)
        expect(code == 0 and "shapes of products" in output, f"tune: {output[-500:]}")
        text = table.read_text()
        found = entries(text)
        expect(len(found) == text.count(" us, first ") >= 9, f"entries: {text[:500]}")
        for kind in (" NT ", " NN ", " TN "):
            expect(any(kind in shape for shape in found), f"a product{kind}: {list(found)}")

        # The heuristic's own choices, and each product's other algorithm, which the emulated library sums in another order.
        plain = losses(deck, work / "plain")
        tuned = losses(deck, work / "tuned", "--set", f"machine.product_algorithms={table}")
        expect(len(plain) == 2 and all(abs(a - b) < 1e-5 for a, b in zip(plain, tuned)), f"losses: {plain}, {tuned}")
        swapped = text
        for shape, words in found.items():
            # Words: the problem, its workspace, splits of the inner dimension, alignments.
            problem, splits = int(words[:16], 16), int(words[32:48], 16)
            m, n = re.search(r"(\d+)x(\d+)/\d+ aligned", shape).groups()
            parts = 1 if splits > 1 else 2 + problem % 3
            space = 256 if parts == 1 else parts * int(m) * int(n) * 4
            swapped = swapped.replace(words, f"{words[:16]}{space:016x}{parts:016x}{words[48:]}")
        expect(swapped != text, "no algorithm was swapped")
        other.write_text(swapped)
        swapped_losses = losses(deck, work / "swapped", "--set", f"machine.product_algorithms={other}")
        expect(swapped_losses != tuned and all(abs(a - b) < 1e-5 for a, b in zip(swapped_losses, tuned)),
               f"losses with other algorithms: {swapped_losses}, {tuned}")

        def refused(wrong, message):
            other.write_text(wrong)
            code, output = forge("train", deck, "--set", f"output.directory={work}/wrong", "--set", f"machine.product_algorithms={other}")
            expect(code == 2 and message in output and "machine.product_algorithms" in output, f"exit code {code}, not '{message}': {output[-600:]}")

        refused(re.sub(r"(?m)^library .*", "library cuBLASLt 1", text), "other:2: 'library cuBLASLt 1': this rank's is \"library cuBLASLt")
        refused(re.sub(r"(?m)^device .*", "device Other", text), "legal: a file that forge tune wrote for both")
        refused(text.replace(" us, first ", " us, ", 1), "128 hexadecimal digits")
        refused("", "ends before its lines of library and device")
        words = next(iter(found.values()))
        refused(text.replace(words, "f" * 128), "is none of this library for such products")
        large = re.sub(r"= ([0-9a-f]{16})[0-9a-f]{16}", lambda m: f"= {m[1]}{1 << 30:016x}", text)
        refused(large, "takes a workspace of 1073741824 bytes, and machine.workspace_mib gives 4194304")
        refused_code, output = forge("train", deck, "--set", "machine.product_algorithms=/nowhere")
        expect(refused_code == 2 and "/nowhere" in output, f"a file that is not there: {output[-300:]}")
    print(f"{len(found)} products; {len(failures)} failures")
    sys.exit(bool(failures))


main()
