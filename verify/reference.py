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
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import adapters
import attention
import fp8
import multi_token
import optimizers

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


def auto_class(config):
    """The class that makes a model of this config: of a text model beside an image model both."""
    return AutoModelForImageTextToText if beside_image(config) else AutoModelForCausalLM


def beside_image(config):
    return hasattr(config, "vision_config")


def new_model(directory, precision, depth=0, implementation="eager"):
    """The model class that a directory's config.json names, with eager attention and without dropout.

    depth: modules of multi-token prediction behind it. implementation: of attention.
    """
    dtype = torch.float64 if precision == "fp64" else torch.float32
    with arithmetic(precision):
        config = AutoConfig.from_pretrained(directory)
        text = config.get_text_config()
        if hasattr(text, "output_router_logits"):
            text.output_router_logits = False  # the class's own auxiliary loss, which nobody reads
        # The class's own loop over experts: torch's grouped product has no fp64.
        experts = {"experts_implementation": "eager"} if hasattr(text, "num_experts_per_tok") else {}
        model = auto_class(config).from_config(config, attn_implementation=implementation, dtype=dtype, **experts)
        multi_token.attach(model, depth, dtype)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and tensor.dtype is not dtype:
            raise TypeError(f"{name} is {tensor.dtype}")
    return model.eval()


# A layer's experts are one tensor in memory and one tensor each in files.
MIXTRAL_NAMES = ("mixtral", "minimax_m2")
EXPERT_MATRICES = dict.fromkeys(MIXTRAL_NAMES, ("w1", "w3", "w2"))  # gate, up, down


def file_names(config, tensors):
    """Tensors under the names of checkpoints."""
    if config.model_type == "gpt_oss":  # whose files have what memory has
        return tensors
    gate, up, down = EXPERT_MATRICES.get(config.model_type, ("gate_proj", "up_proj", "down_proj"))
    named = {}
    for name, tensor in tensors.items():
        name = multi_token.file_name(config, name).replace("model.language_model.", "model.")
        if config.model_type in MIXTRAL_NAMES:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        stem, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            for e, matrix in enumerate(tensor):
                named[f"{stem}.{e}.{gate}.weight"], named[f"{stem}.{e}.{up}.weight"] = matrix.chunk(2)
        elif last == "down_proj":
            named |= {f"{stem}.{e}.{down}.weight": matrix for e, matrix in enumerate(tensor)}
        else:
            named[name] = tensor
    return named


def names_beside_image(config, tensors):
    """Tensors of file_names as the files of a text model beside an image model have them: experts packed, turned."""
    named = memory_names(config, tensors)
    return {k: v.transpose(1, 2) if v.ndim == 3 and ".experts." in k else v for k, v in named.items()}


def memory_names(config, tensors):
    """The inverse of file_names, and of names_beside_image."""
    if config.model_type == "gpt_oss":
        return tensors
    if any(name.startswith("model.language_model.") for name in tensors):
        return {k: v.transpose(1, 2) if v.ndim == 3 and ".experts." in k else v for k, v in tensors.items()}
    gate, up, down = EXPERT_MATRICES.get(config.model_type, ("gate_proj", "up_proj", "down_proj"))
    named, experts = {}, {}
    for name, tensor in tensors.items():
        name = multi_token.memory_name(config, name)
        if config.model_type in MIXTRAL_NAMES:
            name = name.replace(".block_sparse_moe.", ".mlp.")
        stem, found, rest = name.partition(".mlp.experts.")
        if found:
            expert, matrix, _ = rest.split(".")
            experts.setdefault(stem + ".mlp.experts.", {})[int(expert), matrix] = tensor
        else:
            named[name] = tensor
    for stem, parts in experts.items():
        count = 1 + max(e for e, _ in parts)
        both = [torch.cat([parts[e, gate], parts[e, up]]) for e in range(count)]
        named[stem + "gate_up_proj"] = torch.stack(both)
        named[stem + "down_proj"] = torch.stack([parts[e, down] for e in range(count)])
    if not beside_image(config):
        return named
    text = lambda name: name.startswith("model.") and not name.startswith("model.visual.")
    return {"model.language_model." + k.removeprefix("model.") if text(k) else k: v for k, v in named.items()}


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


