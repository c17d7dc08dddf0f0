"""Random models and layouts of the soak: of decks that take a second, on 1 to 8 ranks."""

SEQUENCES = 12  # of a step, a microbatch each: data-parallel ranks may be 1, 2, 3, 4, 6
DECK = """model: {{layers: 4, width: 32, heads: 4, kv_heads: 2, ffn: 48, vocabulary: 256{experts}}}
train: {{steps: 1000000, global_batch_sequences: 12, microbatch_sequences: 1, sequence_tokens: 32, precision: {precision}, seed: {seed}}}
optimizer: {{name: {optimizer}, learning_rate: 3e-3, schedule: constant}}
data: {{files: [{tokens}], dtype: uint16, order: shuffled}}
output: {{directory: {here}/run, every_steps: 1}}
checkpoint: {{directory: {checkpoints}, every_steps: {every}, keep_last: 2, asynchronous: {asynchronous}, resume: auto}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1, first_deadline_seconds: 120, deadline_seconds: 12}}
"""
EXPERTS = ", experts: 4, experts_per_token: 2, router_bias: true, router_bias_rate: 1e-3"


def draw_deck(draw, **places):
    """(the deck's text, whether it has experts, its precision)"""
    experts = draw.random() < 0.3
    precision = draw.choice(["fp64", "fp64", "fp32", "bf16"])
    text = DECK.format(experts=EXPERTS if experts else "", precision=precision, seed=draw.randrange(1, 1000),
                       optimizer=draw.choice(["adamw", "adamw", "muon"]), every=draw.choice([1, 2, 2, 4, 8]),
                       asynchronous=draw.choice(["true", "false"]), **places)
    return text, experts, precision


class Layout:
    """A mesh, its settings and its number of ranks."""

    def __init__(self, draw, experts, replicas=False):
        """replicas: three ranks or more hold each number, so that a majority knows which one is wrong."""
        while True:
            pp, replicate, shard, cp, tp = (draw.choice(of) for of in ([1, 1, 2, 4], [1, 2, 3], [1, 2, 3, 4], [1, 1, 2], [1, 1, 2, 4]))
            if replicas:
                replicate = 3
            self.ranks = pp * replicate * shard * cp * tp
            if self.ranks <= 8 and SEQUENCES % (replicate * shard) == 0:
                break
        self.zero = draw.randrange(4)
        self.shards = shard * cp
        self.sets = [f"mesh.pp={pp}", f"mesh.dp_replicate={replicate}", f"mesh.dp_shard={shard}", f"mesh.cp={cp}", f"mesh.tp={tp}", f"train.zero_stage={self.zero}"]
        if pp > 1:
            self.sets.append(f"schedule.name={draw.choice(['1f1b', 'gpipe', 'zero_bubble'])}")
        if experts and not replicas:
            self.sets.append(f"mesh.ep={draw.choice([e for e in (1, 2, 4) if shard * cp * tp % e == 0])}")
        self.replicas = replicas
        self.name = " ".join(word.split(".")[1] for word in self.sets if not word.endswith("=1"))

    def words(self, *more):
        return [word for setting in (*self.sets, *more) for word in ("--set", setting)]

    def nodes(self):
        """(nodes, ranks of each) under Slurm."""
        each = 2 if self.ranks % 2 == 0 and self.ranks > 2 else 1
        return self.ranks // each, each
