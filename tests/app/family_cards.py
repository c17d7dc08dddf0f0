#!/usr/bin/env python3
"""family_cards.py FORGE [--write]: docs/families.md has a card for each family of src/hf/families.cpp: names, differences to transformers and between
layouts as measured now, the export's text as verify/export_texts.py has compared it, a deck's memory and speed, refusals in forge's words, and
who loads the export. --write writes the page; without it the page is compared, with FORGE_VOLUME=third three families, drawn by the commit's
hash. Words must be the same; a difference at most ten times the page's, and below BOUND."""
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, "tests/gpu")
from compare_gradients import largest_error, read, relative_loss
from inputs_table import FORGE, billions, header, layout, run, speed

PAGE, BOUND, LEAST = Path("docs/families.md"), 1e-11, 1e-15
# Layouts: name, ranks, settings. The second list is for families with experts.
CP = {"mesh.cp": 2}
LAYOUTS = [
    ("tp 2", 2, {"mesh.tp": 2}),
    ("pp 2", 2, {"mesh.pp": 2}),
    ("pp 2 (2 chunks)", 2, {"mesh.pp": 2, "schedule.name": "interleaved", "schedule.virtual_stages": 2}),
    ("pp 2 (zb_v)", 2, {"mesh.pp": 2, "schedule.name": "zb_v", "schedule.virtual_stages": 2}),
    ("cp 2 ring", 2, CP),
    ("cp 2 all_gather", 2, CP | {"mesh.cp_method": "all_gather"}),
    ("cp 2 all_to_all", 2, CP | {"mesh.cp_method": "all_to_all"}),
    ("dp_shard 2 (ZeRO 2)", 2, {"mesh.dp_shard": 2, "train.zero_stage": 2}),
    ("dp_shard 2 (ZeRO 3)", 2, {"mesh.dp_shard": 2, "train.zero_stage": 3}),
    ("dp_shard 2 x cp 2 x tp 2 (ZeRO 3)", 8, CP | {"mesh.dp_shard": 2, "mesh.tp": 2, "train.zero_stage": 3}),
    ("pp 2 x dp_shard 2 x tp 2 (ZeRO 1)", 8, {"mesh.pp": 2, "mesh.dp_shard": 2, "mesh.tp": 2, "train.zero_stage": 1}),
]
EXPERT_LAYOUTS = [
    ("ep 2", 2, {"mesh.ep": 2}),
    ("tp 2 (etp 1)", 2, {"mesh.tp": 2, "mesh.etp": 1}),
    ("dp_shard 2 x tp 2 (ep 4 x etp 1)", 4, {"mesh.dp_shard": 2, "mesh.tp": 2, "mesh.ep": 4, "mesh.etp": 1}),
    ("pp 2 x cp 2 x tp 2 (ep 2)", 8, CP | {"mesh.pp": 2, "mesh.tp": 2, "mesh.ep": 2}),
]
# Whatever else is asked of a family.
END = {"data.document_end_token": 5}
FEATURES = [
    ("bf16", {"train.precision": "bf16"}),
    ("fp8", {"train.precision": "fp8"}),
    ("LoRA", {"adapter.name": "lora", "model.router_bias_rate": 0, "model.mtp_depth": 0, "model.mtp_loss_factor": 0.1}),
    ("QK-clip", {"optimizer.qk_clip": 100}),
    ("Muon", {"optimizer.name": "muon"}),
    ("a multi-token layer", {"model.mtp_depth": 1}),
    ("documents", END),
    ("packed documents", END | {"data.packing": "best_fit"}),
    ("positions by document", END | {"data.positions": "document"}),
    ("dropout", {"model.dropout": 0.1}),
    ("soft cap of scores", {"model.attention_soft_cap": 30}),
    ("soft cap of logits", {"model.logit_soft_cap": 30}),
    ("full recomputation", {"train.recompute": "full"}),
]
EXPORTED = ("a multi-token layer", "soft cap of scores", "soft cap of logits")  # those that config.json may have no words for
# What loads an export: the page of vLLM's models, and SGLang's modules, each as it stood at a commit. "": its own class.
VLLM_AT, VLLM_PAGE = "0046f770d322", "docs/models/supported_models.md"
BACKEND = "by its Transformers backend"
VLLM = dict.fromkeys(
    "Llama Mistral Qwen2 Qwen3 Mixtral Qwen3Moe DeepseekV3 DeepseekV2 Qwen2Moe Phi3 Glm4Moe Olmoe Olmo3 MiniMaxM2 Gemma3 GptOss Qwen3Next".split(), ""
) | {"GPT2LMHeadModel": "", "SmolLM3": BACKEND, "Olmo2": BACKEND}
SGLANG = {
    "Llama": ("llama", "00239548f1cd"),
    "Mistral": ("mistral", "00b08c497f07"),
    "Qwen2": ("qwen2", "0005b7e1e252"),
    "Qwen3": ("qwen3", "01b5f572b7b6"),
    "GPT2LMHeadModel": ("gpt2", "00b08c497f07"),
    "Mixtral": ("mixtral", "02356ceed8be"),
    "Qwen3Moe": ("qwen3_moe", "008af3a6f95b"),
    "DeepseekV3": ("deepseek_v2", "00114aef19bb"),
    "DeepseekV2": ("deepseek_v2", "00114aef19bb"),
    "Qwen2Moe": ("qwen2_moe", "0115497da8f2"),
    "Phi3": ("llama", "00239548f1cd"),
    "Glm4Moe": ("glm4_moe", "005ffc65dc0f"),
    "SmolLM3": ("smollm3", "58fd814efa38"),
    "Olmoe": ("olmoe", "067e8f42c478"),
    "Olmo2": ("olmo2", "067ed0ce6df4"),
    "MiniMaxM2": ("minimax_m2", "01b5f572b7b6"),
    "Ministral3": ("ministral3", "0d9cd8212785"),
    "Gemma3": ("gemma3_causal", "038c87d49058"),
    "GptOss": ("gpt_oss", "009c68085e68"),
    "Qwen3Next": ("qwen3_next", "0201bc8059b1"),
}
# Modules that were read without finding the class.
SGLANG_WITHOUT = {"Olmo3": ("olmo2", "067ed0ce6df4"), "Qwen3_5": ("qwen3_5", "005fa711897e"), "Qwen3_5Moe": ("qwen3_5", "005fa711897e")}
HEAD = f"""# Families

`tests/app/family_cards.py build/cpu/forge --write` writes this page, and a test holds it to the program: each difference was measured by forge when
the page was written. A family's `model_type` chooses it; (text_config) stands behind types whose text model is nested, of which mistral3's is the
`model_type` in its text_config. Differences to transformers are `forge verify`'s, in fp64: of losses and gradient norms of ten steps, and of every
gradient of step 1. Differences of layouts are the largest over the loss and every gradient of step 1, against one rank, in fp64, of a twin of
the problem whose sizes all of these layouts divide. Texts: [export_texts.py](../verify/export_texts.py). Memory and speed are predictions of
`forge plan` for a GPU of the machine that the deck's header names, else of h100_8. The class of vLLM and of SGLang that loads an export is
the one of its architecture, looked up in {VLLM_PAGE} of vllm-project/vllm at {VLLM_AT} and in
python/sglang/srt/models of sgl-project/sglang; no export has been loaded by either here.

| family | model_type | writes | loss, gradients to transformers | layouts | equal text | deck |
|---|---|---|---|---|---|---|
"""


