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


def frequencies(config, dim, length):
    """Rotary frequencies (D / 2) of sequences of so many tokens, and the factor on cosines and sines."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = REAL(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    exponent = numpy.arange(0, dim, 2).astype(REAL) / dim
    plain = base**-exponent
    two_pi = 8 * numpy.arctan(REAL(1))
    if kind == "default":
        return plain, REAL(1)
    if kind == "longrope":
        original = REAL(config.get("original_max_position_embeddings", 4096))
        factor = REAL(rope.get("factor", config["max_position_embeddings"] / original))
        divisors = rope["long_factor" if length > original else "short_factor"]
        stretch = numpy.sqrt(1 + numpy.log(factor) / numpy.log(original)) if factor > 1 else 1
        return plain / numpy.array(divisors, REAL), REAL(rope.get("attention_factor") or stretch)
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


# Families whose norms multiply by 1 + weight; and of them those with layers of gated DeltaNet.
ZERO_CENTRED = ("gemma3_text", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
LINEAR = ZERO_CENTRED[1:]


def rotated_part(config):
    """Of a head."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    absent = {"glm4_moe": 0.5} | dict.fromkeys(LINEAR, 0.25)
    absent = absent.get(config["model_type"], 1.0)
    if "rotary_dim" in config:
        absent = config["rotary_dim"] / config["head_dim"]
    return config.get("partial_rotary_factor", rope.get("partial_rotary_factor", absent))


def rotate(x, config, neighbours=False):
    """Rotary embedding of x (B, T, heads, D): pairs (i, i + D/2), or (2i, 2i + 1), turn by position * frequency."""
    part = int(x.shape[-1] * rotated_part(config))
    if part < x.shape[-1]:
        whole = config | {"partial_rotary_factor": 1.0}
        return numpy.concatenate([rotate(x[..., :part], whole, neighbours), x[..., part:]], axis=-1)
    dim = x.shape[-1]
    frequency, factor = frequencies(config, dim, x.shape[1])
    angle = numpy.arange(x.shape[1]).astype(REAL)[:, None] * frequency
    cosine, sine = (factor * numpy.cos(angle))[:, None, :], (factor * numpy.sin(angle))[:, None, :]
    if neighbours:
        out = numpy.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cosine - x[..., 1::2] * sine
        out[..., 1::2] = x[..., 1::2] * cosine + x[..., 0::2] * sine
        return out
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return numpy.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def rms_norm(x, weight, epsilon):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + REAL(epsilon)) * weight


def layer_norm(x, weight, bias, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + REAL(epsilon)) * weight + bias


