"""Training runs of Hugging Face model classes with forge's semantics: losses, gradient norms and gradients.

fp64 means fp64: the classes cast some values up to fp32 (norms, softmax, rotary angles), which in fp64 is a cast down.
`double_arithmetic` makes these casts go to fp64, and `OnlyDouble` raises if any operation still returns another
floating-point type.
"""

import contextlib
import json
import math
import os

import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

MASKED = -100


class OnlyDouble(TorchDispatchMode):
    """Raises when an operation, forward or backward, returns a floating-point tensor that is not fp64."""

    def __init__(self, double):
        super().__init__()
        self.double = double

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not self.double:
                raise TypeError(f"{func} returned {value.dtype} in a computation that must be fp64")
        return out


@contextlib.contextmanager
def double_arithmetic():
    """Inside, the fp32 up-casts of the model classes are casts to fp64."""
    single, alias, method, default = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        with OnlyDouble(torch.float64):
            yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = single, alias, method
        torch.set_default_dtype(default)


def arithmetic(precision):
    return double_arithmetic() if precision == "fp64" else contextlib.nullcontext()


def new_model(directory, precision):
    """The model class that a directory's config.json names, with eager attention and without dropout."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    with arithmetic(precision):
        config = AutoConfig.from_pretrained(directory)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and tensor.dtype is not dtype:
            raise TypeError(f"{name} is {tensor.dtype}")
    return model.eval()


def read_weights(directory):
    """All tensors of a directory's safetensors files."""
    index = os.path.join(directory, "model.safetensors.index.json")
    files = ["model.safetensors"]
    if os.path.exists(index):
        with open(index) as file:
            files = sorted(set(json.load(file)["weight_map"].values()))
    tensors = {}
    for name in files:
        tensors.update(load_file(os.path.join(directory, name)))
    return tensors


def load_model(directory, precision):
    """A model with the weights of its directory; every parameter must be there, and nothing may be left over."""
    model = new_model(directory, precision)
    weights = read_weights(directory)
    if model.config.model_type == "gpt2":  # files on the hub omit the prefix and hold each layer's causal mask
        weights = {
            k if k.startswith(("transformer.", "lm_head.")) else "transformer." + k: v
            for k, v in weights.items()
            if not k.endswith((".attn.bias", ".attn.masked_bias"))
        }
    if model.config.tie_word_embeddings:
        weights["lm_head.weight"] = model_embedding(weights)
    dtype = next(model.parameters()).dtype
    model.load_state_dict({k: v.to(dtype) for k, v in weights.items()}, strict=True)
    return model


def model_embedding(weights):
    return (
        weights["transformer.wte.weight"]
        if "transformer.wte.weight" in weights
        else weights["model.embed_tokens.weight"]
    )


def batch_of_step(files, step, sequence_tokens, global_batch):
    """Inputs and labels (G, T) of step 1, 2, ...: sample i of a file is its tokens [i T, i T + T]."""
    samples = [(tokens, i * sequence_tokens) for tokens in files for i in range((len(tokens) - 1) // sequence_tokens)]
    rows = []
    for index in range((step - 1) * global_batch, step * global_batch):
        tokens, first = samples[index % len(samples)]
        rows.append(torch.tensor(tokens[first : first + sequence_tokens + 1].astype("int64")))
    rows = torch.stack(rows)
    return rows[:, :-1], rows[:, 1:].clone()


def document_ids(inputs, end_token):
    """(B, T): how many documents ended before each position of its sample; an end token belongs to what it ends."""
    ends = (inputs == end_token).long()
    return ends.cumsum(1) - ends


def attention_masks(config, documents, dtype):
    """Additive masks (B, 1, T, T) of the allowed pairs: causal, same document, within the window of a layer's kind."""
    length = documents.shape[1]
    query, key = torch.arange(length)[:, None], torch.arange(length)[None, :]

    def mask(window):
        allowed = (key <= query) & (documents[:, :, None] == documents[:, None, :])
        if window:
            allowed = allowed & (key > query - window)
        return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)[:, None]

    window = getattr(config, "sliding_window", None)
    if config.model_type in ("qwen2", "qwen3"):
        return {"full_attention": mask(None), "sliding_attention": mask(window)}
    return mask(window)


def loss_sums(model, inputs, labels, end_token):
    """Sums over unmasked labels of cross-entropy and of lse^2, and their count."""
    masks = None
    if end_token is not None:
        labels = labels.masked_fill(inputs == end_token, MASKED)
        masks = attention_masks(model.config, document_ids(inputs, end_token), next(model.parameters()).dtype)
    logits = model(input_ids=inputs, attention_mask=masks, use_cache=False).logits
    kept = labels != MASKED
    lse = torch.logsumexp(logits, dim=-1)[kept]
    picked = logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0][kept]
    return (lse - picked).sum(), (lse * lse).sum(), int(kept.sum())