def sets(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def refusal(*arguments):
    """The first sentence of forge's message; "" where it does it."""
    done = subprocess.run([FORGE, *arguments], capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.split("\n") if line.strip()]
    first = next(n for n, line in enumerate(lines) if line.startswith("forge: error: "))
    text = lines[first + 1] if lines[first].endswith(" errors:") else lines[first].removeprefix("forge: error: ")
    return re.split(r"; (?=legal|nearest)", text)[0]


def figure(value):
    """A digit, rounded up."""
    if value < LEAST:
        return f"<{LEAST:.0e}"
    digit, exponent = f"{value:.0e}".split("e")
    rounded = float(f"{digit}e{exponent}")
    return f"{rounded if rounded >= value else rounded + float(f'1e{exponent}'):.0e}"


def model_types():
    """Families in the order of families.cpp, each with the model_type words that choose it."""
    table = Path("src/hf/families.cpp").read_text()
    families = {}
    for word, family, row, nested in re.findall(r'\{"(\w+)", Family::(\w+), (nullptr|&\w+)(, true)?\}', table):
        if not (nested and row == "nullptr"):
            families.setdefault(family, []).append(word + " (text_config)" * bool(nested))
    return families


def twin(problem, work):
    """The problem's deck with sizes that the layouts divide, and initial values."""
    deck = json.loads(run(["show", f"verify/{problem}/input.yaml", "--json"]))["deck"]
    model, up = deck["model"], lambda size: -(-size // 4) * 4
    heads, kv_heads = model["heads"], model["kv_heads"]
    if model["width"] == heads * model["head_dim"]:
        model["width"] = 8 * model["head_dim"]
    model |= {"hf": "", "load_weights": False, "initial_std": 0.2, "layers": 4, "heads": 8, "kv_heads": 8 if kv_heads == heads else 4}
    model |= {"ffn": up(model["ffn"]), "max_positions": max(64, model["max_positions"])}
    if model["experts"] > 0:
        ffn, shared = model["expert_ffn"], model["shared_expert_ffn"]
        model |= {"experts": 8, "expert_ffn": up(ffn), "shared_expert_ffn": up(shared) if shared % ffn else shared // ffn * up(ffn)}
    if model["full_attention_interval"] > 0:
        model |= {"linear_key_heads": 4, "linear_value_heads": 8}
    sizes = {"steps": 1, "sequence_tokens": 64, "global_batch_sequences": 8, "microbatch_sequences": 1, "precision": "fp64"}
    data = {key: deck["data"][key] for key in ("files", "dtype", "document_end_token")}
    machine = {"threads": 1, "peak_tflops": 1, "workspace_mib": 1}
    whole = {"model": model, "train": sizes, "optimizer": {"learning_rate": 0.01}, "data": data, "machine": machine}
    path = os.path.join(work, "deck.yaml")
    Path(path).write_text(json.dumps(whole | {"output": {"directory": f"{work}/run"}}))
    return path, model["experts"] > 0


def layouts(deck, experts, work):
    """(layout, largest difference to one rank), and (layout, refusal)."""
    one, other = os.path.join(work, "one.safetensors"), os.path.join(work, "other.safetensors")
    run(["gradients", deck, "--output", one])
    (reference, expected), same, refused = read(one), [], []
    for name, ranks, settings in LAYOUTS + EXPERT_LAYOUTS * experts:
        message = refusal("gradients", deck, "--output", other, "--ranks", str(ranks), *sets(settings))
        if message:
            refused.append((name, message))
            continue
        tensors, said = read(other)
        if set(tensors) != set(reference):
            sys.exit(f"{deck}, {name}: other tensors")
        same.append((name, max(largest_error(tensors, reference)[0], relative_loss(said, expected))))
    return same, refused


def export_refusal(name, deck, work):
    """Of a model with this feature, a step trained; "" where forge exports it."""
    saved, settings = os.path.join(work, name), dict(FEATURES)[name]
    run(["train", deck, *sets(settings | {"checkpoint.directory": saved, "output.directory": f"{saved} run"})])
    return refusal("export", saved, "--output", f"{saved} exported").split(" has no words for this model: ")[-1]


def features(deck, work):
    """(features that forge has), and (feature, refusal)."""
    written = ["--output", os.path.join(work, "feature.safetensors")]
    told = [(name, refusal("gradients", deck, *written, *sets(settings))) for name, settings in FEATURES]
    told.append(("generation", refusal("generate", deck, "--initial", "--tokens", "1,2,3", "--length", "2", "--ignore-end")))
    told += [(f"export of {name}", export_refusal(name, deck, work)) for name in EXPORTED if (name, "") in told]
    return [name for name, message in told if not message], [(name, message) for name, message in told if message]


def shipped(family):
    """Name of the deck of inputs/ with the fewest GPUs, those with a machine first; "": there is none."""

    def order(name):
        gpus = re.search(r"_(\d+)gpu", name)
        return header(name)[0] == "", int(gpus[1]) if gpus else 1 << 30, name

    def family_of(path):
        found = re.search(r"^  family: (\w+)", path.read_text(), re.M)
        return found[1] if found else "llama"

    return min((path.stem for path in Path("inputs").glob("*.yaml") if family_of(path) == family), key=order, default="")


def deck_row(name):
    shown = json.loads(run(["show", f"inputs/{name}.yaml", "--json"]))
    machine = header(name)[0] or "h100_8"
    peak, tokens = speed(name, machine, [])
    ranks = shown["layout"]["mesh"]["ranks"]
    size, each = billions(shown["model"]["parameters"]), f"{float(f'{tokens:.3g}'):,.0f}"
    words = f"[{name}](../inputs/{name}.yaml): {size} parameters on {ranks:,} GPU{'s' * (ranks > 1)}, {layout(shown)}"
    return f"{words.removesuffix(', –')}: {peak / 2**30:.1f} GiB, {each} tokens/s on {machine}"


def by_message(refused):
    """One line for each message, with all that it answers."""
    grouped = {}
    for name, message in refused:
        grouped.setdefault(message, []).append(name)
    return "; ".join(f"{', '.join(names)}: {message}".replace("|", "\\|") for message, names in grouped.items())


def served(architecture):
    short = architecture.removesuffix("ForCausalLM")
    if short not in SGLANG | SGLANG_WITHOUT:
        sys.exit(f"tests/app/family_cards.py doesn't say which class of vLLM and SGLang loads {architecture}")
    vllm = f"not found at {VLLM_AT}" if short not in VLLM else f"`{architecture}` {VLLM[short]}".strip()
    name, commit = SGLANG.get(short) or SGLANG_WITHOUT[short]
    found = f"`{architecture}` in {name}.py" if short in SGLANG else f"not found in {name}.py"
    return f"vLLM {vllm}; SGLang {found} at {commit}"


def verified(problem):
    """Differences of loss, gradient norm and gradients in fp64."""
    found = re.search(r" fp64 +(\S+) +(\S+) +(\S+) .* ok$", run(["verify", f"verify/{problem}"]), re.M)
    return list(map(float, found.groups()))


def card(family, words, exports):
    """(row of the table, the card)."""
    if family not in exports:
        sys.exit(f"verify/exports.json has no {family}: python3 verify/export_texts.py {family}")
    export = exports[family]
    problem, architecture = export["problem"], export["architecture"]
    loss, norm, gradients = verified(problem)
    with tempfile.TemporaryDirectory() as work:
        deck, experts = twin(problem, work)
        same, refused = layouts(deck, experts, work)
        has, not_these = features(deck, work)
    worst = max((difference for _, difference in same), default=0)
    if not max(worst, gradients) <= BOUND:
        sys.exit(f"{family}: {same}, gradients {gradients}: beyond {BOUND}")
    name, text = shipped(family), f"{export['tokens']} tokens behind {export['prompts']} prompts" if export["tokens"] else "none: see refused"
    row = (f"[{family}](#{family})", ", ".join(words), f"`{architecture}`", f"{figure(loss)}, {figure(gradients)}", f"{len(same)}, {figure(worst)}",
           text.split(" behind")[0], f"[{name}](../inputs/{name}.yaml)" if name else "–")
    differences = f"loss {figure(loss)}, norm {figure(norm)}, gradients {figure(gradients)}"
    told = [
        ("reads", f"model_type {', '.join(words)}"),
        ("writes", f"model_type {export['model_type']}, `{architecture}`"),
        (f"transformers {export['transformers']}", f"[{problem}](../verify/{problem}/README.md): {differences}"),
        ("layouts", "; ".join(f"{layout}: {figure(difference)}" for layout, difference in same)),
        ("export read back", f"loss {figure(export['loss'])}, equal greedy text: {text}"),
        ("does", ", ".join(has)),
        ("refused", by_message(refused + not_these) or "nothing of these lists"),
        ("deck", deck_row(name) if name else "none"),
        ("served by", served(architecture)),
    ]
    lines = "".join(f"| {title} | {cell} |\n" for title, cell in told)
    return "| " + " | ".join(row) + " |\n", f"\n## {family}\n\n| | |\n|---|---|\n{lines}"


def drawn(families):
    if os.environ.get("FORGE_VOLUME") != "third" or os.environ.get("FORGE_LONG") == "1":
        return families
    commit = subprocess.run(["git", "rev-parse", "--short=4", "HEAD"], capture_output=True, text=True).stdout.strip() or "0"
    first = int(commit, 16)
    return [families[(first + n * len(families) // 3) % len(families)] for n in range(3)]


FIGURE = re.compile(r"<?\d+e-\d+")


def same_words(there, now):
    """Whether a text has the page's words, and no difference above ten times the page's."""
    if FIGURE.sub("", there) != FIGURE.sub("", now):
        return False
    pairs = zip(FIGURE.findall(there), FIGURE.findall(now))
    return all(float(new.strip("<")) <= min(10 * float(old.strip("<")), BOUND) for old, new in pairs)


def main():
    words, exports = model_types(), json.loads(Path("verify/exports.json").read_text())
    write = sys.argv[2:] == ["--write"]
    asked = list(words) if write else drawn(list(words))
    with ThreadPoolExecutor(2) as threads:
        cards = dict(zip(asked, threads.map(lambda family: card(family, words[family], exports), asked)))
    if write:
        PAGE.write_text(HEAD + "".join(row for row, _ in cards.values()) + "".join(text for _, text in cards.values()))
        return
    there = PAGE.read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(#.*\n", there, re.M)
    texts = dict(re.findall(r"^## (\w+)\n((?:(?!## ).*\n?)*)", there, re.M))
    problems = [] if there.startswith(HEAD) and rows == list(texts) == list(words) else ["its head or its families"]
    for family, (row, text) in cards.items():
        old = re.search(rf"^\| \[{family}\]\(#.*\n", there, re.M)
        for line, new in zip([old[0] if old else "", *texts.get(family, "").strip().split("\n")], [row, *text.split("\n", 3)[3].strip().split("\n")]):
            if not same_words(line, new):
                problems.append(f"{family}: has {line}\nforge says {new}")
    for problem in problems:
        print(f"{PAGE}:", problem)
    if problems:
        sys.exit(f"{PAGE} isn't what tests/app/family_cards.py {sys.argv[1]} --write writes")
    print(f"{len(asked)} of {len(words)} families are as {PAGE} has them: {', '.join(asked)}")


if __name__ == "__main__":
    main()
