#!/usr/bin/env python3
"""table.py FOLDER: what first_day.sh measured, as a dated section in Markdown for docs/performance.md. Reads what is there; parts
that have not run are named."""

import glob
import json
import os
import sys

PEAK = 989.4e12  # dense bf16 of H100 and H200, FLOP/s


def facts(folder):
    with open(os.path.join(folder, "machine.txt")) as file:
        return dict(line.rstrip("\n").split(" ", 1) for line in file)


def fields(path):
    with open(path) as file:
        return [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]


def rate(seconds, flop, moved):
    """Text of a rate: TFLOP/s, GB/s, or the time alone."""
    if flop:
        return f"{flop / seconds / 1e12:.1f} TFLOP/s"
    if moved:
        return f"{moved / seconds / 1e9:.0f} GB/s"
    return f"{1e6 * seconds:.0f} us"


def kernels(folder):
    lines = []
    for group in ("products", "attention", "rows", "experts", "matrices"):
        path = os.path.join(folder, "kernels", group + ".tsv")
        if not os.path.exists(path):
            continue
        peer_path = os.path.join(folder, "kernels", f"pytorch_{group}.tsv")
        peers = {tuple(f[:3]): f for f in fields(peer_path)} if os.path.exists(peer_path) else {}
        lines += ["", f"| {group} | sizes | forge | PyTorch | forge / PyTorch | how |", "|---|---|---|---|---|---|"]
        for f in fields(path):
            seconds, flop, moved = map(float, f[3:6])
            peer = peers.get(tuple(f[:3]))
            cells = [f[1], f[2], rate(seconds, flop, moved)]
            if peer:
                theirs = float(peer[3])
                cells += [rate(theirs, flop, moved), f"{theirs / seconds:.2f}", peer[4].split(", ", 1)[1]]
            else:
                cells += ["not measured", "", ""]
            lines.append("| " + " | ".join(cells) + " |")
        if group == "attention":
            lines += better_attention(fields(path))
        if group == "experts":
            lines += better_grouped(fields(path))
        if group == "products":
            lines += codes(fields(path))
    return lines


def better_attention(lines):
    """What the measured kernels say about what attention takes by itself."""
    seconds = {}
    for f in lines:
        direction, _, kernel = f[1].partition(", ")
        seconds.setdefault(kernel or "cuda_cores", {})[direction, f[2]] = float(f[3])
    if len(seconds) < 2:
        return []
    def of(kernel, direction):
        return sum(s for (d, _), s in seconds[kernel].items() if d == direction)

    ratios = [f"{kernel} forward {of('cuda_cores', 'forward') / of(kernel, 'forward'):.2f}, backward {of('cuda_cores', 'backward') / of(kernel, 'backward'):.2f}"
              for kernel in ("tensor_cores", "cudnn") if kernel in seconds]
    best = min(seconds, key=lambda kernel: sum(seconds[kernel].values()))
    return ["", f"attention against cuda_cores, all sizes together: {'; '.join(ratios)}. By time the default should be {best}; the kernels' tests "
                "of the part \"tests\" decide whether it may."]


def better_grouped(lines):
    """The same of products of experts: each product by all choices, those but library behind its name."""
    seconds = {(f[1], f[2]): float(f[3]) for f in lines}
    texts, sums = [], {}
    for choice in ("tensor_cores", "cutlass"):
        suffix = f", {choice}"
        pairs = [(seconds[name.removesuffix(suffix), sizes], s) for (name, sizes), s in seconds.items() if name.endswith(suffix)]
        if not pairs:
            continue
        ratios = [library / grouped for library, grouped in pairs]
        sums["library"], sums[choice] = sum(s for s, _ in pairs), sum(s for _, s in pairs)
        texts.append(f"{choice} against library, {len(pairs)} products: {min(ratios):.2f} to {max(ratios):.2f} times as fast")
    if not texts:
        return []
    return ["", f"products of experts: {'; '.join(texts)}. By time the default should be {min(sums, key=sums.get)}; the kernels' tests of the part \"tests\" "
                "decide whether it may."]


