"""The deck's optimizers for reference.py: PyTorch's where it has them, else plain tensor operations.

PyTorch's Muon takes two-dimensional parameters. Each matrix is a view of its own into a parameter: q, k and v of GPT-2's
fused tensor, stored (in, out), and every expert's gate, up and down. PyTorch casts to bf16 before it orthogonalises;
here that cast goes to the precision of the run.
"""

import contextlib
import fnmatch

import torch

NOT_MATRICES = ("embed_tokens", "lm_head", "wte", "wpe", "shared_expert_gate", "conv1d")


def matrices_of(name, tensor):
    """(out, in) views of the matrices in a parameter, or in its gradient."""
    last = name.split(".")[-2] if name.endswith(".weight") else name.split(".")[-1]
    if last in ("c_attn", "c_proj", "c_fc"):
        stored = tensor.T
        return list(stored.chunk(3)) if last == "c_attn" else [stored]
    if last in ("qkv_proj", "gate_up_proj") and tensor.dim() == 2:  # as many heads of keys as of queries
        return list(tensor.chunk(3 if last == "qkv_proj" else 2))
    if last == "gate_up_proj":
        return [half for matrix in tensor for half in matrix.chunk(2)]
    if last == "down_proj" and tensor.dim() == 3:
        return list(tensor)
    return [tensor]


def is_matrix(name, parameter):
    return parameter.dim() >= 2 and not any(word in name for word in NOT_MATRICES)


def decays(name, parameter):
    """Biases of all experts of a layer, which gpt-oss has in one tensor, don't, nor do taps of convolutions."""
    return parameter.dim() >= 2 and not name.endswith(("_bias", "conv1d.weight"))


@contextlib.contextmanager
def bf16_is(dtype):
    """Inside, torch.bfloat16 is another type."""
    low = torch.bfloat16
    torch.bfloat16 = dtype
    try:
        yield
    finally:
        torch.bfloat16 = low


