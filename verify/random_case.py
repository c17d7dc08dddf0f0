#!/usr/bin/env python3
"""Random models, token files and decks: forge against PyTorch in fp64.

    python3 verify/random_case.py --forge build/cpu/forge --seed 1 --cases 10 [-n 2] [--set mesh.tp=2]

Each seed makes a case: a family, dimensions, rotary scaling, file types, documents, schedules. The case is trained with
the family's Hugging Face class (verify/reference.py) and with `forge train` and `forge gradients`. Losses and gradient
norms must agree to 1e-9, each gradient to 1e-8 of its largest entry or of a thousandth of the largest of all, whichever
is more. Exit code 1 if any case fails.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers.utils import logging

import files
import reference

MPIRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "mpirun.sh")

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
}
FAMILIES = list(CLASSES)
LINEAR = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")  # whose class sees no documents in a sequence
NESTED = ("qwen3_vl", "qwen3_vl_moe")  # the text model beside an image model
WINDOWS_OF_ALL = ("mistral", "mixtral", "phi3", "ministral3")
BY_TYPE = ("olmo3", "gemma3_text")  # rope parameters and windows by the kind of a layer
WINDOWS_FROM_LAYER = ("qwen2", "qwen3", "qwen3_moe")
LOSS_TOLERANCE, GRADIENT_TOLERANCE, GRADIENT_FLOOR = 1e-9, 1e-8, 1e-3


def random_rope(r, config, family):
    """Adds a rotary scaling under the older or the newer keys."""
    theta = r.choice([100.0, 10000.0, 500000.0])
    kind = r.choice(["default", "linear", "llama3", "yarn"])
    if family == "phi3":  # the divisors follow the rotated part of a head
        config["rope_theta"] = theta
        return "default" if kind == "default" else "longrope"
    rope = {"rope_type": kind}
    if kind != "default":
        rope["factor"] = r.choice([2.0, 4.0, 8.0])
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": r.choice([2.0, 4.0])}
    if kind == "yarn":
        rope |= r.choice(
            [
                {},
                {"beta_fast": 16.0, "beta_slow": 2.0},
                {"attention_factor": 1.3},
                {"truncate": False},
                {"mscale": 1.0, "mscale_all_dim": 0.5},
            ]
        )
    if family in BY_TYPE:
        rope.pop("truncate", None)  # which the class looks for in another map
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = r.choice([32, 64, 128])
    if family == "ministral3":
        rope |= {"original_max_position_embeddings": r.choice([8, 16, 64]), "rope_theta": theta}
        rope["llama_4_scaling_beta"] = r.choice([0.0, 0.1, 0.5]) if kind in ("llama3", "yarn") else 0.0
        config["rope_parameters"] = rope
        return f"{kind}, queries by {rope['llama_4_scaling_beta']}"
    if family in BY_TYPE and r.random() < 0.5:
        inner = {"rope_type": "default", "rope_theta": r.choice([100.0, theta])}
        config["rope_parameters"] = {"full_attention": rope | {"rope_theta": theta}, "sliding_attention": inner}
    elif family not in BY_TYPE and r.random() < 0.5:
        config["rope_parameters"] = rope | {"rope_theta": theta}
    else:
        config["rope_theta"] = theta
        config["rope_scaling"] = None if kind == "default" else rope
    return kind


def random_longrope(r, count):
    """Divisors, which the class rounds to fp32, and an original context that sequences may be longer than."""
    divisors = lambda most: [1 + r.randint(0, most) / 64 for _ in range(count)]
    rope = {"type": "longrope", "short_factor": divisors(60), "long_factor": divisors(4000)}  # transformers 5 refuses the older word, su
    rope |= r.choice([{}, {"factor": 4.0}, {"attention_factor": 1.3}])
    return {"original_max_position_embeddings": r.choice([8, 16, 64]), "rope_scaling": rope}


def random_auxiliary(r, config):
    """config.json's own auxiliary loss, which counts only where it asks for the router's logits."""
    if r.random() < 0.6:
        config |= {"output_router_logits": r.random() < 0.6, "router_aux_loss_coef": r.choice([0.001, 0.02])}


def random_mixtral(r, config):
    config["num_local_experts"] = r.randint(2, 7)
    config["num_experts_per_tok"] = r.randint(1, config["num_local_experts"])
    random_auxiliary(r, config)
    return f"{config['num_experts_per_tok']} of {config['num_local_experts']} experts"


def random_qwen3_moe(r, config):
    count = r.choice([1, 4, 6, 8, 9])
    config[r.choice(["num_experts", "num_local_experts"])] = count
    config |= {
        "num_experts_per_tok": r.randint(1, min(count, 4)),
        "moe_intermediate_size": r.randint(5, 30),
        "norm_topk_prob": r.random() < 0.5,
        "decoder_sparse_step": r.choice([1, 1, 2]),
        "mlp_only_layers": r.choice([None, [], [0], [1, 2]]),
    }
    random_auxiliary(r, config)
    return f"{config['num_experts_per_tok']} of {count} experts"


def random_deepseek_v3(r, config):
    groups = r.choice([1, 1, 2, 3, 4])
    used, count = r.randint(1, groups), groups * r.randint(2, 4)
    config |= {
        "num_key_value_heads": config["num_attention_heads"],
        "q_lora_rank": r.choice([None, 7, 16, 30]),
        "kv_lora_rank": r.randint(4, 30),
        "qk_nope_head_dim": r.randint(1, 12),
        "qk_rope_head_dim": 2 * r.randint(1, 6),
        "v_head_dim": r.randint(2, 16),
        "n_routed_experts": count,
        "n_shared_experts": r.choice([1, 1, 2]),
        "num_experts_per_tok": r.randint(1, min(used * count // groups, 4)),
        "moe_intermediate_size": r.randint(5, 30),
        "first_k_dense_replace": r.randint(0, config["num_hidden_layers"]),
        "n_group": groups,
        "topk_group": used,
        "norm_topk_prob": r.random() < 0.5,
        "routed_scaling_factor": r.choice([1.0, 2.5]),
        "num_nextn_predict_layers": 1,
    }
    config.pop("head_dim", None)
    if r.random() < 0.5:
        config["rope_interleave"] = r.random() < 0.5
    random_auxiliary(r, config)
    return f"{config['num_experts_per_tok']} of {count} experts in {used} of {groups} groups"


def random_deepseek_v2(r, config):
    text = random_deepseek_v3(r, config)
    config.pop("rope_interleave", None)
    # The class takes pairs as complex numbers where they lie, which begin at even numbers.
    config |= {key: 2 * config[key] for key in ("kv_lora_rank", "qk_nope_head_dim")}
    config |= {"norm_topk_prob": False, "topk_method": r.choice(["greedy", "group_limited_greedy"])}
    return f"{text}, {config['topk_method']}"


def random_glm4_moe(r, config):
    kept = {key: config[key] for key in ("num_key_value_heads", "head_dim") if key in config}
    text = random_deepseek_v3(r, config)
    for key in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rope_interleave"):
        config.pop(key, None)
    config |= kept | {"use_qk_norm": r.random() < 0.5}
    return text


def random_olmoe(r, config):
    text = random_mixtral(r, config)
    config["num_experts"] = config.pop("num_local_experts")
    config |= {"norm_topk_prob": r.random() < 0.5, "clip_qkv": None}
    return text


def random_minimax_m2(r, config):
    return random_mixtral(r, config)


def random_gpt_oss(r, config):
    text = random_mixtral(r, config)
    config |= {"swiglu_limit": r.choice([0.02, 0.3, 7.0]), "swiglu_alpha": r.choice([1.702, 1.0])}
    return f"{text}, limit {config['swiglu_limit']}"


def random_qwen3_5_moe(r, config):
    text = random_mixtral(r, config)
    config["num_experts"] = config.pop("num_local_experts")
    config |= {"moe_intermediate_size": r.randint(5, 30), "shared_expert_intermediate_size": r.randint(5, 30)}
    return text


def random_qwen3_next(r, config):
    text = random_qwen3_moe(r, config)
    config |= {"num_experts": config.pop("num_local_experts", config.get("num_experts"))}
    config["shared_expert_intermediate_size"] = r.randint(5, 30)
    return text


def random_linear(r, config, layers):
    """Layers of gated DeltaNet but for each n-th."""
    every = r.choice([1, *range(2, layers + 1)])
    types = ["full_attention" if number % every == 0 else "linear_attention" for number in range(1, layers + 1)]
    keys = r.randint(1, 3)
    config |= {
        "layer_types": types,
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * r.randint(1, 3),
        "linear_key_head_dim": r.randint(2, 12),
        "linear_value_head_dim": r.randint(2, 12),
        "linear_conv_kernel_dim": r.randint(1, 5),
    }
    return f"attention in each {every}th layer, {keys} key heads"


def random_qwen2_moe(r, config):
    text = random_qwen3_moe(r, config)
    config.pop("num_local_experts", None)
    config |= {"num_experts": max(config.get("num_experts", 8), config["num_experts_per_tok"])}
    config |= {"shared_expert_intermediate_size": r.randint(5, 30), "qkv_bias": r.random() < 0.7}
    return text


EXPERTS = {
    "mixtral": random_mixtral,
    "qwen3_moe": random_qwen3_moe,
    "qwen3_vl_moe": random_qwen3_moe,
    "deepseek_v3": random_deepseek_v3,
    "deepseek_v2": random_deepseek_v2,
    "qwen2_moe": random_qwen2_moe,
    "glm4_moe": random_glm4_moe,
    "olmoe": random_olmoe,
    "minimax_m2": random_minimax_m2,
    "gpt_oss": random_gpt_oss,
    "qwen3_5_moe_text": random_qwen3_5_moe,
    "qwen3_next": random_qwen3_next,
}


def nested(config):
    """The config.json of a text model beside a small image model."""
    text = {k: v for k, v in config.items() if k not in ("architectures", "tie_word_embeddings")}
    vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 2}
    vision |= {"out_hidden_size": config["hidden_size"], "deepstack_visual_indexes": [0], "num_position_embeddings": 4}
    return {
        "architectures": config["architectures"],
        "model_type": config["model_type"],
        "text_config": text | {"model_type": config["model_type"] + "_text"},
        "vision_config": vision | {"model_type": config["model_type"] + "_vision"},
        "tie_word_embeddings": config["tie_word_embeddings"],
    }


def random_router_options(r, config):
    """What the deck says about training experts."""
    if config["model_type"] not in EXPERTS:
        return {}
    options = {}
    if r.random() < 0.5:
        options |= {"auxiliary_loss_coefficient": r.choice([0.0, 0.01, 0.1])}
    if r.random() < 0.4:
        options |= {"auxiliary_loss_scope": "microbatch"}
    if r.random() < 0.3:
        options |= {"router_z_coefficient": 0.003}
    if config["model_type"] in ("deepseek_v3", "glm4_moe", "minimax_m2") and r.random() < 0.5:
        options |= {"router_bias_rate": r.choice([0.001, 0.05])}
    return options


def random_config(r, tokens, families):
    """config.json of a random family, and what is special about it."""
    family = r.choice(families)
    heads = r.choice([1, 2, 3, 4, 6])
    layers, vocabulary = r.randint(1, 4), r.choice([61, 97, 128, 211, 300])
    if family == "gpt2":
        activation = r.choice(["gelu_new", "gelu", "gelu_pytorch_tanh"])
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_embd": heads * r.randint(5, 16),
            "n_head": heads,
            "n_layer": layers,
            "n_positions": tokens + r.choice([0, 5]),
            "vocab_size": vocabulary,
            "n_inner": r.choice([None, 45]),
            "activation_function": activation,
            "layer_norm_epsilon": r.choice([1e-5, 1e-3]),
        }, activation
    kv_heads = r.choice([k for k in range(1, heads + 1) if heads % k == 0])
    config = {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "intermediate_size": r.randint(20, 80),
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": r.choice([1e-6, 1e-5, 1e-2]),
        "tie_word_embeddings": r.random() < 0.4,
    }
    if family in ("qwen2", "qwen2_moe", "phi3", "deepseek_v2", "olmoe") or r.random() < 0.4:  # these have no head_dim of their own
        config["hidden_size"] = heads * 2 * r.randint(3, 8)
        if family in ("qwen3", "qwen3_vl", "mixtral"):  # Mixtral's class has no default with yarn
            config["head_dim"] = config["hidden_size"] // heads
    else:
        config |= {"hidden_size": heads * r.randint(20 // heads, 60 // heads), "head_dim": 2 * r.randint(2, 12)}
    special = [random_rope(r, config, family), f"{heads}/{kv_heads}"]
    if family in EXPERTS:
        special.append(EXPERTS[family](r, config))
    if family in ("llama", "qwen3", "qwen3_moe", "glm4_moe", "smollm3", "olmoe", "olmo2", "gpt_oss", *BY_TYPE, *NESTED, *LINEAR):
        config["attention_bias"] = r.random() < 0.4
    if family == "gpt_oss":
        config.setdefault("head_dim", config["hidden_size"] // heads)
    if family in ("phi3", "smollm3", "olmoe", "olmo2", "ministral3", "gpt_oss", *BY_TYPE):
        config["pad_token_id"] = None  # the class leaves that row of the table as it is
    if family in ("phi3", "glm4_moe"):
        dim = config.get("head_dim") or config["hidden_size"] // heads
        legal = [part for part in (1.0, 0.75, 0.5, 0.25) if int(dim * part) % 2 == 0 and int(dim * part) > 0]
        config["partial_rotary_factor"] = r.choice(legal)
        if special[0] == "longrope":
            config |= random_longrope(r, int(dim * config["partial_rotary_factor"]) // 2)
        special.append(f"{config['partial_rotary_factor']} of {dim} rotated")
    if family == "minimax_m2":
        config.setdefault("head_dim", 2 * r.randint(2, 8))
        config["rotary_dim"] = 2 * r.randint(1, config["head_dim"] // 2)
        special.append(f"{config['rotary_dim']} of {config['head_dim']} rotated")
    if family == "gemma3_text":
        del config["hidden_act"]
        config |= {"head_dim": config.get("head_dim", 10), "query_pre_attn_scalar": r.choice([7, 16, 256])}
        config["hidden_size"] += -config["hidden_size"] % heads
        if "rope_parameters" not in config:
            config["rope_local_base_freq"] = r.choice([100.0, 10000.0])
    if family in LINEAR:
        config["head_dim"] = 8 * r.randint(1, 3)
        special.append(random_linear(r, config, layers))
    if family == "smollm3":
        config |= r.choice([{}, {"no_rope_layer_interval": 2}, {"no_rope_layers": [1] * layers}])
        special.append(f"positions {config.get('no_rope_layer_interval', config.get('no_rope_layers', 4))}")
    if family in ("llama", "smollm3"):
        config["mlp_bias"] = r.random() < 0.4
    window = r.choice([None, 1, 5, 12, 1000])
    if family in (*BY_TYPE, "gpt_oss"):
        every = r.choice([1, 2, 3, 4, 9])
        types = ["full_attention" if number % every == 0 else "sliding_attention" for number in range(1, layers + 1)]
        config |= {"sliding_window": window or 3} | ({} if every == {"olmo3": 4, "gpt_oss": 2}.get(family) else {"layer_types": types})
        special.append(f"window {config['sliding_window']} but in each {every}th layer")
    if family in WINDOWS_OF_ALL:
        config["sliding_window"] = window
    if family in WINDOWS_FROM_LAYER:
        config |= {
            "use_sliding_window": window is not None,
            "sliding_window": window or 4,
            "max_window_layers": r.randint(0, layers),
        }
    if family in WINDOWS_OF_ALL + WINDOWS_FROM_LAYER and window:
        special.append(f"window {window}")
    if config["tie_word_embeddings"]:
        special.append("tied")
    if family in NESTED:
        config = nested(config)
    return config, ", ".join(special)


def random_optimizer(r, steps):
    options = {
        "learning_rate": r.choice([0.001, 0.004]),
        "warmup_steps": r.choice([0, 1, 3]),
        "schedule": r.choice(["constant", "linear", "cosine", "wsd", "inverse_sqrt", "rex"]),
        "min_ratio": r.choice([0.0, 0.1, 0.5]),
        "clip_norm": r.choice([0, 0.5, 1.0, 100.0]),
        "weight_decay": r.choice([0.0, 0.1, 0.5]),
        "beta1": r.choice([0.9, 0.8]),
        "beta2": r.choice([0.95, 0.999]),
    }
    if options["schedule"] == "wsd":
        options |= {
            "decay_steps": r.randint(1, steps - options["warmup_steps"]),
            "wsd_tail": r.choice(["linear", "cosine", "sqrt"]),
        }
    return options


def make_case(folder, seed, ranks, families, multi_token=tuple(f for f in FAMILIES if f not in (*NESTED, "gemma3_text", "gpt_oss"))):
    """Writes model, tokens and deck; returns what reference.train needs, and a description.

    multi_token: the families that may have multi-token prediction.
    """
    r = random.Random(seed)
    length, steps = r.randint(5, 45), 10
    config, special = random_config(r, length, families)
    if config["model_type"] in LINEAR and r.random() < 0.4:
        length += 70  # more than one chunk
    text = config.get("text_config", config)
    model = random_router_options(r, config)
    further = random.Random(f"further tokens {seed}")  # of its own, so that other draws stay as they were
    if config["model_type"] in multi_token and config["model_type"] != "gpt2" and further.random() < 0.25:
        depths = [1] if config["model_type"] in LINEAR else [1, 2]
        model |= {"mtp_depth": further.choice(depths), "mtp_loss_factor": further.choice([0.1, 0.7])}
    storage, shards = r.choice(["F32", "BF16", "F16"]), r.choice([1, 1, 2, 4])
    depth = model.get("mtp_depth", 0)
    files.write_model(os.path.join(folder, "model"), config, seed, storage, shards, depth=depth)
    microbatch = r.choice([1, 2, 3])
    batch = microbatch * ranks * r.choice([1, 2])
    end_token = None if config["model_type"] in (*NESTED, *LINEAR) else r.choice([None, None, 7])
    kind = r.choice(["uint16", "uint32"])
    suffix = r.choice([".bin", ".bin", ".npy"])
    data, paths = [], []
    for i in range(r.choice([1, 1, 3])):
        count = length * r.randint(1, batch * steps) + r.randint(1, length)
        data.append(files.random_tokens(count, text["vocab_size"], seed * 10 + i, end_token))
        paths.append(os.path.join(folder, f"tokens_{i}{suffix}"))
        files.write_tokens(paths[-1], data[-1], kind)
    train = {
        "steps": steps,
        "global_batch_sequences": batch,
        "microbatch_sequences": microbatch,
        "sequence_tokens": length,
        "recompute": r.choice(["none", "selective", "full"]),
    }
    if r.random() < 0.3:
        train["z_loss_coefficient"] = 0.003
    optimizer = random_optimizer(r, steps)
    sections = {
        "model": {"hf": os.path.join(folder, "model"), "load_weights": True} | model,
        "train": train | {"precision": "fp64"},
        "optimizer": optimizer,
        "data": {"files": paths} | ({} if suffix == ".npy" else {"dtype": kind}),
        "output": {"directory": os.path.join(folder, "run")},
    }
    if end_token is not None:
        sections["data"]["document_end_token"] = end_token
    with open(os.path.join(folder, "input.yaml"), "w") as file:
        file.write(files.deck_text(sections))
    extras = [storage] + ["documents"] * (end_token is not None) + ["z-loss"] * ("z_loss_coefficient" in train)
    shown = f"{config['model_type']} ({special}), T {length}, {batch}/{microbatch}, {optimizer['schedule']}, "
    shown += ", ".join(extras + [f"{key} {value}" for key, value in model.items()])
    return data, train, optimizer, end_token, "fp64", model, shown


def run_forge(arguments, verb, folder, more=()):
    command = [arguments.forge, verb, os.path.join(folder, "input.yaml"), *more]
    for setting in arguments.set:
        command += ["--set", setting]
    if arguments.n > 1:
        command = [MPIRUN, str(arguments.n), *command]
    run(command)


def run(command):
    """Runs a program; RuntimeError with its words where it fails."""
    done = subprocess.run(command, env={"OMP_WAIT_POLICY": "passive", **os.environ}, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def relative(values, expected):
    if len(values) != len(expected):
        return float("inf")
    return max(
        (abs(a - b) / max(abs(b), 1e-300) if a != b else 0.0) if a == a else float("inf")
        for a, b in zip(values, expected)
    )


def compare(folder, record, gradients):
    """Errors by quantity, and the gradient that is furthest off."""
    with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
        lines = [line for line in map(json.loads, file) if "loss" in line]
    errors = {key: relative([line[key] for line in lines], values) for key, values in record.items()}
    mine = load_file(os.path.join(folder, "g.safetensors"))
    if set(mine) != set(gradients):
        return errors | {"gradients": float("inf")}, f"names differ: {sorted(set(mine) ^ set(gradients))[:4]}"
    floor, worst = GRADIENT_FLOOR * max(g.abs().max().item() for g in gradients.values()), ("", 0.0)
    for name, g in gradients.items():
        if mine[name].shape != g.shape or mine[name].dtype != torch.float64:
            return errors | {"gradients": float("inf")}, f"{name} is {mine[name].dtype} {tuple(mine[name].shape)}"
        off = (mine[name] - g).abs().max().item() / max(g.abs().max().item(), floor)
        off = off if off == off else float("inf")
        worst = (name, off) if off >= worst[1] else worst
    return errors | {"gradients": worst[1]}, worst[0]


def add_arguments(parser):
    parser.add_argument("--forge", default="build/cpu/forge")
    parser.add_argument("--seed", type=int, default=1, help="the first case's seed")
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("-n", type=int, default=1, help="ranks")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed on to forge")
    parser.add_argument("--folder", help="keep the cases in this folder")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)


def case_folders(arguments):
    """Seeds, each with a new folder; the folders go at the end unless the caller named one for them."""
    base = os.path.abspath(arguments.folder or tempfile.mkdtemp(prefix="forge_cases_"))
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        folder = os.path.join(base, str(seed))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        yield seed, folder
    if not arguments.folder:
        shutil.rmtree(base)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    arguments.forge = os.path.abspath(arguments.forge)
    failures = 0
    print(f"{'seed':>5s} {'loss':>8s} {'total':>8s} {'norm':>8s} {'rate':>8s} {'gradient':>8s}  case")
    for seed, folder in case_folders(arguments):
        *inputs, text = make_case(folder, seed, arguments.n, arguments.families)
        record, gradients = reference.train(os.path.join(folder, "model"), *inputs)
        try:
            run_forge(arguments, "gradients", folder, ["--output", os.path.join(folder, "g.safetensors")])
            run_forge(arguments, "train", folder)
            errors, worst = compare(folder, record, gradients)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            failures += 1
            print(f"{seed:5d} FAILED {text}\n{error}", flush=True)
            continue
        limits = [LOSS_TOLERANCE] * 4 + [GRADIENT_TOLERANCE]
        good = all(error <= limit for error, limit in zip(errors.values(), limits))
        failures += not good
        print(
            f"{seed:5d} "
            + " ".join(f"{e:8.1e}" for e in errors.values())
            + f"  {text}"
            + ("" if good else f"  FAILED ({worst})"),
            flush=True,
        )
    print(f"{arguments.cases - failures} of {arguments.cases} cases agree")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
