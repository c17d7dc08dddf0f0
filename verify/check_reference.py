#!/usr/bin/env python3
"""Checks the references against verify/plain_model.py, which shares no code with the classes that made them.

    python3 verify/check_reference.py [problem ...]

Step 1: loss and total_loss; for every gradient g its product with a direction d = g/|g| + r/|r| (r random) against the
difference quotient of fourth order of total_loss along d; the norm. Step 2: the optimizer in 80 bits from these
gradients, then the loss again. 80-bit numbers leave the difference quotients about 14 digits. Routers are held to the experts that they
chose for the unchanged weights: that choice has no gradient.
"""

import argparse
import fnmatch
import os
import sys

import numpy

import plain_model
from plain_model import REAL
from problems import PROBLEMS

HERE = os.path.dirname(os.path.abspath(__file__))
STEP = REAL(2e-4)  # truncation STEP^4 / 30 times the fifth derivative, rounding 1e-19 / STEP: both near 1e-16


def read_tokens(path, dtype):
    return (
        numpy.load(path) if path.endswith(".npy") else numpy.fromfile(path, {"uint16": "<u2", "uint32": "<u4"}[dtype])
    )


def batch(tokens, step, length, count):
    samples = [(part, i * length) for part in tokens for i in range((len(part) - 1) // length)]
    rows = numpy.array(
        [
            part[at : at + length + 1]
            for part, at in (samples[i % len(samples)] for i in range((step - 1) * count, step * count))
        ],
        dtype=numpy.int64,
    )
    return rows[:, :-1], rows[:, 1:]


def read_reference(path):
    """The fp64 lists of reference.yaml."""
    values = {}
    with open(path) as file:
        for line in file:
            if line.startswith("fp32:"):
                break
            key, _, rest = line.strip().partition(": ")
            if rest.startswith("["):
                values[key] = [float(v) for v in rest[1:-1].split(",")]
    return values


def adamw(weight, g, rate, decay, options):
    # Bias correction leaves exactly g and g^2 after one update.
    return weight * (1 - rate * decay) - rate * g / (abs(g) + REAL(options.get("epsilon", 1e-8)))


def matrix_cuts(name):
    """Whether a file's matrix is (in, out), and how many matrices are its rows, as (out, in)."""
    stored = any(word in name for word in ("c_attn", "c_proj", "c_fc"))
    return stored, 3 if "c_attn" in name or "qkv_proj" in name else 2 if "gate_up_proj" in name else 1


def orthogonalised(x):
    """Five steps of Newton and Schulz on the left."""
    x = x / max(numpy.sqrt((x * x).sum()), REAL("1e-7"))
    a, b, c = REAL("3.4445"), REAL("-4.7750"), REAL("2.0315")
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * (s @ s)) @ x
    return x


def muon(weight, g, name, rate, decay, options):
    stored, parts = matrix_cuts(name)
    new = []
    for w, u in zip(numpy.split(weight.T if stored else weight, parts), numpy.split(g.T if stored else g, parts)):
        out, inner = w.shape
        # The momentum is a multiple of g after one update.
        o = orthogonalised(u)
        if options["name"] == "normuon":
            moment = (1 - REAL(options.get("beta2", 0.95))) * (o * o).mean(axis=1, keepdims=True)
            o = o / (numpy.sqrt(moment) + REAL(options.get("epsilon", 1e-8)))
            scale = numpy.sqrt(REAL(w.size) / (o * o).sum()) / 5
        elif options.get("muon_scale") == "keller":
            scale = numpy.sqrt(max(REAL(1), REAL(out) / REAL(inner)))
        else:
            scale = numpy.sqrt(REAL(max(out, inner))) / 5
        new.append(w * (1 - rate * decay) - rate * scale * o)
    new = numpy.concatenate(new)
    return new.T if stored else new


def adafactor(weight, g, rate, decay):
    """The first update: the moments are the means of squares. ε: of numpy.float64."""
    eps = REAL(numpy.finfo(numpy.float64).eps)
    moment = g * g
    if g.ndim >= 2:
        rows, columns = moment.mean(axis=1, keepdims=True), moment.mean(axis=0, keepdims=True)
        moment = rows * columns / max(rows.mean(), eps)
    u = g / numpy.sqrt(numpy.maximum(moment, eps * eps))
    length = max(numpy.sqrt((weight * weight).mean()), REAL("1e-3")) * min(rate, REAL(1))
    return weight * (1 - rate * decay) - length / max(REAL(1), numpy.sqrt((u * u).mean())) * u


def grouped(name, weight, g, rate, adam, decay, options):
    """Muon with groups, of families whose files have a matrix a tensor. Rates follow one schedule."""
    patterns = {
        "*.router": "*.mlp.gate.weight",
        "layers.0.attention.*": "model.layers.0.self_attn.*",
        "*norm*": "*norm*",
        "embedding.*": "model.embed_tokens.*",
    }
    group = next((o for o in options["groups"] if fnmatch.fnmatch(name, patterns[o["pattern"]])), {})
    decay = REAL(group.get("weight_decay", decay))
    whole = g.ndim >= 2 and not any(word in name for word in ("embed_tokens", "lm_head"))
    whole = whole and group.get("optimizer", "muon") == "muon"
    own = rate if whole else adam
    if "learning_rate" in group:
        own = rate * REAL(group["learning_rate"]) / REAL(options["learning_rate"])
    return muon(weight, g, name, own, decay, options) if whole else adamw(weight, g, own, decay, options)


def clipped(weights, config, peaks, most):
    """QK-clip of what a batch with these largest scores was trained with."""
    new = dict(weights)
    for layer, of_heads in peaks.items():
        p = layer + "self_attn."
        factors = numpy.where(of_heads > most, REAL(most) / of_heads, REAL(1))

        def scale(name, rows):
            for key in (p + name + ".weight", p + name + ".bias"):
                if key in new:
                    new[key] = new[key] * (rows[:, None] if new[key].ndim > 1 else rows)

        if "kv_lora_rank" in config:
            nope, rope, width = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
            of_query = [[numpy.sqrt(f)] * nope + [f] * rope for f in factors]
            scale("q_b_proj" if config.get("q_lora_rank") else "q_proj", numpy.array(of_query).reshape(-1))
            of_key = [[numpy.sqrt(f)] * nope + [REAL(1)] * width for f in factors]
            scale("kv_b_proj", numpy.array(of_key).reshape(-1))
            continue
        group, dim = config["num_attention_heads"] // config["num_key_value_heads"], config["head_dim"]
        of_key = numpy.sqrt(factors.reshape(-1, group).min(axis=1))
        scale("k_proj", numpy.repeat(of_key, dim))
        scale("q_proj", numpy.repeat(factors / numpy.repeat(of_key, group), dim))
    return new


def update(weights, gradients, rate, norm, options):
    """The first update. The schedule gives what has AdamW beside Muon its share of its own rate."""
    clip = options.get("clip_norm", 1.0)
    coefficient = min(REAL(1), REAL(clip) / (norm + REAL(1e-6))) if clip else REAL(1)
    kind, rate = options.get("name", "adamw"), REAL(rate)
    adam = rate * REAL(options.get("adam_learning_rate") or options["learning_rate"]) / REAL(options["learning_rate"])
    new = dict(weights)
    for name, gradient in gradients.items():
        g, weight = gradient * coefficient, weights[name]
        decay = REAL(options.get("weight_decay", 0.1)) if gradient.ndim >= 2 and not name.endswith(("_bias", "conv1d.weight")) else REAL(0)
        if "groups" in options:
            new[name] = grouped(name, weight, g, rate, adam, decay, options)
            continue
        table = any(word in name for word in ("embed_tokens", "lm_head", "wte", "wpe", "shared_expert_gate"))
        if kind == "soap" and gradient.ndim >= 2 and not table:
            new[name] = weight  # its first update makes the bases
        elif kind in ("muon", "normuon") and gradient.ndim >= 2 and not table:
            new[name] = muon(weight, g, name, rate, decay, options)
        elif kind == "schedule_free":  # all averages are alike after one update
            new[name] = weight - rate * (g / (abs(g) + REAL(options.get("epsilon", 1e-8))) + decay * weight)
        elif kind == "adafactor":
            new[name] = adafactor(weight, g, rate, decay)
        elif kind in ("adamw", "muon", "normuon", "soap"):
            new[name] = adamw(weight, g, rate if kind == "adamw" else adam, decay, options)
        else:
            new[name] = weight * (1 - rate * decay) - rate * (numpy.sign(g) if kind == "lion" else g)
    return new


def router_options(config, problem):
    """Coefficients of the auxiliary loss and of the router's z-loss; how many sequences the first one is taken over."""
    given = config.get("router_aux_loss_coef", 0.001) if config.get("output_router_logits") else 0.0
    by_microbatch = problem.model.get("auxiliary_loss_scope") == "microbatch"
    return (
        problem.model.get("auxiliary_loss_coefficient", given),
        problem.model.get("router_z_coefficient", 0.0),
        problem.train["microbatch_sequences"] if by_microbatch else 1,
    )


def check(name, problem, base):
    """(largest error of the losses, of the directional derivatives, of the norm, of step 2's loss), all relative."""
    folder = os.path.join(base, name)
    config, weights = plain_model.read_directory(os.path.join(folder, "model"))
    gradients = plain_model.read_safetensors(os.path.join(folder, "gradients.safetensors"))
    expected = read_reference(os.path.join(folder, "reference.yaml"))
    tokens = [read_tokens(os.path.join(folder, file), problem.token_type) for file in problem.token_files]
    shape = problem.train["sequence_tokens"], problem.train["global_batch_sequences"]
    z = problem.train.get("z_loss_coefficient", 0.0)

    router = router_options(config, problem)
    mtp = problem.model.get("mtp_depth", 0), problem.model.get("mtp_loss_factor", 0.1)

    most, caps = problem.optimizer.get("qk_clip", 0), problem.model
    if most or "attention_soft_cap" in caps or "logit_soft_cap" in caps:
        cap, logit_cap = (REAL(caps.get(key, 0)) for key in ("attention_soft_cap", "logit_soft_cap"))
        config["own"] = {"cap": cap, "logit_cap": logit_cap, "peaks": {}}

    def losses(values, step=1, routing=None):
        data = batch(tokens, step, *shape)
        return plain_model.losses(config, values, *data, problem.end_token, z, router, routing, mtp)

    if set(gradients) != {k for k in weights if not k.endswith("e_score_correction_bias")}:
        raise SystemExit(f"{name}: gradients and weights have different names")
    routing = plain_model.Routing()
    loss, total = losses(weights, routing=routing)
    peaks = {layer: of_heads.copy() for layer, of_heads in config["own"]["peaks"].items()} if most else {}
    loss_error = max(abs(loss / REAL(expected["loss"][0]) - 1), abs(total / REAL(expected["total_loss"][0]) - 1))

    generator, slope_error = numpy.random.default_rng(1), REAL(0)
    for key, gradient in gradients.items():
        size = numpy.sqrt((gradient * gradient).sum())
        if size == 0:
            continue
        random = generator.standard_normal(gradient.shape).astype(REAL)
        direction = gradient / size + random / numpy.sqrt((random * random).sum())

        def at(t):
            moved = weights | {key: weights[key] + t * direction}
            return losses(moved, routing=plain_model.Routing(routing))[1]

        slope = (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP))) / (12 * STEP)
        slope_error = max(slope_error, abs(slope - (gradient * direction).sum()) / size)

    norm = numpy.sqrt(sum((g * g).sum() for g in gradients.values()))
    norm_error = abs(norm / REAL(expected["grad_norm"][0]) - 1)
    updated = update(weights, gradients, expected["learning_rate"][0], norm, problem.optimizer)
    updated = clipped(updated, config, peaks, most)
    updated = routing.moved_biases(updated, problem.model.get("router_bias_rate", 0.0))
    second_error = abs(losses(updated, 2)[0] / REAL(expected["loss"][1]) - 1)
    return loss_error, slope_error, norm_error, second_error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=[])
    parser.add_argument("--folder", default=HERE, help="where the problems' folders are (default: verify)")
    arguments = parser.parse_args()
    # Rounded operands have no difference quotients.
    there = [n for n, p in PROBLEMS.items() if not p.in_fp8 and not p.adapter and os.path.isdir(os.path.join(arguments.folder, n))]
    chosen = arguments.problems or there
    limits = (1e-13, 1e-11, 1e-13, 1e-12)
    print(f"{'problem':14s} {'loss':>9s} {'gradients':>9s} {'norm':>9s} {'step 2':>9s}")
    failed = False
    for name in chosen:
        errors = check(name, PROBLEMS[name], arguments.folder)
        good = all(e <= limit for e, limit in zip(errors, limits))
        failed = failed or not good
        print(f"{name:14s} " + " ".join(f"{float(e):9.1e}" for e in errors) + ("" if good else "  FAILED"), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