def learning_rate(options, steps, step):
    """Learning rate of update s = 1, 2, ..."""
    rate, warmup = options["learning_rate"], options.get("warmup_steps", 0)
    if step <= warmup:
        return rate * step / warmup
    decay = options.get("decay_steps", 0) or steps - warmup
    low, kind = options.get("min_ratio", 0.1), options.get("schedule", "cosine")
    first = steps - decay if kind == "wsd" else warmup
    p = min(max((step - first) / decay, 0.0), 1.0)
    if kind == "wsd":
        kind = {"sqrt": "square_root"}.get(options.get("wsd_tail", "linear"), options.get("wsd_tail", "linear"))
    factor = {
        "constant": lambda: 1.0,
        "linear": lambda: low + (1 - low) * (1 - p),
        "cosine": lambda: low + (1 - low) * (1 + math.cos(math.pi * p)) / 2,
        "square_root": lambda: low + (1 - low) * (1 - math.sqrt(p)),
        "rex": lambda: low + (1 - low) * (1 - p) / (1 - p / 2),
        "inverse_sqrt": lambda: math.sqrt(max(warmup, 1) / max(step, warmup, 1)),
    }[kind]()
    return rate * factor


def trained_parameters(model):
    """Name to parameter, a tied weight once under the embedding's name."""
    return dict(model.named_parameters(remove_duplicate=True))


def train(directory, files, train_options, optimizer_options, end_token=None, precision="fp64"):
    """Trains, and returns {loss, total_loss, grad_norm, learning_rate: one value per step}, and step 1's gradients."""
    model = load_model(directory, precision)
    parameters = trained_parameters(model)
    settings = {
        "lr": 0.0,
        "betas": (optimizer_options.get("beta1", 0.9), optimizer_options.get("beta2", 0.95)),
        "eps": optimizer_options.get("epsilon", 1e-8),
    }
    decay = optimizer_options.get("weight_decay", 0.1)
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
        ],
        **settings,
    )
    record = {"loss": [], "total_loss": [], "grad_norm": [], "learning_rate": []}
    first_gradients = None
    for step in range(1, train_options["steps"] + 1):
        inputs, labels = batch_of_step(
            files, step, train_options["sequence_tokens"], train_options["global_batch_sequences"]
        )
        optimizer.zero_grad(set_to_none=False)
        with arithmetic(precision):
            cross_entropy, squares, count = loss_sums(model, inputs, labels, end_token)
            loss = cross_entropy / count
            total = loss + train_options.get("z_loss_coefficient", 0.0) * (squares / count)
            total.backward()
        if first_gradients is None:
            first_gradients = {name: p.grad.detach().to(torch.float64, copy=True) for name, p in parameters.items()}
        norm = torch.sqrt(sum(torch.sum(p.grad * p.grad) for p in parameters.values()))
        clip = optimizer_options.get("clip_norm", 1.0)
        if clip > 0:
            coefficient = min(1.0, clip / (norm.item() + 1e-6))
            for p in parameters.values():
                p.grad.mul_(coefficient)
        rate = learning_rate(optimizer_options, train_options["steps"], step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        for key, value in zip(record, (loss.item(), total.item(), norm.item(), rate)):
            record[key].append(value)
    return record, first_gradients
