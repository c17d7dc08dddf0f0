#!/usr/bin/env python3
"""compare_megatron.py FORGE RUNS.csv… [--as PROGRAM] [--machine MACHINE]: published times of iterations of Megatron's GPT models on A100s
(vTrain, MIT licence) against what `forge plan --as PROGRAM` says of their layouts. What was recomputed is not
published; selective fits. Columns: "# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length", tensor, data and
pipeline "parallelism", "iteration time (ms)"."""
import argparse
import csv
import os
import statistics
import subprocess
import tempfile

DECK = """
model: {family: gpt2, layers: 24, width: 1024, heads: 16, ffn: 4096, vocabulary: 51200, max_positions: 2048, norm: layernorm,
        activation: gelu_tanh, positions: learned, qkv_bias: true, attention_out_bias: true, mlp_bias: true, tied_embeddings: true}
train: {steps: 1, global_batch_sequences: 16, sequence_tokens: 1024, recompute: selective}
optimizer: {learning_rate: 1e-4}
data: {files: [none.bin], dtype: uint16}
output: {directory: none}
"""
KEYS = {"model.layers": "# layers", "model.width": "hidden size", "model.heads": "attention heads", "train.sequence_tokens": "sequence length",
        "mesh.pp": "pipeline parallelism", "mesh.dp_replicate": "data parallelism", "mesh.tp": "tensor parallelism",
        "train.microbatch_sequences": "micro batch", "train.global_batch_sequences": "global batch"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("forge")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--as", dest="program", default="megatron")
    parser.add_argument("--machine", default="a100_8")
    options = parser.parse_args()
    for path in options.runs:
        rows = [{key.strip(): value for key, value in row.items()} for row in csv.DictReader(open(path))]
        with tempfile.TemporaryDirectory() as work:
            deck, asked, told = (os.path.join(work, name) for name in ("deck.yaml", "asked.csv", "told.csv"))
            with open(deck, "w") as file:
                file.write(DECK)
            with open(asked, "w", newline="") as file:
                table = csv.writer(file)
                table.writerow([*KEYS, "mesh.dp_shard", "model.ffn", "model.max_positions", "train.head_chunk_rows"])
                for row in rows:
                    table.writerow([*(row[column] for column in KEYS.values()), 1, 4 * int(row["hidden size"]), row["sequence length"],
                                    int(row["micro batch"]) * int(row["sequence length"])])
            subprocess.run([options.forge, "plan", deck, "--machine", options.machine, "--as", options.program, "--candidates", asked,
                            "--output", told], check=True, stdout=subprocess.DEVNULL)
            predicted = [float(row["step_seconds"]) if row["legal"] == "true" else None for row in csv.DictReader(open(told))]
        ratios = [1e3 * seconds / float(row["iteration time (ms)"]) for row, seconds in zip(rows, predicted) if seconds]
        errors = sorted(abs(ratio - 1) for ratio in ratios)
        print(f"{os.path.basename(path)}: {len(rows)} runs, {len(rows) - len(ratios)} not legal in forge; error median "
              f"{statistics.median(errors):.1%}, 90th percentile {errors[int(0.9 * (len(errors) - 1))]:.1%}, median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
