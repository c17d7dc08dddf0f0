#!/usr/bin/env python3
"""peer_kernels.py ROWS OUTPUT: PyTorch at the sizes of ROWS, a file that kernel_bench wrote. OUTPUT gets lines "group,
kernel, sizes, seconds, how", tab-separated; what PyTorch has no counterpart of, or refuses, is left out, with a word on
the screen. Rows are compiled functions where torch.compile works here. Ends with 77 where there is no PyTorch or GPU; with
--cpu it runs on the processor, to try the script."""

import functools
import statistics
import sys
import time

try:
    import torch
    from torch.nn import functional
except ImportError as problem:
    print(f"no PyTorch: {problem}")
    sys.exit(77)

DEVICE = "cpu" if "--cpu" in sys.argv else "cuda"
BF16 = torch.bfloat16


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def seconds_of(work):
    """As seconds_of in bench.hpp."""

    def batch(calls):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        synchronize()
        return (time.perf_counter() - start) / calls

    batch(2)
    calls = max(1, min(200, int(0.02 / batch(1))))
    return statistics.median(batch(calls) for _ in range(5))


def random(*shape, dtype=BF16, scale=1.0):
    return (scale * torch.randn(*shape, device=DEVICE, dtype=torch.float32)).to(dtype)


def compiled(function):
    """The function, compiled where that works, else as it is: resolved by its first call."""
    state = {}

    @functools.wraps(function)
    def call(*arguments):
        if "f" not in state:
            try:
                state["f"], state["how"] = torch.compile(function, dynamic=False), "compiled"
                state["f"](*arguments)
            except Exception as error:
                print(f"{function.__name__} is not compiled: {type(error).__name__}")
                state["f"], state["how"] = function, "eager"
        return state["f"](*arguments)

    call.how = lambda: state.get("how", "eager")
    return call


def of_compiled(function, *arguments):
    run = compiled(function)
    run(*arguments)
    return lambda: run(*arguments), run.how()


def gradient_of(outputs, inputs, upstream):
    return lambda: torch.autograd.grad(outputs, inputs, upstream, retain_graph=True)


def products(kernel, s):
    x, w, dy = random(s["rows"], s["in"]), random(s["out"], s["in"], scale=0.02), random(s["rows"], s["out"])
    if kernel.endswith("forward"):
        return lambda: torch.mm(x, w.t()), "mm"
    if kernel.endswith("input gradient"):
        return lambda: torch.mm(dy, w), "mm"
    return lambda: torch.mm(dy.t(), x), "mm, bf16 result"


def attention(kernel, s):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = random(s["B"], s["H"], s["T"], s["D"]).requires_grad_()
    k, v = (random(s["B"], s["K"], s["T"], s["D"]).requires_grad_() for _ in range(2))
    best = None
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION] if DEVICE == "cuda" else [SDPBackend.MATH]
    for backend in backends:

        def forward():
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        try:
            o = forward()
            upstream = torch.randn_like(o)
            work = forward if kernel.startswith("forward") else gradient_of(o, (q, k, v), upstream)
            seconds = seconds_of(work)
        except Exception as error:
            print(f"attention by {backend}: {type(error).__name__}: {error}")
            continue
        if best is None or seconds < best[0]:
            best = seconds, backend.name.lower()
    return best


def norm_rows(kernel, s):
    x, w, dy = random(s["R"], s["C"]), random(s["C"]), random(s["R"], s["C"])
    if kernel == "residual add":
        return of_compiled(torch.add, x, dy)

    def norm(x, w):
        return functional.rms_norm(x, (x.shape[-1],), w, 1e-5)

    if kernel == "rmsnorm forward":
        return of_compiled(norm, x, w)
    x.requires_grad_()
    w.requires_grad_()
    run = compiled(norm)
    inputs = (x,) if "backward" in kernel else (w,)
    return gradient_of(run(x, w), inputs, dy), run.how() + ", autograd"


def head_rows(kernel, s):
    x = random(s["R"], s["heads"], s["D"])
    cosine, sine = random(s["R"], 1, s["D"], dtype=torch.float32), random(s["R"], 1, s["D"], dtype=torch.float32)

    def rotate(x, cosine, sine):
        a, b = x.chunk(2, dim=-1)
        return (x * cosine + torch.cat((-b, a), dim=-1) * sine).to(x.dtype)

    if kernel == "rotary":
        return of_compiled(rotate, x, cosine, sine)
    w = random(s["D"])  # QK-norm with the rotation behind it
    return of_compiled(lambda x, w, c, s: rotate(functional.rms_norm(x, (x.shape[-1],), w, 1e-6), c, s), x, w, cosine, sine)