def load_model(directory, precision, depth=0, implementation="eager"):
    """A model with the weights of its directory; every parameter must be there, and nothing may be left over."""
    model = new_model(directory, precision, depth, implementation)
    weights = read_weights(directory)
    if model.config.model_type == "gpt2":  # files on the hub omit the prefix and hold each layer's causal mask
        weights = {
            k if k.startswith(("transformer.", "lm_head.")) else "transformer." + k: v
            for k, v in weights.items()
            if not k.endswith((".attn.bias", ".attn.masked_bias"))
        }
    if model.config.tie_word_embeddings:
        weights["lm_head.weight"] = model_embedding(weights)
    weights = memory_names(model.config, weights)
    dtype = next(model.parameters()).dtype
    model.load_state_dict({k: v.to(dtype) for k, v in weights.items()}, strict=True)
    return model


def model_embedding(weights):
    names = ("transformer.wte.weight", "model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
    return next(weights[name] for name in names if name in weights)


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
    if config.model_type == "deepseek_v3":
        return mask(None)
    if config.model_type in ("qwen2", "qwen3", "olmo3", "gemma3_text", "gpt_oss"):
        return {"full_attention": mask(None), "sliding_attention": mask(window)}
    return mask(window)


class Routers:
    """What the routers of a model do in its next forward pass: logits (rows, E) and chosen experts (rows, k)."""

    def __init__(self, model):
        self.logits, self.chosen, self.gates = [], [], []
        self.biases = [b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
        for module in model.modules():
            if type(module).__name__.lower().endswith("topkrouter"):
                self.gates.append(module)
                module.register_forward_hook(self.record)

    def record(self, module, arguments, out):
        self.logits.append(out[0])
        self.chosen.append(out[2])

    def clear(self):
        self.logits, self.chosen = [], []

    def auxiliary_loss(self, config, sequences, scope):
        """Sum over layers of E sum_i f_i P_i, meaned over groups of `scope` consecutive sequences."""
        total = 0.0
        for logits, chosen in zip(self.logits, self.chosen):
            experts = logits.shape[1]
            if config.model_type in ("deepseek_v3", "glm4_moe", "minimax_m2"):
                scores = torch.sigmoid(logits)
                shares = scores / scores.sum(dim=1, keepdim=True)
            else:
                shares = torch.softmax(logits, dim=1)
            rows = logits.shape[0] // sequences * scope
            for first in range(0, logits.shape[0], rows):
                counts = torch.bincount(chosen[first : first + rows].reshape(-1), minlength=experts).to(shares.dtype)
                total = total + experts * (counts / counts.sum() * shares[first : first + rows].mean(dim=0)).sum()
        return total * scope / sequences

    def z_loss(self):
        """Sum over layers of the mean squared log-sum-exp of the logits."""
        return sum(torch.logsumexp(logits, dim=1).square().mean() for logits in self.logits)

    def move_biases(self, rate):
        """Towards experts that got less than the mean, away from those that got more."""
        for bias, chosen in zip(self.biases, self.chosen):
            counts = torch.bincount(chosen.reshape(-1), minlength=len(bias))
            bias += rate * torch.sign(chosen.numel() - counts * len(counts)).to(bias.dtype)


def auxiliary_coefficient(directory, options):
    """The deck's coefficient, else that of config.json where it asks for the router's logits."""
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
        config = config.get("text_config", config)
    given = config.get("router_aux_loss_coef", 0.001) if config.get("output_router_logits") else 0.0
    return options.get("auxiliary_loss_coefficient", given)


def loss_sums(model, inputs, labels, end_token, cap=0.0):
    """Sums over unmasked labels of cross-entropy and of lse^2, their count, and each depth's multi-token loss."""
    masks, unmasked = None, labels
    depths = hasattr(model, "multi_token")
    documents = document_ids(inputs, -1 if end_token is None else end_token)
    no_mask = model.config.model_type in multi_token.LINEAR  # whose class makes its own, and sees no documents
    if end_token is not None or (depths and not no_mask):
        masks = attention_masks(model.config, documents, next(model.parameters()).dtype)
    if end_token is not None:
        labels = labels.masked_fill(inputs == end_token, MASKED)
    logits = model(input_ids=inputs, attention_mask=masks, use_cache=False).logits
    if cap > 0:
        logits = cap * torch.tanh(logits / cap)
    kept = labels != MASKED
    lse = torch.logsumexp(logits, dim=-1)[kept]
    picked = logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0][kept]
    further = multi_token.losses(model, inputs, unmasked, documents, end_token, masks, MASKED) if depths else []
    return (lse - picked).sum(), (lse * lse).sum(), int(kept.sum()), further


def learning_rate(options, steps, step):
    """Learning rate of update s = 1, 2, ..."""
    rate, warmup = options["learning_rate"], options.get("warmup_steps", 0)
    if step <= warmup:
        return rate * step / warmup
    decay = options.get("decay_steps", 0) or steps - warmup
    low, kind = options.get("min_ratio", 0.1), options.get("schedule", "cosine")
    if kind == "wsd":
        decay = min(decay, steps - warmup)
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
        "inverse_sqrt": lambda: max(low, math.sqrt(max(warmup, 1) / max(step, warmup, 1))),
    }[kind]()
    return rate * factor


