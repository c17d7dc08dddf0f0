#!/usr/bin/env python3
"""choosing.py FORGE: the predicted tokens a second and GPU, and the memory, in the tables and sentences of docs/choosing.md, docs/parallelism.md
and docs/notes/layouts.md and kernels.md are what forge plan says. By deck and machine, rows of keys; each figure must stand in one of the pages."""
import csv
import os
import subprocess
import sys
import tempfile

FORGE = os.path.abspath(sys.argv[1])
S, R, TP, PP, Z = "mesh.dp_shard", "mesh.dp_replicate", "mesh.tp", "mesh.pp", "train.zero_stage"
NAME, MICROBATCH, DISPATCH = "schedule.name", "train.microbatch_sequences", "model.dispatch"
RECOMPUTE, BLOCKS = "train.recompute", "train.recompute_full_layers"
ALONE = {"train.overlap": "none"}
FABRIC = [{}, {S: 8, R: 2}, {S: 8, PP: 2}, {S: 2, TP: 8}, {S: 1, TP: 16}]
ROWS = [
    ("7b_4gpu", "h200_4", [*({RECOMPUTE: r} for r in ("none", "[activations]", "selective", "full")), {RECOMPUTE: "selective", BLOCKS: 8}, {TP: 4, S: 1}, {S: 8}], 5),
    ("qwen3_235b_256gpu", "h100_8", [{RECOMPUTE: "selective", BLOCKS: 1}, {RECOMPUTE: "full"}], 1),
    ("7b_8gpu_tp4", "h200_4", [{}], 0), ("13b_8gpu", "h200_4", [{}], 0), ("7b_1gpu", "h200_4", [{}], 0),
    ("13b_16gpu_tp4", "h200_4", [{}, {TP: 1, S: 16}], 0), ("13b_32gpu_tp4", "h200_4", [{}, {TP: 1, S: 32}], 0),
    ("70b_32gpu_tp4", "h200_4", [{}], 0),
    ("70b_32gpu_tp4_pp4", "h200_4", [{}, {NAME: "interleaved", "schedule.virtual_stages": 4}, {NAME: "zb_v"},
                                     {"train.global_batch_sequences": 64}], 0),
    ("7b_16gpu_adamw", "h100_8", FABRIC + [{Z: 1}, {Z: 2}, {Z: 3}], 0), ("7b_16gpu_adamw", "h100_8_efa", FABRIC, 0),
    ("7b_16gpu_adamw", "h100_8_ethernet", FABRIC + [{"train.gather": "step"}], 0),
    ("qwen3_30b_16gpu", "h100_8", [{}, *({DISPATCH: d, **ALONE, RECOMPUTE: "none", BLOCKS: 0} for d in ("all_to_all", "automatic", "all_gather"))], 0),
    *((deck, "h100_8", [{DISPATCH: d} for d in ("all_to_all", "automatic")], 0) for deck in ("deepseek_v3_1024gpu", "qwen3_235b_256gpu", "kimi_k2_512gpu")),
    ("qwen3_30b_16gpu_fsdp", "h100_8", [{}], 0),
    ("7b_32gpu_fsdp", "h100_8", [{MICROBATCH: b} for b in (1, 2, 4, 8)], 0),
    ("moe_32gpu", "h200_4", [{}, {"mesh.etp": 4}], 0), ("moe_32gpu_shards", "h200_4", [{}], 0), ("70b_32gpu", "h200_4", [{}], 1),
    ("llama3_405b_256gpu", "h100_8", [{}, {Z: 2}], 0), ("playbook_80b_256gpu", "h100_8", [{}, {Z: 2}], 0),
    ("olmoe_8gpu", "h100_8", [{}, {"mesh.ep": 1}], 0), ("70b_32gpu_tp4", "h200_4", [{"train.reduction": "two_level"}], 0), ("7b_1gpu", "h100_8", [{}], 0),
    *((deck, "h100_8", [{}, ALONE], 0) for deck in ("qwen3_235b_256gpu", "llama3_405b_1024gpu", "deepseek_v3_1024gpu_vp4", "olmoe_8gpu")),
    ("deepseek_v3_1024gpu_vp4", "h100_8", [{NAME: "zb_v", "schedule.virtual_stages": 1, "schedule.split": "balanced"}], 0),
    ("llama3_8b_64k_32gpu", "h100_8", [{PP: 1, TP: 1, S: 1, **ALONE, "mesh.cp": 16, NAME: "1f1b", "mesh.cp_method": method, "mesh.cp_inner": inner}
                                       for method, inner in (("two_level", 8), ("ring", 0), ("all_to_all", 0))], 0)]
ROWS += [row for machine in ("h100_8", "a100_8", "a100_40_8", "l40s_8") for row in (("7b_4gpu", machine, [{S: 8}], 1), ("olmoe_8gpu", machine, [{}], 1), ("finetune_lora_8b", machine, [{}], 1))]
ROWS.append(("finetune_lora_8b", "rtx4090_1", [{}], 1))
AS = [("7b_1gpu", {}), ("7b_4gpu", {}), ("7b_4gpu", {TP: 4, S: 1}), ("7b_8gpu_tp4", {}), ("13b_8gpu", {}), ("13b_16gpu_tp4", {}),
      ("13b_32gpu_tp4", {}), ("70b_32gpu_tp4", {})]


def predict(deck, machine, rows, options):
    keys = ["train.seed", *sorted({key for row in rows for key in row})]  # one that all rows have
    with tempfile.TemporaryDirectory() as work:
        asked, told = os.path.join(work, "asked.csv"), os.path.join(work, "told.csv")
        with open(asked, "w", newline="") as file:
            csv.writer(file).writerows([keys] + [[1, *(row.get(key, "") for key in keys[1:])] for row in rows])
        subprocess.run([FORGE, "plan", f"inputs/{deck}.yaml", "--machine", machine, "--candidates", asked, "--output", told, *options],
                       check=True, stdout=subprocess.DEVNULL)
        return list(csv.DictReader(open(told)))


def main():
    pages = "".join(open(f"docs/{page}.md").read() for page in ("choosing", "parallelism", "notes/layouts", "notes/kernels"))
    missing, figures = [], 0

    def expect(figure, what):
        nonlocal figures
        figures += 1
        if figure not in pages:
            missing.append(f"{what}: {figure}")

    for deck, machine, rows, with_memory in ROWS:
        for i, (row, told) in enumerate(zip(rows, predict(deck, machine, rows, []))):
            expect(f"{float(told['tokens_per_second_per_rank']):,.0f}", f"{deck} on {machine} {row}")
            if i < with_memory:
                expect(f"{float(told['peak_bytes']) / 2**30:.1f} GiB", f"{deck} on {machine} {row}")
    for deck, row in AS:
        told = predict(deck, "h200_4", [row], ["--as", "kempnerforge"])[0]
        expect(f"{float(told['tokens_per_second_per_rank']):,.0f}", f"{deck} {row} as kempnerforge")
    for problem in missing:
        print("FAILED: docs/choosing.md, parallelism.md, notes/layouts.md and kernels.md don't have", problem)
    print(f"{figures} figures, {len(missing)} missing")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
