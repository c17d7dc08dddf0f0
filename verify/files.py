"""What a problem's folder holds: weights, token files, the deck and the reference."""

import json
import math
import os

import numpy
import torch
from safetensors.torch import save_file

import reference

STORAGE = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def random_weights(model, seed):
    """Random values with which every gradient is well away from zero: unit-gain matrices, norms away from 1."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    weights = {}
    for name, parameter in reference.trained_parameters(model).items():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if "norm" in name or ".ln_" in name:
            values = 0.1 * values if name.endswith("bias") else 1 + 0.2 * values
            zero_centred = config.model_type in ("gemma3_text", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
            if zero_centred and ".linear_attn." not in name:  # which multiplies by 1 + weight
                values = values - 1
        elif name.endswith("bias"):
            values = 0.2 * values
        elif name.endswith(".sinks"):
            pass
        elif "wte" in name or "embed_tokens" in name:
            values = values * (1.5 / math.sqrt(parameter.shape[1]) if config.tie_word_embeddings else 1.0)
        elif "wpe" in name:
            values = 0.3 * values
        else:  # GPT-2's matrices are (in, out), as gpt-oss's experts' are, all others (out, in)
            turned = config.model_type == "gpt2" or (config.model_type == "gpt_oss" and parameter.ndim == 3)
            fan_in = parameter.shape[-2] if turned else parameter.shape[-1]
            values = values / math.sqrt(fan_in)
        weights[name] = values
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            weights[name] = 0.1 * torch.randn(buffer.shape, generator=generator, dtype=torch.float64)
    return reference.file_names(config, weights)


def write_model(directory, config, seed, storage="F32", shards=1, hub_names=False, depth=0):
    """Writes config.json and the weights: `shards` files with an index if more than one.

    depth: modules of multi-token prediction. hub_names writes GPT-2's tensors as the files on the hub have them: no prefix, and a causal mask for each layer.
    """
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(directory):
        if name.endswith((".safetensors", ".json")):
            os.remove(os.path.join(directory, name))
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    model = reference.new_model(directory, "fp32", depth)
    weights = random_weights(model, seed)
    if reference.beside_image(model.config):
        weights = reference.names_beside_image(model.config, weights)
        weights |= {k: v for k, v in model.state_dict().items() if k.startswith("model.visual.")}
    weights = {k: v.to(STORAGE[storage]) for k, v in weights.items()}
    if hub_names:
        weights = {k.removeprefix("transformer."): v for k, v in weights.items()}
        positions = config["n_positions"]
        for layer in range(config["n_layer"]):
            mask = torch.ones(positions, positions, dtype=STORAGE[storage]).tril().view(1, 1, positions, positions)
            weights[f"h.{layer}.attn.bias"] = mask
    weights = {k: v.contiguous() for k, v in weights.items()}
    if shards == 1:
        save_file(weights, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
        return
    names, places = list(weights), {}
    for shard in range(shards):
        part = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        filename = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file({k: weights[k] for k in part}, os.path.join(directory, filename), metadata={"format": "pt"})
        places.update({k: filename for k in part})
    size = sum(t.numel() * t.element_size() for t in weights.values())
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": size}, "weight_map": places}, file, indent=2)
        file.write("\n")


def random_tokens(count, vocabulary, seed, end_token=None, document_tokens=(1, 20)):
    """Tokens with something to learn: each follows from the one before it, three times in four.

    With an end token, documents of uneven length, down to the end token alone.
    """
    generator = numpy.random.default_rng(seed)
    tokens = generator.integers(0, vocabulary, count)
    follows = generator.random(count) < 0.75
    for i in range(1, count):
        if follows[i]:
            tokens[i] = (7 * tokens[i - 1] + 3) % vocabulary
    if end_token is not None:
        tokens[tokens == end_token] = (end_token + 1) % vocabulary
        at = 0
        while True:
            at += int(generator.integers(document_tokens[0], document_tokens[1] + 1))
            if at > count:
                break
            tokens[at - 1] = end_token
    return tokens


def write_tokens(path, tokens, dtype):
    values = tokens.astype({"uint16": "<u2", "uint32": "<u4"}[dtype])
    if path.endswith(".npy"):
        numpy.save(path, values)
    else:
        values.tofile(path)


def deck_text(sections):
    """A deck as YAML: {section: {key: value}}."""

    def scalar(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key}: {scalar(v)}" for key, v in value.items()) + "}"
        if isinstance(value, str) and "*" in value:
            return f'"{value}"'
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(scalar(v) for v in value) + "]"
        return str(value)

    lines = []
    for section, keys in sections.items():
        lines.append(f"{section}:")
        lines += [f"  {key}: {scalar(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def reference_text(records):
    """reference.yaml: {precision: (record, gradients)}, numbers with 17 digits."""
    lines = []
    for precision, (record, gradients) in records.items():
        lines.append(f"{precision}:")
        for key, values in record.items():
            lines.append(f"  {key}: [" + ", ".join(f"{v:.17g}" for v in values) + "]")
        lines.append("  max_gradient:")
        lines += [f"    {name}: {g.abs().max().item():.17g}" for name, g in sorted(gradients.items())]
    return "\n".join(lines) + "\n"


def write_gradients(path, gradients):
    save_file({k: v.contiguous() for k, v in gradients.items()}, path)