def codes(lines):
    """How fast products of codes are against bf16's: all layers together, of each kind of scales."""
    texts = []
    for scales in ("blocks", "tensors"):
        of_codes, numbers = {}, {}
        for f in lines:
            layer, _, kind = f[1].partition(", forward")
            if kind == f", fp8 of {scales}":
                of_codes[layer] = float(f[3])
            if f[1].endswith(", forward"):
                numbers[layer] = float(f[3])
        layers = of_codes.keys() & numbers.keys()
        if layers:
            ratio = sum(numbers[layer] for layer in layers) / sum(of_codes[layer] for layer in layers)
            texts.append(f"scales of {scales}: {ratio:.2f} times the rate of bf16")
    return ["", f"Forward products of FP8's codes, without the making of codes: {'; '.join(texts)}."] if texts else []


def steps(folder):
    results = []
    for path in sorted(path for part in ("sizes", "steps_*") for path in glob.glob(os.path.join(folder, part, "*.json"))):
        if path.endswith(".trace.json"):
            continue
        with open(path) as file:
            results.append(json.load(file))
    if not results:
        return []
    lines = ["", "| whole steps, bf16 | batch | contender | ms a step | tokens/s | TFLOP/s | of 989.4 |", "|---|---|---|---|---|---|---|"]
    for r in results:
        speed = r["step_tokens"] / r["seconds"]
        flops = speed * r["flops_per_token"]
        lines.append(
            f"| {r['model']} | {r['batch']} x {r['tokens']} | {r['label']} | {1e3 * r['seconds']:.1f} | {speed:.0f} "
            f"| {flops / 1e12:.1f} | {100 * flops / PEAK:.1f} % |"
        )
    for model in sorted({r["model"] for r in results}):
        forge = [r["seconds"] for r in results if r["model"] == model and r["label"] == "forge"]
        peer = [r for r in results if r["model"] == model and r["contender"] == "pytorch"]
        if forge and peer:
            lines += ["", f"{model}: forge / {peer[0]['label']}: {peer[0]['seconds'] / min(forge):.2f}"]
            lines[-1] += "".join(f"; {r['label']}: {peer[0]['seconds'] / r['seconds']:.2f}" for r in results if r["model"] == model and r["contender"] in ("forge_cudnn", "forge_own_experts", "forge_fp8", "forge_cuda_cores"))
            lines[-1] += f" (forge's runs {' and '.join(f'{1e3 * s:.1f}' for s in forge)} ms)"
    return lines


def said(folder):
    """Cases of replays, of kernels beside a collective's and of generation: their lines, with the commands."""
    lines = []
    for part, cases in (("replay", "*"), ("replay_v3", "*"), ("beside", "*"), ("sizes", "generate_*")):
        rows = []
        for path in sorted(glob.glob(os.path.join(folder, part, f"{cases}.result"))):
            with open(path) as result, open(path.removesuffix("result") + "log") as log:
                words = result.read().split(None, 2)
                commands = [line[2:].strip() for line in log if line.startswith("$ forge")]
            if words[0] == "passed" and len(words) > 2:
                name = os.path.basename(path).removesuffix(".result")
                rows.append(f"| {name} | {words[2].strip()} |" + (f" `{commands[0]}` |" if commands else " |"))
        if rows:
            lines += ["", f"| {part} | | |", "|---|---|---|", *rows]
    return lines


def verdicts(folder):
    lines = ["", "| part | result |", "|---|---|"]
    with open(os.path.join(folder, "summary.txt")) as file:
        parts = [line.split(None, 1) for line in file if not line.startswith(" ")]
    return lines + [f"| {name} | {result.strip()} |" for name, result in parts]


def main():
    folder = sys.argv[1]
    machine = facts(folder)
    title = f"### One GPU, {machine['date']}"
    if machine["rehearsal"] == "yes":
        title = f"### REHEARSAL on a processor at tiny sizes, {machine['date']}: no figure of it means anything"
    lines = [title, "", f"{machine['gpu']}; {machine['processor']}; PyTorch {machine['pytorch']}; {machine['program']}, commit {machine['commit'][:12]}."]
    lines += ["Random data; a median of five batches of calls (kernels) or of the steps after three others. Bytes are the least that a kernel must",
              "read and write. FLOP: 6 a weight of a matrix product with the head, without the input embedding, plus causal attention counted half;",
              "the router's own choice (no forced balance); \"of 989.4\": of the dense bf16 peak of H100 and H200."]
    lines += verdicts(folder) + said(folder) + kernels(folder) + steps(folder)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
