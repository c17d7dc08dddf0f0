"""The benchmark's models, and how many floating-point operations their training takes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Model:
    width: int  # C
    layers: int  # L
    heads: int  # H
    kv_heads: int  # K
    ffn: int  # F, of one expert
    vocabulary: int  # V
    batch: int  # B
    tokens: int  # T
    steps: int  # timed steps of one repeat
    experts: int = 0  # E; 0 = dense
    active: int = 0  # experts of a token
    head: int = 0  # D; 0 = width / heads
    qk_norm: bool = False
    qkv_bias: bool = False
    microbatches: int = 1  # of forge's step
    bf16_states: bool = False  # forge's master weights, moments and sums of gradients
    tied: bool = False  # the head is the embedding's table
    recompute: str = "none"  # forge's

    @property
    def head_dim(self):
        return self.head or self.width // self.heads

    @property
    def attention_width(self):
        return self.heads * self.head_dim

    @property
    def step_tokens(self):
        return self.batch * self.tokens

    def products(self):
        """(rows, inputs, outputs, how often) of the forward matrix products of a step, attention left out."""
        kv, rows, often = self.kv_heads * self.head_dim, self.step_tokens, self.layers
        ffn_rows, ffn_often = (rows, often)
        router = []
        if self.experts:  # balanced: every expert gets its share of the rows
            ffn_rows, ffn_often = rows * self.active // self.experts, often * self.experts
            router = [(rows, self.width, self.experts, often)]
        return [
            (rows, self.width, self.attention_width + 2 * kv, often),
            (rows, self.attention_width, self.width, often),
            *router,
            (ffn_rows, self.width, 2 * self.ffn, ffn_often),
            (ffn_rows, self.ffn, self.width, ffn_often),
            (rows, self.width, self.vocabulary, 1),
        ]

    def flops_per_token(self):
        """6 per weight of a matrix product (the head is one, the input embedding is not) and causal attention, half
        of T x T: scores and values, 2 products, 2 operations, 3 passes."""
        weights = sum(m * k * n * often for m, k, n, often in self.products()) / self.step_tokens
        return 6 * weights + 12 * self.layers * self.tokens * self.attention_width / 2


MODELS = {
    "tiny": Model(256, 6, 8, 4, 704, 512, 8, 256, steps=12),
    "32m": Model(512, 8, 8, 4, 1408, 8192, 4, 512, steps=5),
    "162m": Model(768, 12, 12, 12, 2048, 50304, 1, 1024, steps=2),
    "moe22m": Model(256, 6, 8, 4, 512, 4096, 8, 256, steps=6, experts=8, active=2),
}

# For a GPU (tests/gpu): GPT-2's size, Llama 3.2's 1B, some layers of a 7B, of OLMoE and of Qwen3-30B-A3B, KempnerForge's 7B; Qwen2.5 as
# LLMQ's benchmark trains it, with 16 microbatches a step; and toys to try the scripts with.
GPU_MODELS = {
    "gpt2_size": Model(768, 12, 12, 12, 2048, 50304, 32, 1024, steps=20),
    "llama_1b": Model(2048, 16, 32, 8, 8192, 128256, 4, 4096, steps=12),
    "7b_8layers_1k": Model(4096, 8, 32, 8, 14336, 128256, 8, 1024, steps=12),
    "7b_8layers_4k": Model(4096, 8, 32, 8, 14336, 128256, 2, 4096, steps=12),
    "7b_3layers_32k": Model(4096, 3, 32, 8, 14336, 32000, 1, 32768, steps=8),
    "7b_3layers_128k": Model(4096, 3, 32, 8, 14336, 32000, 1, 131072, steps=3),
    "7b_kempnerforge": Model(
        4096, 32, 32, 8, 14336, 128256, 8, 4096, steps=3, microbatches=4, bf16_states=True, recompute="full"
    ),
    "olmoe_4layers": Model(2048, 4, 16, 16, 1024, 50304, 4, 4096, steps=12, experts=64, active=8, qk_norm=True),
    "qwen3_30b_4layers": Model(
        2048, 4, 32, 4, 768, 151936, 2, 4096, steps=12, experts=128, active=8, head=128, qk_norm=True
    ),
    "qwen25_05b_llmq": Model(
        896, 24, 14, 2, 4864, 151936, 512, 1024, steps=1, qkv_bias=True, microbatches=16, bf16_states=True, tied=True
    ),
    "qwen25_15b_llmq": Model(
        1536, 28, 12, 2, 8960, 151936, 512, 1024, steps=1, qkv_bias=True, microbatches=16, bf16_states=True, tied=True
    ),
    "qwen25_3b_llmq": Model(
        2048, 36, 16, 2, 11008, 151936, 256, 1024, steps=1, qkv_bias=True, microbatches=16, bf16_states=True, tied=True
    ),
    "qwen25_7b_llmq": Model(
        3584, 28, 28, 4, 18944, 152064, 64, 1024, steps=1, qkv_bias=True, microbatches=16, bf16_states=True
    ),
    "toy": Model(64, 2, 4, 2, 96, 97, 2, 32, steps=2),
    "toy_llmq": Model(
        64, 2, 4, 2, 96, 97, 4, 32, steps=2, qkv_bias=True, microbatches=2, bf16_states=True, tied=True
    ),
    "toy_full": Model(64, 2, 4, 2, 96, 97, 4, 32, steps=2, microbatches=2, bf16_states=True, recompute="full"),
    "toy_moe": Model(64, 2, 4, 2, 48, 97, 2, 32, steps=2, experts=8, active=2, head=32, qk_norm=True),
}
