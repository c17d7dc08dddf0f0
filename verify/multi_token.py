"""Multi-token prediction (Liu et al. 2024, "DeepSeek-V3", section 2.2) behind a Hugging Face model class.

Depth d = 1, 2, ...: with h_0 the model's last hidden state behind its final norm,
h_d = RMSNorm(block_d(M_d [RMSNorm(embedding of token t + d), RMSNorm(h_(d-1))])), and the logits of label t + 1 + d are the
model's own output matrix on h_d, as in transformers' MtpModel, which drafts tokens but has no training loss over
documents. Blocks are the class's last layer once more; table and output matrix are the model's.
Of the families with gated DeltaNet the block has attention whatever the last layer has, and the names are those of their
published files, of one depth: their classes leave such tensors out.
"""

import copy

import torch

LINEAR = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")


class Module(torch.nn.Module):
    """One depth."""

    def __init__(self, model):
        super().__init__()
        config, layers = model.config, model.model.layers
        norm = type(model.model.norm)
        self.enorm = norm(config.hidden_size, eps=config.rms_norm_eps)
        self.hnorm = norm(config.hidden_size, eps=config.rms_norm_eps)
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        if config.model_type in LINEAR:
            config = copy.deepcopy(config)
            config.layer_types[-1] = "full_attention"
        self.block = type(layers[-1])(config, len(layers) - 1)
        self.head_norm = norm(config.hidden_size, eps=config.rms_norm_eps)


def attach(model, depth, dtype):
    """Gives a model `depth` modules."""
    if depth > 0:
        model.multi_token = torch.nn.ModuleList([Module(model).to(dtype) for _ in range(depth)])
        model.model.norm.register_forward_hook(lambda norm, arguments, out: setattr(model, "last_hidden", out))


# Names in memory and, behind "model.layers.<layer>.", in checkpoints; and of the families with gated DeltaNet.
NAMES = {"block.": "", "head_norm.": "shared_head.norm.", "enorm.": "enorm.", "hnorm.": "hnorm.", "eh_proj.": "eh_proj."}
OWN_NAMES = {
    "block.": "mtp.layers.0.",
    "head_norm.": "mtp.norm.",
    "enorm.": "mtp.pre_fc_norm_embedding.",
    "hnorm.": "mtp.pre_fc_norm_hidden.",
    "eh_proj.": "mtp.fc.",
}


def file_name(config, name):
    if not name.startswith("multi_token."):
        return name
    _, depth, rest = name.split(".", 2)
    own = config.model_type in LINEAR
    for memory, file in (OWN_NAMES if own else NAMES).items():
        if rest.startswith(memory):
            if own:
                return file + rest.removeprefix(memory)
            return f"model.layers.{config.num_hidden_layers + int(depth)}.{file}{rest.removeprefix(memory)}"
    raise KeyError(name)


def memory_name(config, name):
    for memory, file in OWN_NAMES.items():
        if name.startswith(file):
            return "multi_token.0." + memory + name.removeprefix(file)
    parts = name.split(".", 3)
    if parts[:2] != ["model", "layers"] or int(parts[2]) < config.get_text_config().num_hidden_layers:
        return name
    stem, rest = f"multi_token.{int(parts[2]) - config.get_text_config().num_hidden_layers}.", parts[3]
    for memory, file in NAMES.items():
        if file and rest.startswith(file):
            return stem + memory + rest.removeprefix(file)
    return stem + "block." + rest


def shifted(inputs, labels, documents, end_token, depth, masked):
    """Tokens t + depth and labels t + 1 + depth of each row's sample and document; where there is none, -1 and `masked`."""
    sample = torch.cat([inputs, labels[:, -1:]], dim=1)
    # The document of each token of the sample, the last one included.
    ends = inputs[:, -1:] == (-1 if end_token is None else end_token)
    numbers = torch.cat([documents, documents[:, -1:] + ends.long()], dim=1)

    def ahead(count, missing):
        out = torch.full_like(inputs, missing)
        length = inputs.shape[1] + 1 - count
        same = numbers[:, count:] == numbers[:, :length]
        out[:, :length] = torch.where(same, sample[:, count:], missing)[:, : inputs.shape[1]]
        return out

    return ahead(depth, -1), ahead(depth + 1, masked)


def losses(model, inputs, labels, documents, end_token, mask, masked):
    """The mean cross-entropy of each depth over its own labels; the model's forward pass has just run."""
    hidden, result = model.last_hidden, []
    if mask is None:
        length = inputs.shape[1]
        mask = torch.full((length, length), torch.finfo(hidden.dtype).min, dtype=hidden.dtype).triu(1)[None, None]
    if isinstance(mask, dict):
        mask = mask[model.config.layer_types[-1]]
    positions = torch.arange(inputs.shape[1])[None, :]
    by_type = [model.config.layer_types[-1]] if model.config.model_type == "olmo3" else []
    turned = model.model.rotary_emb(hidden, positions, *by_type)
    for depth, module in enumerate(model.multi_token, 1):
        tokens, targets = shifted(inputs, labels, documents, end_token, depth, masked)
        embedded = model.model.embed_tokens(tokens.clamp(min=0)) * (tokens >= 0)[..., None]
        both = torch.cat([module.enorm(embedded), module.hnorm(hidden)], dim=-1)
        hidden = module.block(
            module.eh_proj(both), attention_mask=mask, position_ids=positions, position_embeddings=turned
        )
        hidden = module.head_norm(hidden[0] if isinstance(hidden, tuple) else hidden)
        logits = model.lm_head(hidden)
        kept = targets != masked
        picked = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        result.append((torch.logsumexp(logits, dim=-1) - picked)[kept].sum() / int(kept.sum()))
    return result
