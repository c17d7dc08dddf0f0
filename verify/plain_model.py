"""The loss of a Hugging Face directory's model, written in numpy alone, in 80-bit floating point.

It shares no code with transformers, PyTorch or forge. Forward only: gradients are checked by difference quotients.
Letters: B batch, T sequence, C width, H heads, K key-value heads, D head size, V vocabulary.
"""

import glob
import json
import os

import numpy

REAL = numpy.longdouble


def read_safetensors(path):
    """Name to array in REAL."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header, data = json.loads(file.read(size)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = numpy.frombuffer(raw, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[entry["dtype"]])
        tensors[name] = values.astype(REAL).reshape(entry["shape"])
    return tensors


def read_directory(directory):
    """config.json and the weights."""
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    weights = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        weights.update(read_safetensors(path))
    if config["model_type"] == "gpt2":
        weights = {
            "transformer." + k.removeprefix("transformer."): v
            for k, v in weights.items()
            if not k.endswith(".attn.bias")
        }
    return config, weights


def frequencies(config, dim):
    """Rotary frequencies (D / 2) and the factor on cosines and sines."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = REAL(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    exponent = numpy.arange(0, dim, 2).astype(REAL) / dim
    plain = base**-exponent
    two_pi = 8 * numpy.arctan(REAL(1))
    if kind == "default":
        return plain, REAL(1)
    factor = REAL(rope["factor"])
    if kind == "linear":
        return plain / factor, REAL(1)
    original = REAL(rope["original_max_position_embeddings"])
    if kind == "llama3":
        low, high = REAL(rope["low_freq_factor"]), REAL(rope["high_freq_factor"])
        turns = original * plain / two_pi  # in the original context
        share = numpy.clip((turns - low) / (high - low), 0, 1)
        return (1 - share) * plain / factor + share * plain, REAL(1)
    if kind == "yarn":

        def dimension(turns):
            return dim * numpy.log(original / (REAL(turns) * two_pi)) / (2 * numpy.log(base))

        first, last = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
        if rope.get("truncate", True):
            first, last = numpy.floor(first), numpy.ceil(last)
        first, last = max(first, REAL(0)), min(last, REAL(dim - 1))
        if first == last:
            last = last + REAL(0.001)
        ramp = numpy.clip((numpy.arange(dim // 2).astype(REAL) - first) / (last - first), 0, 1)

        def scale(m):
            return REAL(1) if factor <= 1 else REAL(m) * numpy.log(factor) / 10 + 1

        attention = rope.get("attention_factor")
        if attention is None:
            both = rope.get("mscale") and rope.get("mscale_all_dim")
            attention = scale(rope["mscale"]) / scale(rope["mscale_all_dim"]) if both else scale(1)
        return plain * (1 - ramp) + plain / factor * ramp, REAL(attention)
    raise ValueError(f"rotary scaling {kind}")


def rotate(x, config):
    """Rotary embedding of x (B, T, heads, D): pairs (i, i + D/2) turn by position * frequency."""
    dim = x.shape[-1]
    frequency, factor = frequencies(config, dim)
    angle = numpy.arange(x.shape[1]).astype(REAL)[:, None] * frequency
    cosine, sine = (factor * numpy.cos(angle))[:, None, :], (factor * numpy.sin(angle))[:, None, :]
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return numpy.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def rms_norm(x, weight, epsilon):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + REAL(epsilon)) * weight


def layer_norm(x, weight, bias, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + REAL(epsilon)) * weight + bias


def attention(q, k, v, window, documents):
    """q (B, T, H, D), k and v (B, T, K, D); each query reads its own list of keys."""
    batch, length, heads, dim = q.shape
    group = heads // k.shape[2]
    out = numpy.zeros_like(q)
    for b in range(batch):
        for t in range(length):
            keys = [s for s in range(t + 1) if documents[b][s] == documents[b][t] and (not window or t - s < window)]
            for h in range(heads):
                score = k[b, keys, h // group] @ q[b, t, h] / numpy.sqrt(REAL(dim))
                weight = numpy.exp(score - score.max())
                out[b, t, h] = (weight / weight.sum()) @ v[b, keys, h // group]
    return out.reshape(batch, length, heads * dim)


def document_numbers(inputs, end_token):
    documents = []
    for row in inputs:
        number, numbers = 0, []
        for token in row:
            numbers.append(number)
            number += token == end_token
        documents.append(numbers)
    return documents


def llama_logits(config, w, inputs, documents):
    """Llama, Mistral, Qwen2 and Qwen3, which differ in biases, head norms and windows."""
    kind, heads = config["model_type"], config["num_attention_heads"]
    kv_heads, eps = config.get("num_key_value_heads") or heads, config["rms_norm_eps"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    x = w["model.embed_tokens.weight"][inputs]

    def linear(name, rows):
        out = rows @ w[name + ".weight"].T
        return out + w[name + ".bias"] if name + ".bias" in w else out

    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        window = config.get("sliding_window") if kind == "mistral" else None
        if kind.startswith("qwen") and config.get("use_sliding_window") and layer >= config["max_window_layers"]:
            window = config["sliding_window"]
        rows = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = linear(p + "self_attn.q_proj", rows).reshape(*inputs.shape, heads, dim)
        k = linear(p + "self_attn.k_proj", rows).reshape(*inputs.shape, kv_heads, dim)
        v = linear(p + "self_attn.v_proj", rows).reshape(*inputs.shape, kv_heads, dim)
        if kind == "qwen3":
            q = rms_norm(q, w[p + "self_attn.q_norm.weight"], eps)
            k = rms_norm(k, w[p + "self_attn.k_norm.weight"], eps)
        rows = attention(rotate(q, config), rotate(k, config), v, window, documents)
        x = x + linear(p + "self_attn.o_proj", rows)
        rows = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate = linear(p + "mlp.gate_proj", rows)
        x = x + linear(p + "mlp.down_proj", gate / (1 + numpy.exp(-gate)) * linear(p + "mlp.up_proj", rows))
    x = rms_norm(x, w["model.norm.weight"], eps)
    head = "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
    return x @ w[head].T


def gpt2_logits(config, w, inputs, documents):
    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    table, width = w["transformer.wte.weight"], config["n_embd"]
    x = table[inputs] + w["transformer.wpe.weight"][: inputs.shape[1]]

    def linear(name, rows):
        return rows @ w[name + ".weight"] + w[name + ".bias"]

    def norm(name, rows):
        return layer_norm(rows, w[name + ".weight"], w[name + ".bias"], eps)

    for layer in range(config["n_layer"]):
        p = f"transformer.h.{layer}."
        qkv = linear(p + "attn.c_attn", norm(p + "ln_1", x)).reshape(*inputs.shape, 3, heads, width // heads)
        rows = attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], None, documents)
        x = x + linear(p + "attn.c_proj", rows)
        up = linear(p + "mlp.c_fc", norm(p + "ln_2", x))
        root = numpy.sqrt(1 / (2 * numpy.arctan(REAL(1))))  # sqrt(2 / pi)
        up = up / 2 * (1 + numpy.tanh(root * (up + REAL(0.044715) * up * up * up)))
        x = x + linear(p + "mlp.c_proj", up)
    return norm("transformer.ln_f", x) @ table.T


def losses(config, weights, inputs, labels, end_token=None, z_coefficient=0.0):
    """loss and total_loss of a batch: means over the labels that don't follow an end token."""
    documents = document_numbers(inputs, end_token)
    logits = (gpt2_logits if config["model_type"] == "gpt2" else llama_logits)(config, weights, inputs, documents)
    top = logits.max(-1)
    lse = top + numpy.log(numpy.exp(logits - top[..., None]).sum(-1))
    picked = numpy.take_along_axis(logits, labels[..., None], -1)[..., 0]
    kept = numpy.ones(inputs.shape, bool) if end_token is None else inputs != end_token
    loss = (lse - picked)[kept].sum() / kept.sum()
    return loss, loss + REAL(z_coefficient) * (lse[kept] ** 2).sum() / kept.sum()