def trained_parameters(model):
    """Name to parameter of the text model, a tied weight once under the embedding's name."""
    named = model.named_parameters(remove_duplicate=True)
    return {name: parameter for name, parameter in named if not name.startswith("model.visual.")}


def train(
    directory,
    files,
    train_options,
    optimizer_options,
    end_token=None,
    precision="fp64",
    model_options=None,
    adapter=None,
):
    """Trains, and returns {loss, total_loss, grad_norm, learning_rate: one value per step}, and step 1's gradients.

    model_options: keys of the deck's model section that say what training does with experts and further tokens.
    adapter: PEFT's directory of adapters, which alone are trained.
    """
    model_options = model_options or {}
    most = optimizer_options.get("qk_clip", 0)
    attention.Attention.cap = model_options.get("attention_soft_cap", 0.0)
    own = most > 0 or attention.Attention.cap > 0
    model = load_model(
        directory, precision, model_options.get("mtp_depth", 0), attention.NAME if own else "eager"
    )
    histories = fp8.attach(model, train_options) if train_options.get("precision") == "fp8" else []
    routers = Routers(model)
    auxiliary = auxiliary_coefficient(directory, model_options) if routers.gates else 0.0
    by_microbatch = model_options.get("auxiliary_loss_scope", "sequence") == "microbatch"
    scope = train_options["microbatch_sequences"] if by_microbatch else 1
    if adapter:
        adapters.attach(model, adapter)
    parameters = adapters.parameters(model) if adapter else trained_parameters(model)
    optimizer = optimizers.new_optimizer(parameters, optimizer_options)
    record = {"loss": [], "total_loss": [], "grad_norm": [], "learning_rate": []}
    first_gradients = None
    for step in range(1, train_options["steps"] + 1):
        inputs, labels = batch_of_step(
            files, step, train_options["sequence_tokens"], train_options["global_batch_sequences"]
        )
        for p in parameters.values():
            p.grad = torch.zeros_like(p)
        routers.clear()
        attention.Attention.clear()
        with arithmetic(precision):
            cross_entropy, squares, count, further = loss_sums(
                model, inputs, labels, end_token, model_options.get("logit_soft_cap", 0.0)
            )
            loss = cross_entropy / count
            total = loss + train_options.get("z_loss_coefficient", 0.0) * (squares / count)
            if further:
                total = total + model_options.get("mtp_loss_factor", 0.1) * sum(further) / len(further)
            if auxiliary:
                total = total + auxiliary * routers.auxiliary_loss(model.config, len(inputs), scope)
            if "router_z_coefficient" in model_options:
                total = total + model_options["router_z_coefficient"] * routers.z_loss()
            total.backward()
        for history in histories:
            history.end_step()
        if first_gradients is None:
            first_gradients = {name: p.grad.detach().to(torch.float64, copy=True) for name, p in parameters.items()}
            first_gradients = file_names(model.config, first_gradients)
        norm = torch.sqrt(sum(torch.sum(p.grad * p.grad) for p in parameters.values()))
        clip = optimizer_options.get("clip_norm", 1.0)
        if clip > 0:
            coefficient = min(1.0, clip / (norm.item() + 1e-6))
            for p in parameters.values():
                p.grad.mul_(coefficient)
        rate = learning_rate(optimizer_options, train_options["steps"], step)
        others = optimizer_options | {"learning_rate": optimizer_options.get("adam_learning_rate", 0) or optimizer_options["learning_rate"]}
        optimizer.step(rate, learning_rate(others, train_options["steps"], step))
        if most > 0:
            attention.qk_clip(model, most)
        if model_options.get("router_bias_rate"):
            routers.move_biases(model_options["router_bias_rate"])
        for key, value in zip(record, (loss.item(), total.item(), norm.item(), rate)):
            record[key].append(value)
    return record, first_gradients
