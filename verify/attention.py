"""Attention of the reference models with what their classes lack: a soft cap of the scores, and their largest values.

Registered as an implementation of attention with transformers; scores, mask and softmax are written out here.
"""

import torch
from transformers import masking_utils
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "reference"


class Attention:
    """cap: c of c tanh(s / c), 0 = none. peaks: by layer, the largest scaled score of each head since clear()."""

    cap, peaks = 0.0, {}

    @classmethod
    def clear(cls):
        cls.peaks = {}

    @classmethod
    def forward(cls, module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        """query (B, H, T, D); key, value (B, K, T, D), K a divisor of H; attention_mask (B, 1, T, T), added."""
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        scores = query @ key.transpose(2, 3) * scaling
        hidden = attention_mask < torch.finfo(scores.dtype).min / 2
        peak = scores.detach().masked_fill(hidden, -torch.inf).amax(dim=(0, 2, 3))
        before = cls.peaks.get(module.layer_idx, peak)
        cls.peaks[module.layer_idx] = torch.maximum(before, peak)
        if cls.cap > 0:
            scores = cls.cap * torch.tanh(scores / cls.cap)
        weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights


ALL_ATTENTION_FUNCTIONS.register(NAME, Attention.forward)
masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, masking_utils.eager_mask)


@torch.no_grad()
def qk_clip(model, most):
    """QK-clip (arXiv 2507.20534) by the largest scores since clear().

    Of grouped heads the key of each takes the root of its group's smallest factor, and each query the rest of its own.
    """
    for module in model.modules():
        peaks = Attention.peaks.get(getattr(module, "layer_idx", None)) if hasattr(module, "o_proj") else None
        if peaks is None:
            continue
        factors = torch.where(peaks > most, most / peaks, torch.ones_like(peaks))
        if hasattr(module, "kv_b_proj"):
            nope, rope, width = module.qk_nope_head_dim, module.qk_rope_head_dim, module.v_head_dim
            roots = factors.sqrt()[:, None]
            up = module.q_proj if module.q_lora_rank is None else module.q_b_proj
            of_query = torch.cat([roots.expand(-1, nope), factors[:, None].expand(-1, rope)], dim=1)
            of_key = torch.cat([roots.expand(-1, nope), torch.ones_like(roots).expand(-1, width)], dim=1)
            up.weight.mul_(of_query.reshape(-1, 1))
            module.kv_b_proj.weight.mul_(of_key.reshape(-1, 1))
            continue
        dim, group = module.head_dim, module.num_key_value_groups
        of_key = factors.view(-1, group).amin(dim=1).sqrt()
        of_query = factors / of_key.repeat_interleave(group)
        for linear, factor in ((module.q_proj, of_query), (module.k_proj, of_key)):
            for parameter in linear.parameters():
                rows = factor.repeat_interleave(dim)
                parameter.mul_(rows[:, None] if parameter.dim() > 1 else rows)
