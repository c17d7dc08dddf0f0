#!/usr/bin/env python3
"""fp8_shares.py FORGE: shares of numbers that FP8 cuts or loses, as metrics.jsonl has them: those of weights against this file's own count,
and all of them the same on every layout."""
import json
import math
import os
import pathlib
import random
import struct
import sys
import tempfile

from fp8_files import expect, failures, run, sets, write

os.environ["FORGE_FP8_CARRIER"] = "fp64"

DECK = """model: {{{1}}}
train: {{steps: 2, global_batch_sequences: 4, microbatch_sequences: 1, sequence_tokens: 16, precision: fp8}}
optimizer: {{learning_rate: 0}}
data: {{files: [{0}/tokens.bin], dtype: uint16}}
output: {{directory: {0}/run, norms_every_steps: 2}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1}}
"""
DEEPSEEK = """family: deepseek_v3, layers: 2, width: 32, heads: 4, attention: mla, q_lora: 20, kv_lora: 12, nope_dim: 6, rope_dim: 4,
  value_dim: 8, ffn: 40, vocabulary: 64, experts: 4, experts_per_token: 2, expert_ffn: 24, shared_expert_ffn: 24, first_dense_layers: 1,
  latent_norm_epsilon: 1e-6, router_score: sigmoid, router_bias: true, router_group_score: top2_sum, mtp_depth: 1, initial_std: 1.5,
  shared_expert_gate: true"""  # whose recomputed passes have a product that dense layers don't have
