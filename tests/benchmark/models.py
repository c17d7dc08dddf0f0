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

    @property
    def head_dim(self):
        return self.width // self.heads

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
            (rows, self.width, self.width + 2 * kv, often),
            (rows, self.width, self.width, often),
            *router,
            (ffn_rows, self.width, 2 * self.ffn, ffn_often),
            (ffn_rows, self.ffn, self.width, ffn_often),
            (rows, self.width, self.vocabulary, 1),
        ]

    def flops_per_token(self):
        """6 per weight of a matrix product (the head is one, the input embedding is not) and causal attention, half
        of T x T: scores and values, 2 products, 2 operations, 3 passes."""
        weights = sum(m * k * n * often for m, k, n, often in self.products()) / self.step_tokens
        return 6 * weights + 12 * self.layers * self.tokens * self.width / 2


MODELS = {
    "tiny": Model(256, 6, 8, 4, 704, 512, 8, 256, steps=12),
    "32m": Model(512, 8, 8, 4, 1408, 8192, 4, 512, steps=5),
    "162m": Model(768, 12, 12, 12, 2048, 50304, 1, 1024, steps=2),
    "moe22m": Model(256, 6, 8, 4, 512, 4096, 8, 256, steps=6, experts=8, active=2),
}