class AdamW:
    def __init__(self, parameters, options):
        decay = options.get("weight_decay", 0.1)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for n, p in parameters.items() if decays(n, p)], "weight_decay": decay},
                {"params": [p for n, p in parameters.items() if not decays(n, p)], "weight_decay": options.get("decay_of_vectors", 0.0)},
            ],
            lr=0.0,
            betas=(options.get("beta1", 0.9), options.get("beta2", 0.95)),
            eps=options.get("epsilon", 1e-8),
        )

    def step(self, rate, _adam_rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


class Muon:
    def __init__(self, parameters, options):
        self.named = {name: p for name, p in parameters.items() if is_matrix(name, p)}
        self.others = AdamW({name: p for name, p in parameters.items() if name not in self.named}, options)
        self.leaves = [
            torch.nn.Parameter(view) for name, p in self.named.items() for view in matrices_of(name, p.detach())
        ] or [torch.nn.Parameter(next(iter(parameters.values())).new_zeros(1, 1))]
        moonlight = options.get("muon_scale", "moonlight") == "moonlight"
        self.optimizer = torch.optim.Muon(
            self.leaves,
            lr=0.0,
            weight_decay=options.get("weight_decay", 0.1),
            adjust_lr_fn="match_rms_adamw" if moonlight else "original",
        )

    def step(self, rate, adam_rate):
        gradients = [view for name, p in self.named.items() for view in matrices_of(name, p.grad)]
        for leaf, gradient in zip(self.leaves, gradients):
            leaf.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with bf16_is(self.leaves[0].dtype):
            self.optimizer.step()
        self.others.step(adam_rate, None)


class NorMuon:
    """Algorithm 1 of arXiv 2510.05491; PyTorch has none. Its iteration is torch.optim.Muon's."""

    def __init__(self, parameters, options):
        self.named = {name: p for name, p in parameters.items() if is_matrix(name, p)}
        self.others = AdamW({name: p for name, p in parameters.items() if name not in self.named}, options)
        self.weights = [view for name, p in self.named.items() for view in matrices_of(name, p.detach())]
        self.momenta = [torch.zeros_like(w) for w in self.weights]
        self.seconds = [w.new_zeros(w.shape[0], 1) for w in self.weights]
        self.beta2, self.epsilon = options.get("beta2", 0.95), options.get("epsilon", 1e-8)
        self.decay = options.get("weight_decay", 0.1)

    @torch.no_grad()
    def step(self, rate, adam_rate):
        gradients = [view for name, p in self.named.items() for view in matrices_of(name, p.grad)]
        for w, g, m, v in zip(self.weights, gradients, self.momenta, self.seconds):
            m.mul_(0.95).add_(g, alpha=0.05)
            with bf16_is(w.dtype):
                o = torch.optim._muon._zeropower_via_newtonschulz(m, (3.4445, -4.7750, 2.0315), 5, 1e-7)
            v.mul_(self.beta2).add_((o * o).mean(dim=1, keepdim=True), alpha=1 - self.beta2)
            o = o / (v.sqrt() + self.epsilon)
            w.mul_(1 - rate * self.decay).sub_(o, alpha=0.2 * rate * w.numel() ** 0.5 / o.norm().item())
        self.others.step(adam_rate, None)


class Soap:
    """Algorithm 3 of arXiv 2409.11321, whose bases come from QR factors with a positive diagonal; PyTorch has none.

    The first update makes covariances and bases alone. A side that is longer than soap_largest_side isn't rotated.
    """

    def __init__(self, parameters, options):
        self.named = {name: p for name, p in parameters.items() if is_matrix(name, p)}
        self.others = AdamW({name: p for name, p in parameters.items() if name not in self.named}, options)
        self.weights = [view for name, p in self.named.items() for view in matrices_of(name, p.detach())]
        self.first = [torch.zeros_like(w) for w in self.weights]
        self.second = [torch.zeros_like(w) for w in self.weights]
        most = options.get("soap_largest_side", 10000)
        side = lambda w, d: w.new_zeros(w.shape[d], w.shape[d]) if w.shape[d] <= most else None
        self.covariances = [[side(w, 0), side(w, 1)] for w in self.weights]
        self.bases = [[torch.eye(n, dtype=w.dtype) for n in w.shape] for w in self.weights]
        self.beta1, self.beta2 = options.get("beta1", 0.9), options.get("beta2", 0.95)
        self.epsilon, self.decay = options.get("epsilon", 1e-8), options.get("weight_decay", 0.1)
        self.every, self.updates = options.get("soap_basis_every_steps", 10), 0

    @torch.no_grad()
    def step(self, rate, adam_rate):
        self.updates += 1
        gradients = [view for name, p in self.named.items() for view in matrices_of(name, p.grad)]
        for i, (w, g) in enumerate(zip(self.weights, gradients)):
            if self.updates > 1:
                self.move(w, g, self.first[i], self.second[i], *self.bases[i], rate)
            for side, square in ((0, g @ g.T), (1, g.T @ g)):
                covariance = self.covariances[i][side]
                if covariance is None:
                    continue
                covariance.mul_(self.beta2).add_(square, alpha=1 - self.beta2)
                if (self.updates - 1) % self.every == 0:
                    shift = 1e-3 * covariance.trace() / len(covariance) * torch.eye(len(covariance), dtype=w.dtype)
                    q, r = torch.linalg.qr((covariance + shift) @ self.bases[i][side])
                    self.bases[i][side] = q * torch.where(r.diagonal() < 0, -1.0, 1.0).to(w.dtype)
        self.others.step(adam_rate, None)

    def move(self, w, g, first, second, left, right, rate):
        count = self.updates - 1
        first.mul_(self.beta1).add_(g, alpha=1 - self.beta1)
        second.mul_(self.beta2).add_((left.T @ g @ right) ** 2, alpha=1 - self.beta2)
        mean = (left.T @ first @ right) / (1 - self.beta1**count)
        root = (second / (1 - self.beta2**count)).sqrt() + self.epsilon
        w.mul_(1 - rate * self.decay).sub_(left @ (mean / root) @ right.T, alpha=rate)


class Adafactor:
    """PyTorch's, of the checkpoint's tensors: each expert's gate, up and down is one."""

    def __init__(self, parameters, options):
        self.leaves = []
        for name, p in parameters.items():
            fused = "experts" in name and p.dim() == 3
            views = matrices_of(name, p.detach()) if fused else [p.detach()]
            self.leaves.append((name, p, fused, [torch.nn.Parameter(view) for view in views]))
        of = lambda vectors: [leaf for _, p, _, leaves in self.leaves if (p.dim() < 2) == vectors for leaf in leaves]
        decay = options.get("weight_decay", 0.1)
        groups = [{"params": of(False), "weight_decay": decay}, {"params": of(True), "weight_decay": 0.0}]
        self.optimizer = torch.optim.Adafactor(groups, lr=1.0)

    def step(self, rate, _adam_rate):
        for name, p, fused, leaves in self.leaves:
            for leaf, gradient in zip(leaves, matrices_of(name, p.grad) if fused else [p.grad]):
                leaf.grad = gradient.contiguous()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


class Sgd:
    def __init__(self, parameters, options):
        self.parameters, self.decay = parameters.values(), options.get("weight_decay", 0.1)
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.0, momentum=options.get("momentum", 0.9))

    @torch.no_grad()
    def step(self, rate, _adam_rate):
        for p in self.parameters:
            if p.dim() >= 2:
                p.mul_(1 - rate * self.decay)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