WIDTH, HEADS, KV_HEADS, FFN = 32, 8, 2, 48
SHAPES = {"q": (WIDTH, WIDTH), "k": (WIDTH * KV_HEADS // HEADS, WIDTH), "v": (WIDTH * KV_HEADS // HEADS, WIDTH), "o": (WIDTH, WIDTH),
          "gate": (FFN, WIDTH), "up": (FFN, WIDTH), "down": (WIDTH, FFN)}
PRODUCTS = {"qkv": "qkv", "attention_out": "o", "gate_up": ("gate", "up"), "down": ("down",)}
OF_EXPERTS = {"qkv": "qkv", "attention_out": "o", "expert_gate_up": ("gate", "up"), "expert_down": ("down",)}
GATHERED = ("train.zero_stage=3", "train.fp8_gather=true")  # as codes, of which each rank has rounded a part
EXPERTS, PLACES = 4, {"gate": "w1", "up": "w3", "down": "w2"}


def lost(values):
    """How many become 0 in E4M3 with one scale: half of its least number, 2^-10, rounds to 0."""
    scale = 2.0 ** math.floor(math.log2(448 / max(map(abs, values))))
    return sum(abs(value) * scale <= 2.0**-10 for value in values)


def model_of(folder, draw, experts):
    """Writes a Llama, or a Mixtral, whose weights lie many magnitudes apart, further in k, v and some experts; returns the share of each
    product's that are lost."""
    products = OF_EXPERTS if experts else PRODUCTS
    tensors, counts = {}, {name: [0, 0] for name in products}

    def add(name, shape, values):
        tensors[name] = ("F64", list(shape), struct.pack(f"<{len(values)}d", *values))

    def drawn(count, decades):
        return [draw.choice((-1, 1)) * 10 ** -draw.uniform(0, decades) for _ in range(count)]

    def matrix_of(name, matrix, decades):
        values = drawn(SHAPES[matrix][0] * SHAPES[matrix][1], decades)
        add(name, SHAPES[matrix], values)
        product = next(name for name, matrices in products.items() if matrix in matrices)
        counts[product][0] += lost(values)
        counts[product][1] += len(values)

    for layer in range(2):
        for matrix in SHAPES:
            if matrix in "qkvo":
                matrix_of(f"model.layers.{layer}.self_attn.{matrix}_proj.weight", matrix, 12 if matrix in "kv" else 7)
            elif not experts:
                matrix_of(f"model.layers.{layer}.mlp.{matrix}_proj.weight", matrix, 7)
            for expert in range(EXPERTS if experts and matrix in PLACES else 0):
                place = f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{PLACES[matrix]}.weight"
                matrix_of(place, matrix, 4 + 2 * expert + layer)
        if experts:
            add(f"model.layers.{layer}.block_sparse_moe.gate.weight", [EXPERTS, WIDTH], drawn(EXPERTS * WIDTH, 1))
        for norm in ("input_layernorm", "post_attention_layernorm"):
            decades = 8 if experts and norm == "post_attention_layernorm" else 1  # what experts read lies far apart
            add(f"model.layers.{layer}.{norm}.weight", [WIDTH], [10.0 ** -(i % decades) for i in range(WIDTH)])
    add("model.norm.weight", [WIDTH], [1.0] * WIDTH)
    for table in ("model.embed_tokens.weight", "lm_head.weight"):
        add(table, [64, WIDTH], drawn(64 * WIDTH, 3))
    config = {"model_type": "mixtral", "num_local_experts": EXPERTS, "num_experts_per_tok": 2} if experts else {"model_type": "llama"}
    write(folder, {**config, "hidden_size": WIDTH, "intermediate_size": FFN, "num_hidden_layers": 2, "vocab_size": 64,
                   "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 64}, tensors)
    return {name: some / all_of_them for name, (some, all_of_them) in counts.items()}


def shares(work, model, keys, *layout):
    deck = work / "deck.yaml"
    deck.write_text(DECK.format(work, model))
    run("train", deck, *sets(*keys, *layout[1:]), *(["--ranks", layout[0]] if layout else []))
    steps = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    expect("fp8" not in steps[0] and "fp8" in steps[1], f"shares of steps: {['fp8' in step for step in steps]}")
    return steps[1].get("fp8", {})


def check_weights(wanted, found):
    expect(all(0.05 < share < 0.9 for share in wanted.values()), f"drawn: {wanted}")
    for product, share in wanted.items():
        expect(found[product]["weights"] == {"overflow": 0, "underflow": share}, f"weights of {product}: {found[product]}, {share}")


def check_layouts(work, model, products, keys, *layouts):
    one = shares(work, model, keys)
    expect(list(one) == products, f"products {list(one)}")
    for tensor in ("x", "dy", "weights"):
        expect(all(0 <= share <= 1 for product in one.values() for share in product[tensor].values()), f"{one} are no shares")
    for tensor in ("x", "dy"):
        expect(any(product[tensor]["underflow"] > 0 for product in one.values()), f"{keys}: nothing of {tensor} is lost: {one}")
    for layout in layouts:
        expect(shares(work, model, keys, *layout) == one, f"{keys} {layout}: shares differ from one rank's")
    return one


def check_gathered(work):
    """Weights that are gathered as codes have the shares of those that aren't, though the block of multi-token prediction counts its own."""
    keys, layout = ["train.fp8_recipe=block", "train.fp8_experts=true"], (2, "mesh.dp_shard=2", "train.zero_stage=3")
    plain, coded = shares(work, DEEPSEEK, keys, *layout), shares(work, DEEPSEEK, keys, *layout, "train.fp8_gather=true")
    expect(all("weights" in product for product in plain.values()), f"without codes: {plain}")
    expect(coded == plain, f"with gathered codes: {coded}, not {plain}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        work, draw = pathlib.Path(folder), random.Random(4)
        (work / "tokens.bin").write_bytes(struct.pack("<400H", *(draw.randrange(64) for _ in range(400))))
        wanted = model_of(work / "llama", draw, False)
        found = check_layouts(
            work, f"hf: {work}/llama, load_weights: true", list(PRODUCTS), ["train.fp8_recipe=block"],
            (4, "mesh.tp=4", "mesh.dp_shard=1"),  # two ranks share each head of keys
            (4, "mesh.pp=2", "mesh.cp=2", "mesh.dp_shard=1", "train.recompute=full", "train.microbatch_sequences=2"),
            (4, "mesh.tp=2", "mesh.dp_shard=2", "train.zero_stage=3"),
            (2, "mesh.dp_shard=2", *GATHERED),
            (8, "mesh.tp=4", "mesh.dp_shard=2", *GATHERED),  # with copies of heads
        )
        check_weights(wanted, found)
        llama, delayed = f"hf: {work}/llama, load_weights: true", ["train.fp8_recipe=delayed"]
        expect(shares(work, llama, delayed) == shares(work, llama, delayed, 2, "mesh.dp_shard=2", *GATHERED), "delayed, gathered as codes: other shares")
        # Rounds of dispatch that are too small for what arrives: experts read their weights once in each, and backward recomputes rows.
        wanted = model_of(work / "mixtral", draw, True)
        found = check_layouts(
            work, f"hf: {work}/mixtral, load_weights: true", list(OF_EXPERTS),
            ["train.fp8_recipe=block", "train.fp8_experts=true", "train.fp8_transposed=true"],
            (4, "mesh.tp=2", "mesh.ep=2", "mesh.etp=2", "mesh.dp_shard=2", "model.dispatch_rows=0.5"),
            (2, "mesh.ep=2", "mesh.dp_shard=2", "model.dispatch_rows=0.3", "train.recompute=full"),
            (2, "mesh.pp=2", "mesh.dp_shard=1", "model.dispatch=all_gather", "model.dispatch_rows=0.2"),
            (4, "mesh.ep=2", "mesh.dp_shard=4", "model.dispatch_rows=0.5", *GATHERED),
        )
        check_weights(wanted, found)
        # Rows that go to experts as codes are counted before, not when the experts round them again.
        sent = check_layouts(
            work, f"hf: {work}/mixtral, load_weights: true", list(OF_EXPERTS),
            ["train.fp8_recipe=block", "train.fp8_experts=true", "train.fp8_transposed=true", "train.fp8_dispatch=true"],
            (4, "mesh.tp=2", "mesh.ep=2", "mesh.etp=2", "mesh.dp_shard=2", "model.dispatch_rows=0.5"),
            (2, "mesh.ep=2", "mesh.dp_shard=2", "model.dispatch=all_gather", "model.dispatch_rows=0.3", "train.recompute=full"),
        )
        for product, tensor in (("expert_gate_up", "x"), ("expert_down", "dy")):
            expect(sent[product][tensor] == found[product][tensor], f"{product}: {sent[product][tensor]}, sent as rows {found[product][tensor]}")
        expect(sent["expert_gate_up"]["x"]["underflow"] > 0.01, f"nothing of experts' x is lost: {sent}")
        latent = ["attention_out", "gate_up", "down", "q_down", "kv_down", "q_up", "kv_up"]
        check_layouts(work, DEEPSEEK, latent, ["train.fp8_recipe=current"], (4, "mesh.tp=2", "mesh.ep=2", "mesh.etp=1", "mesh.pp=2", "mesh.dp_shard=1"),
                      (1, "train.recompute=full"), (4, "mesh.ep=2", "mesh.dp_shard=4", *GATHERED))
        check_gathered(work)
    print(f"{len(failures)} failures" if failures else "all as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
