#!/usr/bin/env python3
"""compare_steps.py FORGE: what `forge plan` says of steps on one GPU that were measured by tests/gpu/steps.py (models of tests/benchmark/models.py), as
rows of the table in docs/notes/planner.md; each must stand there."""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/benchmark")
from compare import Forge

PAGE = "docs/notes/planner.md"
H100, H200 = "h100_8", "h200_4"
STEPS = [  # model, what it is, precision, machine, ms measured
    ("gpt2_size", "GPT-2's size", "bf16", H200, 64.85), ("llama_1b", "Llama 1B", "bf16", H200, 258.56),
    ("7b_8layers_4k", "8 layers of a 7B model", "bf16", H200, 212.31), ("7b_8layers_4k", "the same", "bf16", H100, 224.2),
    ("7b_8layers_4k", "the same in FP8", "fp8", H200, 180.80), ("7b_3layers_32k", "3 layers, T 32,768", "bf16", H200, 447.42),
    ("olmoe_4layers", "4 layers of OLMoE", "bf16", H200, 91.74), ("qwen3_30b_4layers", "4 layers of Qwen3-30B-A3B", "bf16", H200, 83.39),
    ("qwen3_30b_4layers", "the same", "bf16", H100, 96.6), ("tiny", "4.7 M", "bf16", H200, 1.49),
    ("qwen25_7b_llmq", "Qwen2.5-7B, states in bf16", "bf16", H200, 5325)]


def predicted_ms(forge, model, precision, machine):
    with tempfile.TemporaryDirectory() as folder:
        deck, told = pathlib.Path(folder, "deck.yaml"), pathlib.Path(folder, "told.csv")
        deck.write_text(Forge(forge, model, precision, 1, folder).deck(1))
        asked = pathlib.Path(folder, "asked.csv")
        asked.write_text("train.seed\n1\n")
        command = [forge, "plan", deck, "--machine", machine, "--ranks", "1", "--candidates", asked, "--output", told]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        names, row = (line.split(",") for line in told.read_text().splitlines())
        return 1e3 * float(row[names.index("step_seconds")])


def main():
    page, missing = pathlib.Path(PAGE).read_text(), 0
    for model, name, precision, machine, measured in STEPS:
        predicted = predicted_ms(sys.argv[1], model, precision, machine)
        row = f"| {name} | {machine[:4].upper()} | {measured:,.5g} | {predicted:,.5g} | {100 * (predicted / measured - 1):+.1f} % |"
        missing += row not in page
        print(row, "" if row in page else f" isn't in {PAGE}")
    sys.exit(missing > 0)


if __name__ == "__main__":
    main()