class ScheduleFree:
    """The package `schedulefree`, whose warm-up is its own."""

    def __init__(self, parameters, options):
        import schedulefree

        decay = options.get("weight_decay", 0.1)
        self.optimizer = schedulefree.AdamWScheduleFree(
            [
                {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": decay},
                {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=options["learning_rate"],
            betas=(options.get("beta1", 0.9), options.get("beta2", 0.95)),
            eps=options.get("epsilon", 1e-8),
            warmup_steps=options.get("warmup_steps", 0),
        )
        self.optimizer.train()

    def step(self, _rate, _adam_rate):
        self.optimizer.step()


class Lion:
    """PyTorch has none: algorithm 2 of arXiv 2302.06675."""

    def __init__(self, parameters, options):
        self.moments = [(p, torch.zeros_like(p)) for p in parameters.values()]
        self.betas = options.get("beta1", 0.9), options.get("beta2", 0.95)
        self.decay = options.get("weight_decay", 0.1)

    @torch.no_grad()
    def step(self, rate, _adam_rate):
        first, second = self.betas
        for p, m in self.moments:
            direction = torch.sign(first * m + (1 - first) * p.grad)
            p.mul_(1 - rate * (self.decay if p.dim() >= 2 else 0.0)).sub_(rate * direction)
            m.mul_(second).add_((1 - second) * p.grad)


# Patterns of the deck's groups, of forge's names of tensors, and what they are of the classes' names.
CLASS_PATTERNS = {
    "*.router": "*.mlp.gate.weight",
    "layers.0.attention.*": "model.layers.0.self_attn.*",
    "*norm*": "*norm*",
    "embedding.*": "model.embed_tokens.*",
}


def group_of(options, name):
    """The first group whose pattern matches; {} where there is none."""
    matching = (g for g in options.get("groups", []) if fnmatch.fnmatch(name, CLASS_PATTERNS[g["pattern"]]))
    return next(matching, {})


class Groups:
    """An optimizer for each of the deck's groups, and one for what belongs to none."""

    def __init__(self, parameters, options):
        self.parts, self.rate = [], options["learning_rate"]
        rest = {key: value for key, value in options.items() if key != "groups"}
        for group in [*options["groups"], {}]:
            own = {name: p for name, p in parameters.items() if group_of(options, name) == group}
            changed = rest | {"name": group.get("optimizer", rest.get("name", "adamw"))}
            if "weight_decay" in group:
                changed |= {"weight_decay": group["weight_decay"], "decay_of_vectors": group["weight_decay"]}
            self.parts.append((new_optimizer(own, changed), group, changed["name"]))

    def step(self, rate, adam_rate):
        for optimizer, group, name in self.parts:
            if "learning_rate" in group:
                own = rate * (group["learning_rate"] / self.rate)
                optimizer.step(own, own)
            else:
                optimizer.step(adam_rate if name == "adamw" else rate, adam_rate)


def new_optimizer(parameters, options):
    if "groups" in options:
        return Groups(parameters, options)
    kinds = {"adamw": AdamW, "muon": Muon, "normuon": NorMuon, "adafactor": Adafactor, "sgd": Sgd, "lion": Lion, "schedule_free": ScheduleFree, "soap": Soap}
    return kinds[options.get("name", "adamw")](parameters, options)