def attention(q, k, v, window, documents, scale=REAL(1), own=None, layer="", sinks=None):
    """q (B, T, H, D), k (B, T, K, D), v (B, T, K, any); each query reads its own list of keys.

    sinks (H): numbers beside a head's scores in its softmax, without a value.
    own: {"cap": of scores, 0 = none, "peaks": by layer, the largest score of each head}.
    """
    batch, length, heads, dim = q.shape
    group = heads // k.shape[2]
    out = numpy.zeros((batch, length, heads, v.shape[-1]), REAL)
    for b in range(batch):
        for t in range(length):
            keys = [s for s in range(t + 1) if documents[b][s] == documents[b][t] and (not window or t - s < window)]
            for h in range(heads):
                score = scale * (k[b, keys, h // group] @ q[b, t, h]) / numpy.sqrt(REAL(dim))
                if own:
                    peaks = own["peaks"].setdefault(layer, numpy.full(heads, -numpy.inf, REAL))
                    peaks[h] = max(peaks[h], score.max())
                if own and own["cap"]:
                    score = own["cap"] * numpy.tanh(score / own["cap"])
                top = score.max() if sinks is None else max(score.max(), sinks[h])
                weight, rest = numpy.exp(score - top), REAL(0) if sinks is None else numpy.exp(sinks[h] - top)
                out[b, t, h] = (weight / (weight.sum() + rest)) @ v[b, keys, h // group]
    return out.reshape(batch, length, -1)


def document_numbers(inputs, end_token):
    documents = []
    for row in inputs:
        number, numbers = 0, []
        for token in row:
            numbers.append(number)
            number += token == end_token
        documents.append(numbers)
    return documents


def has_window(config, layer):
    """Of OLMo 3: three of four layers, where config.json doesn't list them; of Gemma 3: five of six; gpt-oss: half."""
    types, every = config.get("layer_types"), {"gemma3_text": 6, "gpt_oss": 2}.get(config["model_type"], 4)
    every = config.get("sliding_window_pattern", every)
    return types[layer] == "sliding_attention" if types else (layer + 1) % every != 0


def rotary_config(config, layer):
    """A config whose rotary parameters are those of the layer: OLMo 3 stretches those of layers without a window."""
    if config["model_type"] not in ("olmo3", "gemma3_text"):
        return config
    by_type = config.get("rope_parameters") or {}
    gemma = config["model_type"] == "gemma3_text"
    if has_window(config, layer):
        theta = config.get("rope_local_base_freq", 10000.0) if gemma else 500000.0
        rope = {"rope_theta": theta} | by_type.get("sliding_attention", {})
    else:
        theta = config.get("rope_theta", 1000000.0 if gemma else 500000.0)
        rope = {"rope_theta": theta} | by_type.get("full_attention", {})
        rope |= config.get("rope_scaling") or {}
    return config | {"rope_scaling": None, "rope_theta": rope["rope_theta"], "rope_parameters": rope}


def silu(x):
    return x / (1 + numpy.exp(-x))


def query_scale(rope, length):
    """Ministral 3's, of each position."""
    times = numpy.arange(length) // rope["original_max_position_embeddings"]
    return 1 + REAL(rope["llama_4_scaling_beta"]) * numpy.log(1 + times.astype(REAL))


def plain_attention(config, w, p, rows, layer, documents):
    """Attention of all families but GPT-2 and DeepSeek's; they differ in biases, head norms and windows."""
    kind, heads, eps = config["model_type"], config["num_attention_heads"], config["rms_norm_eps"]
    kv_heads = config.get("num_key_value_heads") or heads
    dim = config.get("head_dim") or config["hidden_size"] // heads

    def linear(name, x):
        out = x @ w[p + name + ".weight"].T
        return out + w[p + name + ".bias"] if p + name + ".bias" in w else out

    window = config.get("sliding_window") if kind in ("mistral", "mixtral", "phi3", "ministral3") else None
    if kind in ("qwen2", "qwen3") and config.get("use_sliding_window") and layer >= config["max_window_layers"]:
        window = config["sliding_window"]
    if kind == "qwen3_moe" and config.get("use_sliding_window"):
        window = config["sliding_window"]
    if kind in ("olmo3", "gemma3_text", "gpt_oss") and has_window(config, layer):
        window = config["sliding_window"]
    if p + "self_attn.qkv_proj.weight" in w:
        parts = numpy.split(linear("self_attn.qkv_proj", rows), [heads * dim, (heads + kv_heads) * dim], axis=-1)
    else:
        parts = [linear(f"self_attn.{name}_proj", rows) for name in "qkv"]
    if kind in ("olmoe", "olmo2", "olmo3", "minimax_m2"):
        parts[:2] = (rms_norm(parts[i], w[f"{p}self_attn.{'qk'[i]}_norm.weight"], eps) for i in range(2))
    gate = None
    if kind in LINEAR:  # behind each head's rows stand its gate's
        parts[0], gate = (
            x.reshape(*rows.shape[:2], -1)
            for x in numpy.split(parts[0].reshape(*rows.shape[:2], heads, 2 * dim), 2, axis=-1)
        )
    q, k, v = (x.reshape(*rows.shape[:2], -1, dim) for x in parts)
    if kind in ("qwen3", "qwen3_moe") or config.get("use_qk_norm"):
        q = rms_norm(q, w[p + "self_attn.q_norm.weight"], eps)
        k = rms_norm(k, w[p + "self_attn.k_norm.weight"], eps)
    if kind in ZERO_CENTRED:
        q = rms_norm(q, 1 + w[p + "self_attn.q_norm.weight"], eps)
        k = rms_norm(k, 1 + w[p + "self_attn.k_norm.weight"], eps)
    if kind == "gemma3_text":
        q = q * numpy.sqrt(REAL(dim) / REAL(config.get("query_pre_attn_scalar", 256)))
    if kind == "ministral3":
        q = q * query_scale(config["rope_parameters"], rows.shape[1])[:, None, None]
    if config.get("no_rope_layers", [1] * (layer + 1))[layer]:
        q, k = (rotate(x, rotary_config(config, layer)) for x in (q, k))
    out = attention(q, k, v, window, documents, own=config.get("own"), layer=p, sinks=w.get(p + "self_attn.sinks"))
    return linear("self_attn.o_proj", out if gate is None else out / (1 + numpy.exp(-gate)))


def convolved(x, taps, documents):
    """silu of the causal convolution of each channel of x (B, T, channels) with its taps, within documents."""
    out, count = numpy.zeros_like(x), taps.shape[-1]
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            for j in range(min(count, t + 1)):
                if documents[b][t - j] == documents[b][t]:
                    out[b, t] += taps[:, 0, count - 1 - j] * x[b, t - j]
    return silu(out)


def delta_rule(q, k, v, decay, beta, documents):
    """S <- decay S; S <- S + k (beta (v - S^T k))^T; S^T q of each head (B, T, H, .), from 0 in each document."""
    out = numpy.zeros_like(v)
    for b in range(v.shape[0]):
        for h in range(v.shape[2]):
            state = numpy.zeros((q.shape[-1], v.shape[-1]), REAL)
            for t in range(v.shape[1]):
                state = state * (decay[b, t, h] if t and documents[b][t - 1] == documents[b][t] else 0)
                state = state + numpy.outer(k[b, t, h], beta[b, t, h] * (v[b, t, h] - k[b, t, h] @ state))
                out[b, t, h] = q[b, t, h] @ state
    return out


def by_head(rows, heads, widths, first):
    """Rows (B, T, heads * sum(widths)), of each head parts of these widths: the first ones of all heads, and the others."""
    parts = numpy.split(rows.reshape(*rows.shape[:2], heads, -1), numpy.cumsum(widths)[:-1], axis=-1)
    parts = [part.reshape(*rows.shape[:2], -1) for part in parts]
    return [numpy.concatenate(some, axis=-1) for some in (parts[:first], parts[first:])]


def has_delta_net(config, layer):
    if config["model_type"] not in LINEAR or layer >= config["num_hidden_layers"]:
        return False
    if "layer_types" in config:
        return config["layer_types"][layer] == "linear_attention"
    return (layer + 1) % config.get("full_attention_interval", 4) != 0


def gated_delta_net(config, w, p, rows, documents):
    """Qwen3.5's; q, k and v are of unit length, but for q's 1 / sqrt(D)."""
    p, shape = p + "linear_attn.", rows.shape[:2]
    heads, dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    of_values = config["linear_num_value_heads"], config["linear_value_head_dim"]
    times = of_values[0] // heads
    if config["model_type"] == "qwen3_next":  # of each key head its own rows, one behind the other
        of_key = times * of_values[1]
        qkv, z = by_head(rows @ w[p + "in_proj_qkvz.weight"].T, heads, [dim, dim, of_key, of_key], 3)
        b, a = by_head(rows @ w[p + "in_proj_ba.weight"].T, heads, [times, times], 1)
    else:
        qkv, z, b, a = (rows @ w[f"{p}in_proj_{part}.weight"].T for part in ("qkv", "z", "b", "a"))
    mixed = convolved(qkv, w[p + "conv1d.weight"], documents)
    q, k, v = numpy.split(mixed, [heads * dim, 2 * heads * dim], axis=-1)
    q, k = (numpy.repeat(x.reshape(*shape, heads, dim), times, axis=2) for x in (q, k))
    q, k = (x / numpy.sqrt((x * x).sum(-1, keepdims=True) + REAL("1e-6")) for x in (q, k))
    beta = 1 / (1 + numpy.exp(-b))
    steps = numpy.log1p(numpy.exp(a + w[p + "dt_bias"]))
    decay = numpy.exp(-numpy.exp(w[p + "A_log"]) * steps)
    out = delta_rule(q / numpy.sqrt(REAL(dim)), k, v.reshape(*shape, *of_values), decay, beta, documents)
    out = rms_norm(out, w[p + "norm.weight"], config["rms_norm_eps"])
    out = out * silu(z.reshape(*shape, *of_values))
    return out.reshape(*shape, -1) @ w[p + "out_proj.weight"].T


def latent_attention(config, w, p, rows, documents):
    """DeepSeek's: of a head's query and key, qk_nope entries stay and qk_rope turn; one turned key for all heads."""
    layer, own = p, config.get("own")
    p, heads, latent_eps = p + "self_attn.", config["num_attention_heads"], 1e-6
    nope, rope, latent = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["kv_lora_rank"]
    neighbours = config.get("rope_interleave", True)
    shape = (*rows.shape[:2], heads)
    if config.get("q_lora_rank"):
        down = rms_norm(rows @ w[p + "q_a_proj.weight"].T, w[p + "q_a_layernorm.weight"], latent_eps)
        q = (down @ w[p + "q_b_proj.weight"].T).reshape(*shape, nope + rope)
    else:
        q = (rows @ w[p + "q_proj.weight"].T).reshape(*shape, nope + rope)
    down = rows @ w[p + "kv_a_proj_with_mqa.weight"].T
    turned = rotate(down[..., None, latent:], config, neighbours)
    down = rms_norm(down[..., :latent], w[p + "kv_a_layernorm.weight"], latent_eps)
    both = (down @ w[p + "kv_b_proj.weight"].T).reshape(*shape, nope + config["v_head_dim"])
    k = numpy.concatenate([both[..., :nope], numpy.broadcast_to(turned, (*shape, rope))], axis=-1)
    q = numpy.concatenate([q[..., :nope], rotate(q[..., nope:], config, neighbours)], axis=-1)
    scaling, scale = config.get("rope_parameters") or config.get("rope_scaling") or {}, REAL(1)
    if scaling.get("mscale_all_dim") and scaling["factor"] > 1:
        scale = (REAL(scaling["mscale_all_dim"]) * numpy.log(REAL(scaling["factor"])) / 10 + 1) ** 2
    return attention(q, k, both[..., nope:], None, documents, scale, own, layer) @ w[p + "o_proj.weight"].T


def best(scores, count):
    """Indices of the `count` largest of a row."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])[:count]


def chosen_experts(config, scores, bias):
    """Experts of one token."""
    groups, used = config.get("n_group", 1), config.get("topk_group", 1)
    best_of_group = 1 if config["model_type"] == "deepseek_v2" else 2
    if config.get("topk_method") == "greedy":
        groups = 1
    ranked = scores + bias
    if groups > 1:
        members = ranked.reshape(groups, -1)
        kept = best([sum(sorted(member)[-best_of_group:]) for member in members], used)
        size = members.shape[1]
        ranked = numpy.array([r if i // size in kept else -numpy.inf for i, r in enumerate(ranked)])
    return best(ranked, config["num_experts_per_tok"])


def gpt_oss_experts(config, w, p, rows, routing):
    """Its gates and ups take turns in the columns of one matrix (E, C, 2 F); weights are a softmax over the chosen."""
    x, limit, alpha = rows.reshape(-1, rows.shape[-1]), REAL(config["swiglu_limit"]), REAL(config["swiglu_alpha"])
    logits = x @ w[p + "router.weight"].T + w[p + "router.bias"]
    shares = numpy.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True)
    chosen = routing.next() or [best(row, config["num_experts_per_tok"]) for row in logits]
    routing.done.append((logits, shares, chosen))
    out, p = numpy.zeros_like(x), p + "experts."
    for r, row in enumerate(x):
        weights = numpy.exp(logits[r, chosen[r]] - logits[r, chosen[r]].max())
        for e, weight in zip(chosen[r], weights / weights.sum()):
            both = row @ w[p + "gate_up_proj"][e] + w[p + "gate_up_proj_bias"][e]
            gate, up = both[0::2], both[1::2]
            gate = numpy.where(routing.side(gate > limit), limit, gate)
            up = numpy.where(routing.side(up > limit), limit, numpy.where(routing.side(up < -limit), -limit, up))
            inner = gate / (1 + numpy.exp(-alpha * gate)) * (up + 1)
            out[r] += weight * (inner @ w[p + "down_proj"][e] + w[p + "down_proj_bias"][e])
    return out.reshape(rows.shape)


def experts(config, w, p, rows, routing):
    """A layer's experts on rows (B, T, C). `routing` gets what the router did, and may say which experts to choose."""
    kind = config["model_type"]
    if kind == "gpt_oss":
        return gpt_oss_experts(config, w, p + "mlp.", rows, routing)
    mixtral_names = kind in ("mixtral", "minimax_m2")
    gate, up, down = ("w1", "w3", "w2") if mixtral_names else ("gate_proj", "up_proj", "down_proj")
    p += "block_sparse_moe." if mixtral_names else "mlp."
    x = rows.reshape(-1, rows.shape[-1])
    logits = x @ w[p + "gate.weight"].T
    if kind in ("deepseek_v3", "glm4_moe", "minimax_m2"):
        scores = 1 / (1 + numpy.exp(-logits))
        shares = scores / scores.sum(-1, keepdims=True)
    else:
        scores = numpy.exp(logits - logits.max(-1, keepdims=True))
        shares = scores = scores / scores.sum(-1, keepdims=True)
    bias = w.get(p + ("" if mixtral_names else "gate.") + "e_score_correction_bias", REAL(0))
    chosen = routing.next() or [chosen_experts(config, row, bias) for row in scores]
    routing.done.append((logits, shares, chosen))
    out = numpy.zeros_like(x)
    for r, row in enumerate(x):
        weights = scores[r, chosen[r]]
        if mixtral_names or kind in LINEAR or (config.get("norm_topk_prob") and kind != "deepseek_v2"):
            weights = weights / weights.sum()
        for e, weight in zip(chosen[r], weights * REAL(config.get("routed_scaling_factor", 1))):
            q = f"{p}experts.{e}."
            inner = silu(w[q + gate + ".weight"] @ row) * (w[q + up + ".weight"] @ row)
            out[r] += weight * (w[q + down + ".weight"] @ inner)
    if p + "shared_experts.up_proj.weight" in w:
        out = out + feed_forward(w, p + "shared_experts.", x)
    if p + "shared_expert.up_proj.weight" in w:
        gate = 1 / (1 + numpy.exp(-(x @ w[p + "shared_expert_gate.weight"].T)))
        out = out + gate * feed_forward(w, p + "shared_expert.", x)
    return out.reshape(rows.shape)


def gelu_tanh(x):
    root = numpy.sqrt(1 / (2 * numpy.arctan(REAL(1))))  # sqrt(2 / pi)
    return x / 2 * (1 + numpy.tanh(root * (x + REAL(0.044715) * x * x * x)))


def feed_forward(w, p, rows, activation=silu):
    def linear(name, x):
        out = x @ w[p + name + ".weight"].T
        return out + w[p + name + ".bias"] if p + name + ".bias" in w else out

    if p + "gate_up_proj.weight" in w:
        gate, up = numpy.split(linear("gate_up_proj", rows), 2, axis=-1)
    else:
        gate, up = linear("gate_proj", rows), linear("up_proj", rows)
    return linear("down_proj", activation(gate) * up)


class Routing:
    """What routers did in a forward pass, layer by layer; the next pass may be made to choose the same experts.

    Likewise on which side of their limits activations were, whose slope jumps there.
    """

    def __init__(self, earlier=None):
        self.earlier = [chosen for _, _, chosen in earlier.done] if earlier else []
        self.done = []
        self.earlier_sides, self.sides = earlier.sides if earlier else [], []

    def side(self, beyond):
        self.sides.append(self.earlier_sides[len(self.sides)] if self.earlier_sides else beyond)
        return self.sides[-1]

    def next(self):
        return self.earlier[len(self.done)] if self.earlier else None

    def auxiliary_loss(self, sequences, scope):
        """Sum over layers of E sum_i f_i P_i, meaned over groups of `scope` consecutive sequences."""
        total = REAL(0)
        for _, shares, chosen in self.done:
            rows = len(chosen) // sequences * scope
            for first in range(0, len(chosen), rows):
                part = chosen[first : first + rows]
                counts = numpy.zeros(shares.shape[1], REAL)
                for row in part:
                    counts[row] += 1
                total += shares.shape[1] * (counts / counts.sum()) @ shares[first : first + rows].mean(0)
        return total * scope / sequences

    def z_loss(self):
        return sum((numpy.log(numpy.exp(logits).sum(-1)) ** 2).mean() for logits, _, _ in self.done)

    def moved_biases(self, weights, rate):
        """Weights whose router biases went towards experts that got less than the mean."""
        names = sorted((k for k in weights if k.endswith("e_score_correction_bias")), key=layer_of)
        moved = dict(weights)
        for name, (_, shares, chosen) in zip(names, self.done):
            counts = numpy.zeros(shares.shape[1])
            for row in chosen:
                counts[row] += 1
            moved[name] = weights[name] + REAL(rate) * numpy.sign(counts.mean() - counts)
        return moved


def layer_of(name):
    return int(name.split(".layers.")[1].split(".")[0])


def has_experts(config, layer):
    kind = config["model_type"]
    if kind in ("deepseek_v2", "deepseek_v3", "glm4_moe"):
        return layer >= config["first_k_dense_replace"]
    if kind in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
        count = config.get("num_local_experts") or config.get("num_experts")
        step = config.get("decoder_sparse_step", 1)
        return count > 0 and layer not in (config.get("mlp_only_layers") or []) and (layer + 1) % step == 0
    return kind in ("mixtral", "olmoe", "minimax_m2", "gpt_oss", "qwen3_5_moe_text")


def llama_layer(config, w, layer, x, documents, routing):
    """Layers behind the last one, of multi-token prediction, are of its kind, but have attention."""
    eps, p, delta_net = config["rms_norm_eps"], f"model.layers.{layer}.", has_delta_net(config, layer)
    layer = min(layer, config["num_hidden_layers"] - 1)
    if config["model_type"] in ("olmo2", "olmo3"):  # norms of what joins the stream
        out = plain_attention(config, w, p, x, layer, documents)
        x = x + rms_norm(out, w[p + "post_attention_layernorm.weight"], eps)
        return x + rms_norm(feed_forward(w, p + "mlp.", x), w[p + "post_feedforward_layernorm.weight"], eps)
    if config["model_type"] == "gemma3_text":  # norms of both
        norm = lambda name, rows: rms_norm(rows, 1 + w[f"{p}{name}_layernorm.weight"], eps)
        x = x + norm("post_attention", plain_attention(config, w, p, norm("input", x), layer, documents))
        out = feed_forward(w, p + "mlp.", norm("pre_feedforward", x), gelu_tanh)
        return x + norm("post_feedforward", out)
    offset = 1 if config["model_type"] in ZERO_CENTRED else 0
    rows = rms_norm(x, offset + w[p + "input_layernorm.weight"], eps)
    if delta_net:
        x = x + gated_delta_net(config, w, p, rows, documents)
    elif config["model_type"] in ("deepseek_v2", "deepseek_v3"):
        x = x + latent_attention(config, w, p, rows, documents)
    else:
        x = x + plain_attention(config, w, p, rows, layer, documents)
    rows = rms_norm(x, offset + w[p + "post_attention_layernorm.weight"], eps)
    if has_experts(config, layer):
        return x + experts(config, w, p, rows, routing)
    return x + feed_forward(w, p + "mlp.", rows)


def llama_logits(config, w, inputs, documents, routing):
    """All families but GPT-2: logits, and the last hidden state behind the final norm."""
    x, offset = w["model.embed_tokens.weight"][inputs], 1 if config["model_type"] in ZERO_CENTRED else 0
    if config["model_type"] == "gemma3_text":
        x = x * numpy.sqrt(REAL(config["hidden_size"]))
    for layer in range(config["num_hidden_layers"]):
        x = llama_layer(config, w, layer, x, documents, routing)
    x = rms_norm(x, w["model.norm.weight"] + offset, config["rms_norm_eps"])
    return x @ output_matrix(config, w).T, x


def output_matrix(config, w):
    tied = config.get("tie_word_embeddings", config["model_type"] in ("smollm3", "gemma3_text"))
    return w["model.embed_tokens.weight" if tied else "lm_head.weight"]


# Multi-token prediction of the families with gated DeltaNet: names in their files, and behind the layer's in others'.
MULTI_TOKEN = {
    "layers.0.": "",
    "norm.": "shared_head.norm.",
    "pre_fc_norm_embedding.": "enorm.",
    "pre_fc_norm_hidden.": "hnorm.",
    "fc.": "eh_proj.",
}


def common_names(config, w):
    """Weights under the names that multi-token prediction has in most files."""
    own = {f"mtp.{name}": f"model.layers.{config['num_hidden_layers']}.{other}" for name, other in MULTI_TOKEN.items()}

    def common(name):
        found = next((begin for begin in own if name.startswith(begin)), "")
        return own[found] + name.removeprefix(found) if found else name

    return {common(name): values for name, values in w.items()}


def multi_token_losses(config, w, depths, hidden, inputs, labels, documents, end_token, routing):
    """Cross-entropy of each depth of multi-token prediction over its own labels."""
    result, (batch, length), w = [], inputs.shape, common_names(config, w)
    offset = 1 if config["model_type"] in ZERO_CENTRED else 0
    norm = lambda name, rows: rms_norm(rows, offset + w[name + ".weight"], config["rms_norm_eps"])
    for depth in range(1, depths + 1):
        table = w["model.embed_tokens.weight"]
        p = f"model.layers.{config['num_hidden_layers'] + depth - 1}."
        embedded, targets = numpy.zeros_like(hidden), {}
        for b in range(batch):
            sample = [*inputs[b], labels[b, -1]]
            for t in range(length):
                # What may be seen ends with the document.
                seen = t + 1
                while seen <= length and sample[seen - 1] != end_token:
                    seen += 1
                if t + depth < seen:
                    embedded[b, t] = table[sample[t + depth]]
                if t + depth + 1 < seen:
                    targets[b, t] = sample[t + depth + 1]
        both = [norm(p + "enorm", embedded), norm(p + "hnorm", hidden)]
        hidden = numpy.concatenate(both, axis=-1) @ w[p + "eh_proj.weight"].T
        layer = config["num_hidden_layers"] + depth - 1
        hidden = llama_layer(config, w, layer, hidden, documents, routing)
        hidden = norm(p + "shared_head.norm", hidden)
        logits = hidden @ output_matrix(config, w).T
        top = logits.max(-1)
        lse = top + numpy.log(numpy.exp(logits - top[..., None]).sum(-1))
        result.append(sum(lse[at] - logits[at][token] for at, token in targets.items()) / len(targets))
    return result


def gpt2_logits(config, w, inputs, documents, _):
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
        x = x + linear(p + "mlp.c_proj", gelu_tanh(up))
    return norm("transformer.ln_f", x) @ table.T, x


def losses(config, weights, inputs, labels, end_token=None, z_coefficient=0.0, router=None, routing=None, mtp=(0, 0)):
    """loss and total_loss of a batch: means over the labels that don't follow an end token.

    router: coefficients of the auxiliary loss and of the router's z-loss, and the auxiliary loss's number of sequences.
    mtp: depths of multi-token prediction, and the factor of their mean loss.
    routing: an empty Routing, or one that says which experts to choose; holds afterwards what routers did.
    """
    documents, routing = document_numbers(inputs, end_token), routing or Routing()
    model = gpt2_logits if config["model_type"] == "gpt2" else llama_logits
    logits, hidden = model(config, weights, inputs, documents, routing)
    if cap := config.get("own", {}).get("logit_cap"):
        logits = cap * numpy.tanh(logits / cap)
    top = logits.max(-1)
    lse = top + numpy.log(numpy.exp(logits - top[..., None]).sum(-1))
    picked = numpy.take_along_axis(logits, labels[..., None], -1)[..., 0]
    kept = numpy.ones(inputs.shape, bool) if end_token is None else inputs != end_token
    loss = (lse - picked)[kept].sum() / kept.sum()
    total = loss + REAL(z_coefficient) * (lse[kept] ** 2).sum() / kept.sum()
    further = multi_token_losses(config, weights, mtp[0], hidden, inputs, labels, documents, end_token, routing)
    if further:
        total += REAL(mtp[1]) * sum(further) / len(further)
    if routing.done:
        auxiliary, z, scope = router or (0, 0, 1)
        total += REAL(auxiliary) * routing.auxiliary_loss(len(inputs), scope) + REAL(z) * routing.z_loss()
    return loss, total
