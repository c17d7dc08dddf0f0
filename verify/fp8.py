"""Products of a model's blocks in FP8, in numpy: what forge's recipes round, from their definitions alone.

The codes of a format are listed from the OCP specification's definition, and a number is looked up among their midpoints:
no bit is shifted here. A product and its two gradients are computed in fp64 from the numbers that the codes stand for.
"""

import types

import numpy
import torch

BLOCK = 128


def finite_values(exponent_bits, mantissa_bits):
    """The non-negative finite numbers of a format, in the order of their codes; of four exponent bits one code is NaN."""
    bias, values = 2 ** (exponent_bits - 1) - 1, []
    for code in range(2 ** (exponent_bits + mantissa_bits)):
        exponent, mantissa = divmod(code, 2**mantissa_bits)
        if exponent == 2**exponent_bits - 1 and (exponent_bits == 5 or mantissa == 2**mantissa_bits - 1):
            continue
        fraction = mantissa / 2**mantissa_bits
        values.append(fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias))
    return numpy.array(values)


FORMATS = {"e4m3": finite_values(4, 3), "e5m2": finite_values(5, 2)}
assert FORMATS["e4m3"][-1] == 448 and FORMATS["e5m2"][-1] == 57344


def nearest(x, values):
    """The nearest of the values, of two equally near ones that with an even code; beyond the last one the last."""
    middles = (values[1:] + values[:-1]) / 2
    a = numpy.abs(x)
    code = numpy.searchsorted(middles, a, side="left")  # a tie: the lower code
    tie = (code < len(middles)) & (middles[numpy.minimum(code, len(middles) - 1)] == a)
    code = code + (tie & (code % 2 == 1))
    return numpy.sign(x) * values[code]


def scales_of(amax, values, exact):
    """The scales (float32) of groups with these largest magnitudes."""
    scale = numpy.ones_like(amax)
    some = amax > 0
    if exact:
        scale[some] = numpy.float32(values[-1]) / amax[some]
    else:
        exponent = numpy.floor(numpy.log2(values[-1] / amax[some].astype(numpy.float64)))
        scale[some] = numpy.exp2(exponent).astype(numpy.float32)
        assert (amax[some] * scale[some] <= values[-1]).all() and (amax[some] * scale[some] * 2 > values[-1]).all()
    return scale


def rounded(x, groups, form, exact):
    """x with each number rounded by the scale of its group; groups: integers that broadcast to x's shape."""
    values = FORMATS[form]
    groups = numpy.broadcast_to(groups, x.shape)
    amax = numpy.zeros(groups.max() + 1, numpy.float32)
    numpy.maximum.at(amax, groups.reshape(-1), numpy.abs(x).astype(numpy.float32).reshape(-1))
    scale = scales_of(amax, values, exact).astype(numpy.float64)[groups]
    return nearest(x * scale, values) / scale