def swiglu_rows(kernel, s):
    gate_up, d_act = random(s["R"], 2 * s["F"]), random(s["R"], s["F"])

    def swiglu(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up

    if kernel == "swiglu forward":
        return of_compiled(swiglu, gate_up)
    gate_up.requires_grad_()
    run = compiled(swiglu)
    return gradient_of(run(gate_up), (gate_up,), d_act), run.how() + ", autograd"


def loss_rows(s):
    logits = random(s["R"], s["V"], dtype=torch.float32).requires_grad_()
    labels = torch.arange(s["R"], device=DEVICE) * 61 % s["V"]
    run = compiled(functional.cross_entropy)

    def both():
        return torch.autograd.grad(run(logits, labels), logits)

    both()
    return both, run.how() + ", fp32 gradient"


def flat_rows(kernel, s):
    g = random(s["n"], dtype=torch.float32)
    if kernel.startswith("AdamW"):
        p, copy = g.clone().requires_grad_(), g.to(BF16)
        p.grad = g
        optimizer = torch.optim.AdamW([p], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

        def update():
            optimizer.step()
            copy.copy_(p.detach())

        return update, "fused, and a copy"
    other = torch.empty_like(g)
    if kernel.startswith("sum"):
        return lambda: torch.dot(g, g), "dot"
    if kernel.startswith("convert"):
        return lambda: g.to(BF16), "to"
    return lambda: other.copy_(g), "copy_"


def rows(kernel, s):
    if "n" in s:
        return flat_rows(kernel, s)
    if "V" in s:
        return loss_rows(s)
    if "F" in s:
        return swiglu_rows(kernel, s)
    return head_rows(kernel, s) if "heads" in s else norm_rows(kernel, s)


def experts(kernel, s, counts):
    P, C, F, E, k = s["rows"] * s["k"], s["C"], s["F"], s["E"], s["k"]
    passed = kernel.split(", ")[-1]
    if passed == "router and sort":
        logits = random(s["rows"], E, dtype=torch.float32)

        def route(logits):
            weight, choice = logits.softmax(-1).topk(k, dim=-1)
            return weight / weight.sum(-1, keepdim=True), choice.reshape(-1).argsort(stable=True)

        return of_compiled(route, logits)
    pairs = torch.randperm(P, device=DEVICE)
    if passed == "permute":
        x, row = random(s["rows"], C), pairs // k
        return lambda: x[row], "index"
    if passed == "unpermute":
        y, row, weight = random(P, C), pairs // k, random(P, 1)
        return lambda: torch.zeros(s["rows"], C, device=DEVICE, dtype=BF16).index_add_(0, row, y * weight), "index_add_"
    ends = torch.tensor(counts[kernel.rsplit(", ", 1)[0]], device=DEVICE).cumsum(0).to(torch.int32)
    x, act, gate_up = random(P, C), random(P, F), random(P, 2 * F)
    up, down = random(E, 2 * F, C, scale=0.02), random(E, C, F, scale=0.02)
    grouped = torch._grouped_mm

    def forward():
        grouped(x, up.transpose(-2, -1), offs=ends)
        grouped(act, down.transpose(-2, -1), offs=ends)

    def input_gradient():
        grouped(x, down, offs=ends)
        grouped(gate_up, up, offs=ends)

    def weight_gradient():
        grouped(x.t(), act, offs=ends)
        grouped(gate_up.t(), x, offs=ends)

    return {"forward": forward, "input gradient": input_gradient, "weight gradient": weight_gradient}[passed], "_grouped_mm"


def matrices(kernel, s):
    x = random(s["matrices"], s["m"], s["n"])

    def iterate():
        y = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
        for _ in range(5):
            gram = y @ y.mT
            y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=-4.775, alpha=2.0315), y, beta=3.4445)

    def alone():
        for _ in range(5):
            gram = x @ x.mT
            torch.bmm(torch.bmm(gram, gram), x)

    return (alone, "bmm") if kernel.endswith("products alone") else (iterate, "baddbmm")


def measured(group, kernel, sizes, counts):
    """Seconds, and how."""
    s = {key: int(value) for key, value in (word.split("=") for word in sizes.split())}
    if group == "attention":
        return attention(kernel, s)
    if kernel.endswith(", tensor_cores") or ", fp8 of " in kernel:
        return None
    work, how = {"products": products, "rows": rows, "matrices": matrices}[group](kernel, s) if group != "experts" else experts(kernel, s, counts)
    return seconds_of(work), how


def main():
    files = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(files) != 2:
        sys.exit(__doc__)
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        sys.exit(77)
    counts, done = {}, 0
    with open(files[0]) as source, open(files[1], "w") as out:
        for line in source:
            fields = line.rstrip("\n").split("\t")
            if fields[0] == "# rows of experts":
                counts[fields[1]] = [int(word) for word in fields[2].split()]
            if line.startswith("#"):
                continue
            group, kernel, sizes = fields[:3]
            try:
                result = measured(group, kernel, sizes, counts)
            except Exception as error:
                print(f"{group}, {kernel}, {sizes}: {type(error).__name__}: {error}", flush=True)
                continue
            if result is None:
                continue
            out.write("\t".join([group, kernel, sizes, f"{result[0]:.6e}", f"PyTorch {torch.__version__}, {result[1]}"]) + "\n")
            out.flush()
            done += 1
    if done == 0:
        sys.exit("PyTorch ran none of them")


if __name__ == "__main__":
    main()
