#!/usr/bin/env python3
"""One rank of peer.py's model trained by several processes over gloo: whole steps, fp32.

parallel.py starts the ranks, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment. Rank 0 reads
commands from standard input (`steps N`) and answers each with a line of JSON.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import warnings

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from models import MODELS
from peer import Transformer


def rotate(y, cosine, sine):
    a, b = y.chunk(2, dim=-1)
    return y * cosine + torch.cat((-b, a), dim=-1) * sine


def swiglu(gate, up):
    return functional.silu(gate) * up


class SplitAttention(nn.Module):
    """peer.Attention with three projections, which tensor parallelism cuts by heads."""

    def __init__(self, model, compiled):
        super().__init__()
        self.rotate = torch.compile(rotate) if compiled else rotate
        self.dim, self.ratio = model.head_dim, model.heads // model.kv_heads
        self.q = nn.Linear(model.width, model.heads * self.dim, bias=False)
        self.k = nn.Linear(model.width, model.kv_heads * self.dim, bias=False)
        self.v = nn.Linear(model.width, model.kv_heads * self.dim, bias=False)
        self.out = nn.Linear(model.width, model.width, bias=False)

    def forward(self, x, cosine, sine):
        def heads(y):
            return y.view(y.shape[0], y.shape[1], -1, self.dim).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        q, k = self.rotate(q, cosine, sine), self.rotate(k, cosine, sine)
        if self.ratio > 1:  # enable_gqa takes the slow path on CPUs
            k, v = (y.repeat_interleave(self.ratio, dim=1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class SplitFeedForward(nn.Module):
    def __init__(self, model, compiled):
        super().__init__()
        self.swiglu = torch.compile(swiglu) if compiled else swiglu
        self.gate = nn.Linear(model.width, model.ffn, bias=False)
        self.up = nn.Linear(model.width, model.ffn, bias=False)
        self.down = nn.Linear(model.ffn, model.width, bias=False)

    def forward(self, x):
        return self.down(self.swiglu(self.gate(x), self.up(x)))


def split_projections(network, model, compiled):
    for block in network.blocks:
        block.attention, block.ffn = SplitAttention(model, compiled), SplitFeedForward(model, compiled)
        for parameter in list(block.attention.parameters()) + list(block.ffn.parameters()):
            nn.init.normal_(parameter, std=0.02)


def tensor_parallel(network, mesh):
    """Columns and rows in pairs; norms and the residual stream are cut along the tokens (sequence parallelism)."""
    rows = Shard(1)
    attention = PrepareModuleInput(
        input_layouts=(rows, None, None), desired_input_layouts=(Replicate(), None, None), use_local_output=True
    )
    ffn = PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),), use_local_output=True)
    plan = {
        "norm": SequenceParallel(),
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "head": ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(network, mesh, plan)
    for block in network.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "norm1": SequenceParallel(),
                "norm2": SequenceParallel(),
                "attention": attention,
                "ffn": ffn,
                "attention.q": ColwiseParallel(),
                "attention.k": ColwiseParallel(),
                "attention.v": ColwiseParallel(),
                "attention.out": RowwiseParallel(output_layouts=rows),
                "ffn.gate": ColwiseParallel(),
                "ffn.up": ColwiseParallel(),
                "ffn.down": RowwiseParallel(output_layouts=rows),
            },
        )


def cross_entropy(logits, labels):
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def logits_of(network, inputs):
    x = network.embedding(inputs)
    for block in network.blocks:
        x = block(x, network.cosine, network.sine)
    return network.head(network.norm(x))


def shard_data(network, mesh, keep):
    for block in network.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=not keep)
    fully_shard(network, mesh=mesh, reshard_after_forward=False)


class Trainer:
    """What torch.compile takes depends on the layout: all of the model where it is replicated, its blocks and the loss
    where FSDP's hooks stand between, local functions under tensor parallelism, whose tensors it refuses."""

    def __init__(self, model, options):
        torch.manual_seed(1)
        self.model, self.sequences = model, model.batch // options.data
        mesh = init_device_mesh("cpu", (options.data, options.tp), mesh_dim_names=("data", "tp"))
        self.network = network = Transformer(model)
        self.around = loss_parallel if options.tp > 1 else contextlib.nullcontext
        if options.replicate:
            replicas = DistributedDataParallel(network)
            self.loss = torch.compile(replicas) if options.compile else replicas
        else:
            whole = options.compile and options.tp == 1
            if options.tp > 1:
                split_projections(network, model, options.compile)
                tensor_parallel(network, mesh["tp"])
            if whole:
                for block in network.blocks:
                    block.compile()
            network.forward = lambda inputs: logits_of(network, inputs)  # the loss is outside of FSDP's hooks
            if options.data > 1:
                shard_data(network, mesh["data"], options.keep)
            tail = torch.compile(cross_entropy) if whole else cross_entropy
            self.loss = lambda inputs, labels: tail(network(inputs), labels)
        matrices = [p for p in network.parameters() if p.dim() >= 2]
        vectors = [p for p in network.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=3e-4,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.random = torch.Generator().manual_seed(mesh.get_local_rank("data"))

    def step(self):
        """Seconds of one step on fresh random tokens, and its loss."""
        shape = (self.sequences, self.model.tokens + 1)
        tokens = torch.randint(0, self.model.vocabulary, shape, generator=self.random)
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with self.around():
            loss = self.loss(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        loss = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
        return time.perf_counter() - start, loss.item()


def serve(trainer):
    rank, order = distributed.get_rank(), torch.zeros(1, dtype=torch.int64)
    while True:
        if rank == 0:
            words = sys.stdin.readline().split()
            order[0] = int(words[1]) if words else 0
        distributed.broadcast(order, 0)
        if order.item() == 0:
            return
        times, loss = zip(*(trainer.step() for _ in range(order.item())))
        if rank == 0:
            print(json.dumps({"seconds": times, "loss": loss[-1]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--data", type=int, default=1, help="data-parallel ranks")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks")
    parser.add_argument("--replicate", action="store_true", help="DistributedDataParallel instead of FSDP")
    parser.add_argument("--keep", action="store_true", help="FSDP keeps gathered parameters until the backward pass")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    distributed.init_process_group("gloo")
    serve(Trainer(MODELS[options.model], options))
    distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's and inductor's threads may outlive their objects


if __name__ == "__main__":
    main()