def blocks_of(parts):
    """The block of each line of matrices that stand behind one another."""
    numbers, first = [], 0
    for count in parts:
        numbers.append(first + numpy.arange(count) // BLOCK)
        first += -(-count // BLOCK)
    return numpy.concatenate(numbers)


class Recipe:
    """travels: "x" or "dy", which of an expert's product reaches it as codes with `fp8_dispatch`."""

    def __init__(self, options, of_experts=False, travels=None):
        self.name = options.get("fp8_recipe", "current")
        self.exact = options.get("fp8_scale", "power_of_two") == "exact"
        self.of_experts = of_experts
        self.transposed = options.get("fp8_transposed", False) and not of_experts
        self.travels = travels if options.get("fp8_dispatch", False) else None
        self.rounds_weight_gradients = self.name in ("current", "delayed") and not of_experts

    def activation(self, x, form, parts):
        """x (B, T, N), whose columns are those of several tensors; of an expert (1, rows, N), where a token counts alone."""
        B, T, N = x.shape
        if self.name == "current" and not self.of_experts:
            groups = numpy.arange(B)[:, None, None]
        elif self.name != "block":
            groups = numpy.arange(B * T).reshape(B, T, 1)
        else:
            blocks = blocks_of(parts)
            groups = numpy.arange(B * T).reshape(B, T, 1) * (blocks[-1] + 1) + blocks
        return rounded(x, groups, form, self.exact)

    def transposed_copy(self, x):
        """x (B, T, N) with a scale for each column of 128 tokens of a sequence."""
        B, T, N = x.shape
        blocks = blocks_of([T])
        groups = numpy.arange(B)[:, None, None] * (blocks[-1] + 1) + blocks[None, :, None]
        return rounded(x, groups * N + numpy.arange(N), "e4m3", self.exact)

    def weight(self, w, forward, parts):
        N, K = w.shape
        if self.name in ("current", "delayed"):
            groups = numpy.zeros((1, 1), int)
        elif self.name == "row":
            groups = numpy.arange(N)[:, None] if forward else numpy.arange(K)[None, :]
        else:
            columns = blocks_of([K])
            groups = blocks_of(parts)[:, None] * (columns[-1] + 1) + columns
        return rounded(w, groups, "e4m3", self.exact)

    @property
    def gradient_form(self):
        return "e4m3" if self.name == "block" else "e5m2"


class Delayed(Recipe):
    """Of one product: the scales come from the largest magnitudes of its tensors in the steps before, none at first."""

    def __init__(self, options):
        super().__init__(options)
        self.entries, self.length = [], options.get("fp8_history", 16)
        self.step = {}

    def rounded(self, tensor, x, form):
        self.step[tensor] = max(self.step.get(tensor, 0), numpy.abs(x).max().astype(numpy.float32))
        amax = numpy.array([max((entry[tensor] for entry in self.entries), default=0)], numpy.float32)
        values = FORMATS[form]
        scale = scales_of(amax, values, self.exact).astype(numpy.float64)[0]
        return nearest(x * scale, values) / scale

    def activation(self, x, form, parts):
        return self.rounded("x" if form == "e4m3" else "dy", x, form)

    def weight(self, w, forward, parts):
        return self.rounded("weights", w, "e4m3")

    def end_step(self):
        self.entries = [self.step, *self.entries][: self.length]
        self.step = {}


class Product(torch.autograd.Function):
    """y = x Wᵀ of x (B, T, K) and W (N, K), the rows of several tensors."""

    @staticmethod
    def forward(ctx, x, w, recipe, parts):
        ctx.x, ctx.w, ctx.recipe, ctx.parts = x.detach().numpy(), w.detach().numpy(), recipe, parts
        a, b = recipe.activation(ctx.x, "e4m3", [ctx.x.shape[-1]]), recipe.weight(ctx.w, True, parts)
        return torch.from_numpy(a @ b.T)

    @staticmethod
    def backward(ctx, dy):
        recipe, dy = ctx.recipe, dy.numpy()
        d = recipe.activation(dy, recipe.gradient_form, ctx.parts)
        dx = d @ recipe.weight(ctx.w, False, ctx.parts)
        x = ctx.x
        if recipe.transposed:
            x, d = (recipe.transposed_copy(numbers) for numbers in (x, dy))
        elif recipe.rounds_weight_gradients:
            x = recipe.activation(x, "e4m3", [x.shape[-1]])
        else:
            x = recipe.activation(x, "e4m3", [x.shape[-1]]) if recipe.travels == "x" else x
            d = d if recipe.travels == "dy" else dy
        dw = numpy.einsum("btn,btk->nk", d, x)
        return torch.from_numpy(dx), torch.from_numpy(dw), None, None


class Together:
    """Linear modules that forge computes as one product; the class calls them in order, with one input."""

    def __init__(self, modules, recipe):
        self.modules, self.recipe, self.outputs = modules, recipe, []
        for i, module in enumerate(modules):
            module.forward = types.MethodType(lambda _, x, i=i: self.output(i, x), module)

    def output(self, i, x):
        if i == 0:
            parts = [m.weight.shape[0] for m in self.modules]
            rows = x.reshape(x.shape[0], -1, x.shape[-1])  # (B, T, K), where a class has one head between
            y = Product.apply(rows, torch.cat([m.weight for m in self.modules]), self.recipe, parts)
            self.outputs = list(y.reshape(*x.shape[:-1], -1).split(parts, dim=-1))
        y, bias = self.outputs[i], self.modules[i].bias
        return y if bias is None else y + bias


class Experts:
    """The routed experts of a layer; a token's weight enters before the second product, whose input is rounded with it."""

    def __init__(self, module, options):
        self.module = module
        self.first, self.second = (Recipe(options, of_experts=True, travels=tensor) for tensor in ("x", "dy"))
        module.forward = self.forward

    def forward(self, x, chosen, weights):
        m, y = self.module, torch.zeros_like(x)
        for expert in range(m.num_experts):
            rows, choice = torch.where(chosen == expert)
            if len(rows) == 0:
                continue
            inner = m.gate_up_proj.shape[1] // 2
            gate, up = Product.apply(x[rows][None], m.gate_up_proj[expert], self.first, [inner, inner]).chunk(2, dim=-1)
            hidden = m.act_fn(gate) * up * weights[rows, choice][None, :, None]
            y = y.index_add(0, rows, Product.apply(hidden, m.down_proj[expert], self.second, [x.shape[-1]])[0])
        return y


TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def attach(model, options):
    """Has the blocks' products of a model in FP8, as the deck's train section says; routers are left alone.

    Returns what shall be told where a step ends: the histories of the delayed recipe, one of each product.
    """
    histories = []

    def recipe():
        if options.get("fp8_recipe") != "delayed":
            return Recipe(options)
        histories.append(Delayed(options))
        return histories[-1]

    layers = model.model.layers
    first, last = options.get("fp8_first_layers_bf16", 0), options.get("fp8_last_layers_bf16", 0)
    for layer in layers[first : len(layers) - last]:
        for module in layer.modules():
            linear = {k: m for k, m in module.named_children() if isinstance(m, torch.nn.Linear)}
            for names in TOGETHER:
                if all(name in linear for name in names):
                    Together([linear.pop(name) for name in names], recipe())
            for single in linear.values():
                Together([single], recipe())
            if options.get("fp8_experts") and hasattr(module, "gate_up_proj") and hasattr(module, "num_experts"):
                Experts(module, options)
    return histories
