#!/usr/bin/env python3
"""A Llama-type model in plain PyTorch, trained with whole steps: forward, backward, clipping, fused AdamW.

    python3 tests/benchmark/peer.py --model tiny [--compile] [--precision bf16] [--threads 2] [--steps 20]

prints the median of the step times and the tokens per second, of a GPU with --device cuda. With --serve it reads commands
from standard input (`steps N`, `sgemm`) and answers each with a line of JSON; compare.py uses this so that a model is
compiled once.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from models import GPU_MODELS, MODELS


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.heads, self.kv_heads, self.dim = model.heads, model.kv_heads, model.head_dim
        self.qkv = nn.Linear(model.width, (model.heads + 2 * model.kv_heads) * self.dim, bias=False)
        self.out = nn.Linear(self.heads * self.dim, model.width, bias=False)
        self.norms = nn.ModuleList(RMSNorm(self.dim) for _ in range(2)) if model.qk_norm else None

    def forward(self, x, cosine, sine):
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).view(batch, tokens, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)

        def rotate(y):
            a, b = y.chunk(2, dim=-1)
            return y * cosine + torch.cat((-b, a), dim=-1) * sine

        if self.norms:
            q, k = self.norms[0](q), self.norms[1](k)
        q, k = rotate(q).to(v.dtype), rotate(k).to(v.dtype)
        grouped = self.heads != self.kv_heads
        if grouped and not x.is_cuda:  # enable_gqa takes the slow path on CPUs
            k, v = (y.repeat_interleave(self.heads // self.kv_heads, dim=1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped and x.is_cuda)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.up = nn.Linear(model.width, 2 * model.ffn, bias=False)
        self.down = nn.Linear(model.ffn, model.width, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Experts(nn.Module):
    """Every token goes to its `active` most probable experts, weighted by their renormalised probabilities."""

    def __init__(self, model):
        super().__init__()
        self.active = model.active
        self.router = nn.Linear(model.width, model.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(model) for _ in range(model.experts))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weight, choice = self.router(rows).float().softmax(-1).topk(self.active, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, slot = (choice == number).nonzero(as_tuple=True)
            out = out.index_add(0, row, (expert(rows[row]) * weight[row, slot, None]).to(out.dtype))
        return out.view_as(x)


class GroupedExperts(nn.Module):
    """The same with one grouped product for all experts, in bf16, as GPUs have it."""

    def __init__(self, model):
        super().__init__()
        self.active, self.count = model.active, model.experts
        self.router = nn.Linear(model.width, model.experts, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(model.experts, 2 * model.ffn, model.width))
        self.down = nn.Parameter(0.02 * torch.randn(model.experts, model.width, model.ffn))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
        weight, choice = self.router(rows).float().softmax(-1).topk(self.active, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        flat = choice.reshape(-1)
        order = flat.argsort(stable=True)
        counts = (flat[:, None] == torch.arange(self.count, device=x.device)).sum(0)
        ends = counts.cumsum(0).to(torch.int32)
        row = order // self.active
        gate_up = torch._grouped_mm(rows[row], self.up.to(torch.bfloat16).transpose(-2, -1), offs=ends)
        gate, up = gate_up.chunk(2, dim=-1)
        act = functional.silu(gate) * up * weight.reshape(-1)[order, None].to(torch.bfloat16)
        out = torch._grouped_mm(act, self.down.to(torch.bfloat16).transpose(-2, -1), offs=ends)
        return torch.zeros_like(rows).index_add(0, row, out).view_as(x).to(x.dtype)


class Block(nn.Module):
    def __init__(self, model, experts):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(model.width), RMSNorm(model.width)
        self.attention = Attention(model)
        self.ffn = experts(model) if model.experts else FeedForward(model)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.norm1(x), cosine, sine)
        return x + self.ffn(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, model, experts=Experts):
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.width)
        self.blocks = nn.ModuleList(Block(model, experts) for _ in range(model.layers))
        self.norm = RMSNorm(model.width)
        self.head = nn.Linear(model.width, model.vocabulary, bias=False)
        if model.tied:
            self.head.weight = self.embedding.weight
        angle = torch.outer(
            torch.arange(model.tokens), 10000.0 ** (-torch.arange(0, model.head_dim, 2) / model.head_dim)
        )
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs, labels):
        x = self.embedding(inputs)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


class Trainer:
    def __init__(self, model, precision, compiled, device="cpu", grouped=False):
        torch.manual_seed(1)
        self.model, self.device = model, device
        with torch.device(device):
            self.network = Transformer(model, GroupedExperts if grouped else Experts)
        self.loss = torch.compile(self.network) if compiled else self.network
        matrices = [p for p in self.network.parameters() if p.dim() >= 2]
        vectors = [p for p in self.network.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=3e-4,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.cast = (
            (lambda: torch.autocast(device, dtype=torch.bfloat16)) if precision == "bf16" else contextlib.nullcontext
        )

    def step(self):
        """Seconds of one step on fresh random tokens, and its loss."""
        shape = (self.model.batch, self.model.tokens + 1)
        tokens = torch.randint(0, self.model.vocabulary, shape, device=self.device)
        if self.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with self.cast():
            loss = self.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        value = loss.item()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start, value


def gemm_seconds(model, budget=3.0):
    """Seconds that the step's matrix products take by themselves in fp32: forward, and both of backward."""
    total, share = 0.0, budget / (3 * len(model.products()))
    for m, k, n, often in model.products():
        rows, weight, out = torch.randn(m, k), torch.randn(n, k), torch.randn(m, n)
        for product in (
            lambda: torch.mm(rows, weight.t()),
            lambda: torch.mm(out, weight),
            lambda: torch.mm(out.t(), rows),
        ):
            product()
            times, begin = [], time.perf_counter()
            while time.perf_counter() - begin < share or len(times) < 3:
                start = time.perf_counter()
                product()
                times.append(time.perf_counter() - start)
            total += often * statistics.median(times)
    return total


def serve(trainer, model):
    """Answers commands until standard input ends."""
    for line in sys.stdin:
        words = line.split()
        if words[0] == "steps":
            times, loss = zip(*(trainer.step() for _ in range(int(words[1]))))
            answer = {"seconds": times, "loss": loss[-1]}
        elif words[0] == "sgemm":
            seconds = gemm_seconds(model)
            flops = 3 * sum(2 * m * k * n * often for m, k, n, often in model.products())
            answer = {"seconds": seconds, "gflops": flops / seconds / 1e9}
        else:
            answer = {"error": f"unknown command {words[0]}"}
        print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS | GPU_MODELS, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--grouped", action="store_true", help="experts by torch._grouped_mm, in bf16")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast, fp32 weights")
    parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=0, help="timed steps after 3 others; default: the model's")
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = (MODELS | GPU_MODELS)[arguments.model]
    trainer = Trainer(model, arguments.precision, arguments.compile, arguments.device, arguments.grouped)
    if arguments.serve:
        serve(trainer, model)
        return
    for _ in range(3):
        trainer.step()
    seconds = statistics.median(trainer.step()[0] for _ in range(arguments.steps or model.steps))
    parameters = sum(p.numel() for p in trainer.network.parameters())
    print(
        f"{arguments.model} ({parameters / 1e6:.1f} M) {arguments.precision}"
        f"{' compiled' if arguments.compile else ''}, {arguments.threads} threads: {seconds:.3f} s a step, "
        f"{model.step_tokens / seconds:.0f} tokens/s, "
        f"{model.flops_per_token() * model.step_tokens / seconds / 1e9:.1f} GFLOP/s"
    )


if __name__ == "__main__":
    main()
