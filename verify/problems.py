"""The verification problems: a model, how its files are stored, what it reads, and how it is trained."""

import dataclasses


@dataclasses.dataclass
class Problem:
    shows: str  # README's text
    config: dict  # config.json
    optimizer: dict
    train: dict
    storage: str = "F32"  # type of the weights in the file
    shards: int = 1
    hub_names: bool = False
    token_files: dict = dataclasses.field(default_factory=lambda: {"tokens.bin": 1000})  # name: number of tokens
    token_type: str = "uint16"
    end_token: int | None = None
    model: dict = dataclasses.field(default_factory=dict)  # keys of the deck's model section besides hf
    adapter: dict = dataclasses.field(default_factory=dict)  # the deck's adapter section
    notes: str = ""

    @property
    def in_fp8(self):
        return self.train.get("precision") == "fp8"


def llama(**changes):
    base = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 97,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {k: v for k, v in (base | changes).items() if v != "absent"}


def qwen(kind, **changes):
    names = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    own = {
        "architectures": [names[kind]],
        "model_type": kind,
        "rms_norm_eps": 1e-6,
        "attention_bias": "absent",
        "mlp_bias": "absent",
        "rope_theta": 1000000.0,
    }
    return llama(**(own | changes))


def gpt2(**changes):
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 40,
        "n_head": 5,
        "n_layer": 2,
        "n_positions": 48,
        "n_ctx": 48,
        "n_inner": None,
        "vocab_size": 101,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "initializer_range": 0.02,
        "bos_token_id": 100,
        "eos_token_id": 100,
    } | changes


def mixtral(**changes):
    own = {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
        "intermediate_size": 20,
        "head_dim": 8,
        "attention_bias": "absent",
        "mlp_bias": "absent",
    }
    return llama(**(own | changes))


def qwen3_moe(**changes):
    own = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 14,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "output_router_logits": False,
        "head_dim": 10,
        "mlp_bias": "absent",
    }
    return llama(**(own | changes))


def deepseek_v3(**changes):
    own = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "q_lora_rank": 20,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 14,
        "first_k_dense_replace": 1,
        "n_group": 4,
        "topk_group": 2,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "mlp_bias": "absent",
    }
    return llama(**(own | changes))


def deepseek_v2(**changes):
    own = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "norm_topk_prob": False,
        "topk_method": "group_limited_greedy",
        "routed_scaling_factor": 1.5,
        "rms_norm_eps": 1e-6,
    }
    return deepseek_v3(**(own | changes))


def qwen2_moe(**changes):
    own = {
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "num_experts": 7,
        "shared_expert_intermediate_size": 22,
        "attention_bias": "absent",
        "head_dim": "absent",
        "sliding_window": 4096,
    }
    return qwen3_moe(**(own | changes))


def phi3(**changes):
    own = {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "original_max_position_embeddings": 256,
        "attention_bias": "absent",
        "mlp_bias": "absent",
        "pad_token_id": None,  # the class leaves that row of the table as it is
    }
    return llama(**(own | changes))


def glm4_moe(**changes):
    own = {
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "head_dim": 12,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 14,
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "use_qk_norm": True,
        "mlp_bias": "absent",
    }
    return llama(**(own | changes))


def smollm3(**changes):
    own = {
        "architectures": ["SmolLM3ForCausalLM"],
        "model_type": "smollm3",
        "no_rope_layers": [1, 0, 1, 0],
        "num_hidden_layers": 4,
        "pad_token_id": None,  # the class leaves that row of the table as it is
        "use_sliding_window": False,
    }
    return llama(**(own | changes))


def olmoe(**changes):
    own = {
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "intermediate_size": 18,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
        "clip_qkv": None,
        "mlp_bias": "absent",
        "pad_token_id": None,  # the class leaves that row of the table as it is
    }
    return llama(**(own | changes))


def olmo2(**changes):
    own = {
        "architectures": ["Olmo2ForCausalLM"],
        "model_type": "olmo2",
        "mlp_bias": "absent",
        "pad_token_id": None,  # the class leaves that row of the table as it is
    }
    return llama(**(own | changes))


def olmo3(**changes):
    own = {
        "architectures": ["Olmo3ForCausalLM"],
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 7,
        "rope_theta": "absent",
    }
    return olmo2(**(own | changes))


def minimax_m2(**changes):
    own = {
        "architectures": ["MiniMaxM2ForCausalLM"],
        "model_type": "minimax_m2",
        "intermediate_size": 18,
        "head_dim": 12,
        "rotary_dim": 6,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "scoring_func": "sigmoid",
        "attention_bias": "absent",
        "mlp_bias": "absent",
    }
    return llama(**(own | changes))


def ministral3(**changes):
    own = {
        "architectures": ["Ministral3ForCausalLM"],
        "model_type": "ministral3",
        "head_dim": 12,
        "attention_bias": "absent",
        "mlp_bias": "absent",
        "rope_theta": "absent",
        "rope_scaling": "absent",
        "pad_token_id": None,  # the class leaves that row of the table as it is
    }
    return llama(**(own | changes))


def gemma3(**changes):
    own = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 40,
        "head_dim": 12,
        "num_hidden_layers": 4,
        "hidden_act": "absent",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 10,
        "sliding_window": 7,
        "sliding_window_pattern": 3,
        "rope_local_base_freq": 1000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "mlp_bias": "absent",
        "pad_token_id": None,  # the class leaves that row of the table as it is
    }
    return llama(**(own | changes))


def gpt_oss(**changes):
    own = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "head_dim": 12,
        "num_hidden_layers": 3,
        "intermediate_size": 18,
        "num_local_experts": 5,
        "num_experts_per_tok": 3,
        "attention_bias": True,
        "mlp_bias": "absent",
        "sliding_window": 7,
        "swiglu_limit": 0.4,
        "swiglu_alpha": 1.702,
        "rope_theta": 150000.0,
    }
    return llama(**(own | changes))


def qwen3_5_moe(**changes):
    own = {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": "absent",
        "mlp_bias": "absent",
        "rms_norm_eps": 0.05,  # outputs of the rule may be small, and a norm that enlarges them no good for quotients
        "layer_types": ["linear_attention", "linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 9,
        "shared_expert_intermediate_size": 14,
        "rope_theta": "absent",
        "rope_scaling": "absent",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    }
    return llama(**(own | changes))


def qwen3_next(**changes):
    own = {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "layer_types": "absent",
        "full_attention_interval": 3,
        "linear_key_head_dim": 10,
        "linear_value_head_dim": 7,
        "intermediate_size": 26,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "rope_parameters": "absent",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
    }
    return qwen3_5_moe(**(own | changes))


def qwen3_5(**changes):
    experts = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size")
    own = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "intermediate_size": 56,
    }
    return qwen3_5_moe(**dict.fromkeys(experts, "absent") | own | changes)


def run(tokens, batch=2, microbatch=2, **more):
    return {
        "steps": 10,
        "global_batch_sequences": batch,
        "microbatch_sequences": microbatch,
        "sequence_tokens": tokens,
    } | more


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0, "beta_slow": 1.0}

PROBLEMS = {
    "llama": Problem(
        shows=(
            "A Llama with grouped queries (4 heads on 2 key-value heads) and Llama 3's rotary scaling, whose three "
            "ranges of wavelength all occur. config.json has the older keys (`rope_theta`, `rope_scaling`). Cosine "
            "schedule with warm-up; the gradient is clipped."
        ),
        config=llama(head_dim=16, rope_scaling=LLAMA3),
        train=run(32),
        optimizer={"learning_rate": 0.005, "warmup_steps": 3, "clip_norm": 1.0, "schedule": "cosine"},
    ),
    "llama_yarn": Problem(
        shows=(
            "YaRN's rotary scaling with its factor on cosines and sines, and one key-value head for each head. Linear "
            "schedule, no clipping. The file has fewer samples than ten steps read, so their order wraps to the "
            "first."
        ),
        config=llama(num_key_value_heads=4, head_dim=16, max_position_embeddings=256, rope_scaling=YARN),
        train=run(40),
        token_files={"tokens.bin": 581},
        optimizer={"learning_rate": 0.003, "schedule": "linear", "min_ratio": 0.0, "clip_norm": 0},
    ),
    "llama_linear": Problem(
        shows=(
            "Linear rotary scaling under the newer key `rope_parameters`, tied embeddings, a head size that is not "
            "width / heads (4 x 12 beside 40), and biases in attention and feed-forward. Constant learning rate. "
            "uint32 tokens."
        ),
        config=llama(
            hidden_size=40,
            head_dim=12,
            tie_word_embeddings=True,
            attention_bias=True,
            mlp_bias=True,
            rope_theta="absent",
            rope_scaling="absent",
            rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
        ),
        train=run(30),
        token_type="uint32",
        optimizer={"learning_rate": 0.004, "schedule": "constant", "beta1": 0.8, "beta2": 0.99},
    ),
    "mistral": Problem(
        shows=(
            "A sliding window (9 tokens, the own one included) shorter than the sequence; `head_dim: null`, which "
            "means width / heads. The weights are BF16 in three files with an index. wsd schedule with a linear tail "
            "over the last 4 of 10 steps; full recompute."
        ),
        config=llama(
            architectures=["MistralForCausalLM"],
            model_type="mistral",
            sliding_window=9,
            head_dim=None,
            attention_bias="absent",
            mlp_bias="absent",
            rope_scaling="absent",
            num_hidden_layers=3,
        ),
        train=run(28, recompute="full"),
        storage="BF16",
        shards=3,
        optimizer={"learning_rate": 0.004, "schedule": "wsd", "warmup_steps": 2, "decay_steps": 4, "min_ratio": 0.05},
    ),
    "qwen2": Problem(
        shows=(
            "Biases on queries, keys and values, and a sliding window (7 tokens) from layer 1 on "
            "(`use_sliding_window`, `max_window_layers`). The weights are F16. Inverse-square-root schedule."
        ),
        config=qwen(
            "qwen2",
            hidden_size=36,
            use_sliding_window=True,
            sliding_window=7,
            max_window_layers=1,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=50,
        ),
        train=run(26),
        storage="F16",
        optimizer={"learning_rate": 0.006, "schedule": "inverse_sqrt", "warmup_steps": 2, "weight_decay": 0.3},
    ),
    "qwen3": Problem(
        shows=(
            "Norms on the heads of queries and keys, and one key-value head for all (multi-query). config.json is as "
            "transformers 5 saves it (`rope_parameters`, `layer_types`; a sliding window that is switched off). Two "
            "token files follow each other; rex schedule; selective recompute."
        ),
        config=qwen(
            "qwen3",
            num_key_value_heads=1,
            head_dim=14,
            use_sliding_window=False,
            sliding_window=None,
            max_window_layers=1,
            layer_types=["full_attention", "full_attention"],
            rope_scaling="absent",
            rope_theta="absent",
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        train=run(24, recompute="selective"),
        token_files={"tokens_0.bin": 300, "tokens_1.bin": 150},
        optimizer={"learning_rate": 0.005, "schedule": "rex", "warmup_steps": 2, "min_ratio": 0.2},
    ),
    "gpt2": Problem(
        shows=(
            "Learned positions, LayerNorm, GELU with tanh, biases everywhere, tied embeddings, matrices stored (in, "
            "out). The dropout in config.json is ignored: the deck's own key counts, and is 0. Cosine schedule that "
            "ends at step 6."
        ),
        config=gpt2(),
        train=run(32),
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "decay_steps": 6, "clip_norm": 0.5},
    ),
    "gpt2_hub": Problem(
        shows=(
            "A GPT-2 as its files on the hub are: no `transformer.` prefix, and each layer's causal mask stored as "
            "`h.N.attn.bias` beside the weights. An .npy token file, and a feed-forward width that is not 4 C."
        ),
        config=gpt2(n_inner=72, n_head=4, n_positions=32, n_ctx=32),
        train=run(32, 3, 1),
        hub_names=True,
        token_files={"tokens.npy": 961},
        token_type="uint16",
        optimizer={"learning_rate": 0.003, "schedule": "linear", "warmup_steps": 4},
    ),
    "documents": Problem(
        shows=(
            "Packed documents: after each end token (id 5) a new document begins. Attention doesn't reach across, the "
            "label behind an end token is masked, positions keep counting. Documents have 1 to 20 tokens, so the "
            "number of labels differs between the microbatches, and the loss must be the mean over all of them. wsd "
            "with a square-root tail."
        ),
        config=llama(),
        train=run(36, 4, 1),
        end_token=5,
        token_files={"tokens.bin": 1441},
        optimizer={"learning_rate": 0.004, "schedule": "wsd", "decay_steps": 8, "wsd_tail": "sqrt"},
    ),
    "zloss": Problem(
        shows=(
            "The z-loss: 0.01 times the mean squared log-sum-exp is added to the loss, and its gradient to every "
            "gradient. wsd with a cosine tail."
        ),
        config=llama(num_key_value_heads=4),
        train=run(32, z_loss_coefficient=0.01),
        optimizer={"learning_rate": 0.005, "schedule": "wsd", "decay_steps": 6, "wsd_tail": "cosine", "min_ratio": 0.0},
    ),
    "accumulate": Problem(
        shows=("Gradient accumulation: a global batch of 4 sequences in 4 microbatches equals one batch of 4."),
        config=llama(hidden_size=24, intermediate_size=40),
        train=run(32, 4, 1),
        token_files={"tokens.bin": 1281},
        optimizer={"learning_rate": 0.005, "schedule": "linear", "warmup_steps": 1},
    ),
    "odd_sizes": Problem(
        shows=(
            "Sizes that divide nothing: 5 layers, vocabulary 211, sequences of 37, width 35, feed-forward 53, head "
            "size 10 with 7 heads, microbatches of 1 in a global batch of 3."
        ),
        config=llama(
            hidden_size=35,
            intermediate_size=53,
            num_hidden_layers=5,
            num_attention_heads=7,
            num_key_value_heads=1,
            head_dim=10,
            vocab_size=211,
        ),
        train=run(37, 3, 1),
        token_files={"tokens.bin": 1111},
        storage="BF16",
        optimizer={"learning_rate": 0.003, "schedule": "rex", "warmup_steps": 3},
    ),
    "mixtral": Problem(
        shows=(
            "Mixtral: every layer has 5 experts, of which a token uses 2 with renormalised softmax weights. "
            "config.json asks for the router's logits, so its router_aux_loss_coef counts, by sequence. A sliding "
            "window (11 tokens); BF16 weights in two files; accumulation over two microbatches."
        ),
        config=mixtral(sliding_window=11, output_router_logits=True, router_aux_loss_coef=0.02),
        train=run(28, 4, 2),
        token_files={"tokens.bin": 1121},
        storage="BF16",
        shards=2,
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "qwen3_moe": Problem(
        shows=(
            "Qwen3-MoE: 8 small experts, 3 used, their weights not renormalised; layer 1 is dense (mlp_only_layers). "
            "config.json is as transformers 5 saves it (num_local_experts, rope_parameters). The auxiliary loss is the "
            "deck's, by microbatch, with a router z-loss; selective recompute; documents."
        ),
        config=qwen3_moe(
            num_experts="absent",
            num_local_experts=8,
            mlp_only_layers=[1],
            num_hidden_layers=3,
            rope_scaling="absent",
            rope_theta="absent",
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        train=run(26, 4, 2, recompute="selective"),
        model={
            "auxiliary_loss_coefficient": 0.03,
            "auxiliary_loss_scope": "microbatch",
            "router_z_coefficient": 0.002,
        },
        end_token=5,
        token_files={"tokens.bin": 1041},
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 1},
    ),
    "deepseek_v3": Problem(
        shows=(
            "DeepSeek-V3: latent attention with a latent for queries, interleaved rotation, values of another width "
            "than keys, and yarn, whose mscale_all_dim changes the scale of the scores. Layer 0 is dense, the others "
            "have 8 experts in 4 groups, of which a token uses 3 in 2 groups, by sigmoid scores with a bias that moves "
            "each step, and 2 shared ones. config.json's head_dim is another one, and is not read. "
            "Auxiliary loss by sequence from the deck; full recompute."
        ),
        config=deepseek_v3(
            num_hidden_layers=3,
            rms_norm_eps=1e-5,
            head_dim=4,
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.6,
            },
        ),
        train=run(32, 2, 2, recompute="full"),
        model={"auxiliary_loss_coefficient": 0.02, "router_bias_rate": 0.01},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "moonlight": Problem(
        shows=(
            "As Moonlight has it: latent attention without a latent for queries, one group of experts, no "
            "renormalisation, rotation of halves. The auxiliary loss is config.json's, by sequence."
        ),
        config=deepseek_v3(
            q_lora_rank=None,
            n_group=1,
            topk_group=1,
            norm_topk_prob=False,
            routed_scaling_factor=1.5,
            n_shared_experts=1,
            rope_interleave=False,
            output_router_logits=True,
            router_aux_loss_coef=0.01,
            rope_theta=50000.0,
        ),
        train=run(30, 3, 1),
        token_files={"tokens.bin": 901},
        optimizer={"learning_rate": 0.004, "schedule": "wsd", "decay_steps": 5},
    ),
    "deepseek_v2": Problem(
        shows=(
            "DeepSeek-V2: softmax scores, of whose 8 experts in 4 groups a token uses 3 in the 2 groups with the best "
            "expert; weights that are not renormalised, times 1.5; 2 shared experts; yarn, whose mscale_all_dim changes "
            "the scale of the scores. Auxiliary loss by sequence from the deck."
        ),
        config=deepseek_v2(
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
            },
        ),
        train=run(30, 2, 2),
        model={"auxiliary_loss_coefficient": 0.02},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "qwen2_moe": Problem(
        shows=(
            "Qwen2-MoE: 7 experts, of which a token uses 3, and a shared one of another width behind a sigmoid gate; "
            "biases on queries, keys and values; every second layer is dense (decoder_sparse_step)."
        ),
        config=qwen2_moe(decoder_sparse_step=2),
        train=run(28, 2, 1, recompute="selective"),
        model={"auxiliary_loss_coefficient": 0.02},
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 2},
    ),
    "phi3": Problem(
        shows=(
            "Phi-3: q, k and v in one tensor of the files, and gate and up in another; the first three quarters of each "
            "head are rotated; a sliding window (13 tokens). Muon, which orthogonalises each of the matrices for itself."
        ),
        config=phi3(sliding_window=13, num_key_value_heads=4, partial_rotary_factor=0.75),
        train=run(30, 2, 2),
        optimizer={"name": "muon", "learning_rate": 0.004, "adam_learning_rate": 0.006, "warmup_steps": 2},
    ),
    "phi3_long": Problem(
        shows=(
            "A Phi-4-mini with longrope: sequences of 40 tokens, more than the 24 of the original context, so each "
            "frequency has its long divisor; the factor on cosines and sines is the class's own, of 256 positions over "
            "24. Three quarters of each head are rotated."
        ),
        config=phi3(
            hidden_size=64,
            partial_rotary_factor=0.75,
            original_max_position_embeddings=24,
            rope_scaling={
                "type": "longrope",
                "short_factor": [1.0, 1.0, 1.125, 1.25, 1.5, 1.75],
                "long_factor": [1.0, 1.25, 2.0, 4.5, 12.0, 30.75],
            },
        ),
        train=run(40, 2, 1),
        token_files={"tokens.bin": 801},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "glm4_moe": Problem(
        shows=(
            "GLM-4.5: the first half of each head of queries and keys is rotated, behind a norm of the head; biases on "
            "queries, keys and values; behind a dense layer 8 experts, of which a token uses 3 by sigmoid scores with a "
            "bias that moves each step, and a shared one. Multi-token prediction of one token; documents."
        ),
        config=glm4_moe(attention_bias=True, num_hidden_layers=2),
        train=run(28, 4, 2),
        end_token=5,
        token_files={"tokens.bin": 1121},
        model={"auxiliary_loss_coefficient": 0.02, "router_bias_rate": 0.01, "mtp_depth": 1, "mtp_loss_factor": 0.4},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "smollm3": Problem(
        shows=(
            "SmolLM3: every second of four layers has no positions (no_rope_layers); tied embeddings, which the class has "
            "where config.json leaves them out."
        ),
        config=smollm3(tie_word_embeddings="absent"),
        train=run(30, 2, 2, recompute="full"),
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 2},
    ),
    "olmoe": Problem(
        shows=(
            "OLMoE: norms of the queries of all heads together, and of the keys, before the rotation; every layer has 6 "
            "experts, of which a token uses 2, their weights not renormalised. The auxiliary loss is config.json's, by "
            "sequence; documents."
        ),
        config=olmoe(output_router_logits=True, router_aux_loss_coef=0.02),
        train=run(28, 4, 2, recompute="selective"),
        end_token=5,
        token_files={"tokens.bin": 1121},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "olmo2": Problem(
        shows=(
            "OLMo 2: no norms before attention and the feed-forward layer, but of what they add to the residual stream; "
            "norms of the queries of all heads together, and of the keys; biases of attention's projections. Full "
            "recomputation, which makes the layers' outputs again."
        ),
        config=olmo2(attention_bias=True),
        train=run(28, 4, 2, recompute="full"),
        end_token=5,
        token_files={"tokens.bin": 1121},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "olmo3": Problem(
        shows=(
            "OLMo 3: OLMo 2's norms; the first and third of four layers have a window of 7 tokens, the others see all and "
            "have wavelengths stretched by yarn, which the layers with a window have not."
        ),
        config=olmo3(
            layer_types=["sliding_attention", "full_attention"] * 2,
            rope_parameters={
                "full_attention": YARN | {"rope_theta": 10000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
            },
        ),
        train=run(32, 2, 2, recompute="selective"),
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 2},
    ),
    "minimax_m2": Problem(
        shows=(
            "MiniMax-M2: norms of the queries of all heads together, and of the keys; half of each head turns, as "
            "`rotary_dim` says; every layer has experts, which a sigmoid and biases of a name of their own choose."
        ),
        config=minimax_m2(),
        train=run(28, 4, 2, recompute="selective"),
        model={"router_bias_rate": 0.02},
        end_token=5,
        token_files={"tokens.bin": 1121},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "gpt_oss": Problem(
        shows=(
            "gpt-oss: a learned number for each head in the sum of its softmax (attention sinks), windows in every other "
            "layer, yarn whose range isn't rounded, biases of all projections; in every layer experts with a gate and an "
            "up that are limited, their biases and the router's. The limit is so low that it acts on many entries."
        ),
        config=gpt_oss(rope_scaling=YARN | {"truncate": False}),
        train=run(28, 4, 2, recompute="selective"),
        model={"auxiliary_loss_coefficient": 0.02},
        end_token=5,
        token_files={"tokens.bin": 1121},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "qwen3_5": Problem(
        shows=(
            "Qwen3.5 with experts: two layers of gated DeltaNet, whose four value heads share two key heads, over more "
            "than one chunk of tokens, and one of attention, whose output has gates and whose heads turn by a quarter; "
            "norms that multiply by 1 + weight, experts in every layer beside a gated shared one."
        ),
        config=qwen3_5_moe(),
        train=run(76, 2, 1, recompute="selective"),
        model={"auxiliary_loss_coefficient": 0.02},
        token_files={"tokens.bin": 1521},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "qwen3_next": Problem(
        shows=(
            "Qwen3-Next: two layers of gated DeltaNet, whose projections stand in two tensors by key heads, of each "
            "queries, keys, values and gates, and one of attention with an output gate, of which a quarter of a head "
            "turns; norms that multiply by 1 + weight; 6 experts, 3 used, beside a gated shared one, but in layer 1, "
            "which is dense; a layer of multi-token prediction, under `mtp.`. config.json has the older keys (full_attention_interval, partial_rotary_factor)."
        ),
        config=qwen3_next(),
        train=run(40, 2, 2),
        model={"auxiliary_loss_coefficient": 0.02, "mtp_depth": 1, "mtp_loss_factor": 0.4},
        token_files={"tokens.bin": 801},
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 2},
    ),
    "qwen3_5_dense": Problem(
        shows=(
            "Qwen3.5 without experts: gated DeltaNet in every other layer, one key head, a convolution of three tokens; the "
            "head is the table of embeddings."
        ),
        config=qwen3_5(
            num_hidden_layers=4,
            layer_types=["linear_attention", "full_attention"] * 2,
            linear_num_key_heads=1,
            linear_num_value_heads=2,
            linear_conv_kernel_dim=3,
            tie_word_embeddings=True,
        ),
        train=run(72, recompute="full"),
        token_files={"tokens.bin": 1441},
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 2},
    ),
    "ministral3": Problem(
        shows=(
            "Ministral 3: yarn, and queries multiplied by 1 + 0.3 ln(1 + position / 12), the quotient rounded down: "
            "four values in a sequence."
        ),
        config=ministral3(
            rope_parameters=YARN
            | {"rope_theta": 10000.0, "original_max_position_embeddings": 12, "llama_4_scaling_beta": 0.3}
            | {"mscale": 1.0, "mscale_all_dim": 1.0}
        ),
        train=run(40, 2, 2, recompute="selective"),
        optimizer={"learning_rate": 0.004, "schedule": "linear", "warmup_steps": 2},
    ),
    "gemma3": Problem(
        shows=(
            "Gemma 3's text model: norms that multiply by 1 + weight, before attention and the feed-forward layer and "
            "behind them, of queries and of keys; a gated GELU; embeddings times sqrt(width), from the table that is the "
            "head; scores over sqrt(query_pre_attn_scalar). Each third layer sees all, with stretched wavelengths; the "
            "others have a window of 7 tokens and a base of their own. Documents; full recomputation."
        ),
        config=gemma3(rope_scaling={"rope_type": "linear", "factor": 8.0}),
        train=run(32, 4, 2, recompute="full"),
        end_token=5,
        token_files={"tokens.bin": 1281},
        optimizer={"learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 2},
    ),
    "mtp": Problem(
        shows=(
            "Multi-token prediction of two further tokens behind a qwen3_moe: two more layers with experts, the table "
            "and the output matrix shared with the model, labels behind the end of a document or of the sample masked, "
            "each depth's loss over its own labels, and the auxiliary loss of the modules' routers. The class has no "
            "such modules: `verify/multi_token.py` builds them from its last layer."
        ),
        config=qwen3_moe(
            hidden_size=24,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            vocab_size=53,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=7,
            norm_topk_prob=True,
        ),
        train=run(24, batch=4, microbatch=1),
        end_token=3,
        model={"mtp_depth": 2, "mtp_loss_factor": 0.6, "auxiliary_loss_coefficient": 0.02},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "muon": Problem(
        shows=(
            "Muon on what DeepSeek-V3 has: latent attention, a dense layer, experts, their router and shared experts. Each "
            "matrix of a checkpoint is orthogonalised for itself; table, output matrix and norms have AdamW at a rate of "
            "their own."
        ),
        config=deepseek_v3(num_hidden_layers=3),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        model={"auxiliary_loss_coefficient": 0.02},
        optimizer={"name": "muon", "learning_rate": 0.004, "adam_learning_rate": 0.006, "warmup_steps": 2},
    ),
    "muon_gpt2": Problem(
        shows=(
            "Muon with Keller Jordan's scale on a GPT-2, whose files have matrices (in, out), and queries, keys and values "
            "in one: three matrices. No rate of AdamW's own."
        ),
        config=gpt2(),
        train=run(32),
        optimizer={"name": "muon", "muon_scale": "keller", "learning_rate": 0.01, "schedule": "linear"},
    ),
    "normuon": Problem(
        shows=(
            "NorMuon on a Mixtral: rows of the orthogonal matrices by the roots of their second moments, each expert's gate, "
            "up and down for itself."
        ),
        config=mixtral(),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        optimizer={"name": "normuon", "learning_rate": 0.004, "beta2": 0.9, "warmup_steps": 2},
    ),
    "soap": Problem(
        shows=(
            "SOAP on a Llama: Adam in the bases of the gradients' covariances, refreshed behind updates 1, 4, 7 and 10. The "
            "feed-forward layer's longer side has no basis."
        ),
        config=llama(),
        train=run(32),
        optimizer={
            "name": "soap",
            "learning_rate": 0.004,
            "adam_learning_rate": 0.006,
            "warmup_steps": 2,
            "soap_basis_every_steps": 3,
            "soap_largest_side": 48,
        },
    ),
    "soap_experts": Problem(
        shows="SOAP on a Mixtral: bases of each expert's gate, up and down, and of the routers.",
        config=mixtral(),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        optimizer={"name": "soap", "learning_rate": 0.004, "soap_basis_every_steps": 2, "warmup_steps": 2},
    ),
    "adafactor": Problem(
        shows=(
            "Adafactor on a Qwen3-MoE: second moments by row and column of every matrix, each expert's for itself, of vectors "
            "by element; table and output matrix, too."
        ),
        config=qwen3_moe(),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        optimizer={"name": "adafactor", "learning_rate": 0.02, "warmup_steps": 2},
    ),
    "lion": Problem(
        shows="Lion, with its own decays of the moment, on a Llama with tied embeddings.",
        config=llama(tie_word_embeddings=True),
        train=run(32),
        optimizer={"name": "lion", "learning_rate": 0.001, "beta2": 0.99, "weight_decay": 0.5, "warmup_steps": 2},
    ),
    "schedule_free": Problem(
        shows="Schedule-free AdamW, with warm-up: losses are those of the weights that are trained.",
        config=llama(),
        train=run(32),
        optimizer={"name": "schedule_free", "learning_rate": 0.01, "warmup_steps": 3, "schedule": "constant"},
    ),
    "sgd": Problem(
        shows="Stochastic gradient descent with momentum and decoupled decay.",
        config=llama(),
        train=run(32),
        optimizer={"name": "sgd", "learning_rate": 0.2, "momentum": 0.8, "schedule": "constant", "clip_norm": 0},
    ),
    "soft_caps": Problem(
        shows=(
            "Soft caps, as Gemma 2 has them: attention's scaled scores and the head's logits are c tanh(x / c), with documents, "
            "grouped heads and a z-loss."
        ),
        config=llama(),
        train=run(32) | {"z_loss_coefficient": 0.02},
        end_token=3,
        model={"attention_soft_cap": 1.5, "logit_soft_cap": 2.0},
        optimizer={"learning_rate": 0.005, "warmup_steps": 3},
    ),
    "qk_clip": Problem(
        shows=(
            "Muon with QK-clip, as Kimi K2 was trained, on latent attention: in each step the queries and keys of heads whose "
            "largest attention logit is above the limit are scaled down to it."
        ),
        config=deepseek_v3(num_hidden_layers=3),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        optimizer={"name": "muon", "learning_rate": 0.01, "qk_clip": 1.0, "warmup_steps": 2},
    ),
    "qk_clip_grouped": Problem(
        shows=(
            "AdamW with QK-clip on grouped heads with biases: a key's factor is the root of its group's smallest, and each "
            "query takes the rest of its own."
        ),
        config=qwen("qwen2", num_attention_heads=6, num_key_value_heads=2, head_dim=6, hidden_size=36),
        train=run(32),
        optimizer={"learning_rate": 0.01, "qk_clip": 0.5, "warmup_steps": 2},
    ),
    "groups": Problem(
        shows=(
            "Muon with groups of tensors that have a rate, a decay or AdamW of their own: routers, one layer's attention, "
            "norms, which decay, and the table, which stays."
        ),
        config=qwen3_moe(),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        optimizer={
            "name": "muon",
            "learning_rate": 0.004,
            "adam_learning_rate": 0.006,
            "warmup_steps": 2,
            "groups": [
                {"pattern": "*.router", "optimizer": "adamw", "learning_rate": 0.002},
                {"pattern": "layers.0.attention.*", "learning_rate": 0.001},
                {"pattern": "*norm*", "weight_decay": 0.05},
                {"pattern": "embedding.*", "learning_rate": 0},
            ],
        },
    ),
    "fp8_current": Problem(
        shows=(
            "FP8 with current scales on a Qwen3 with QK-norm: one of a sequence's activations and of each product's "
            "matrix, E4M3, and E5M2 for output gradients."
        ),
        config=qwen("qwen3", num_hidden_layers=3, head_dim=12),
        train=run(32, 4, 2, precision="fp8", fp8_recipe="current"),
        token_files={"tokens.bin": 1401},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "fp8_experts": Problem(
        shows=(
            "FP8 with current scales on a Mixtral whose experts are in FP8, too: a scale for each of their tokens and for "
            "each expert's matrices. Gradients of their weights aren't rounded."
        ),
        config=mixtral(num_hidden_layers=3),
        train=run(28, 4, 2, precision="fp8", fp8_recipe="current", fp8_experts=True),
        token_files={"tokens.bin": 1121},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "fp8_dispatch": Problem(
        shows=(
            "FP8 with rows that go to the routed experts, and gradients on their way back to them, as codes: the gradients "
            "of the experts' weights read what these stand for. A token has a scale for each block of 128 of its 136 "
            "columns."
        ),
        config=mixtral(num_hidden_layers=2, hidden_size=136, intermediate_size=12),
        train=run(28, 4, 2, precision="fp8", fp8_recipe="block", fp8_experts=True, fp8_dispatch=True),
        token_files={"tokens.bin": 1121},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "fp8_transposed": Problem(
        shows=(
            "FP8 as in DeepSeek-V3's training, the gradients of weights included, but for those of routed experts: from "
            "copies with a scale for each column of 128 tokens. Sequences have two such groups, the second one short."
        ),
        config=deepseek_v3(num_hidden_layers=2, max_position_embeddings=160),
        train=run(136, 4, 2, precision="fp8", fp8_recipe="block", fp8_experts=True, fp8_transposed=True),
        token_files={"tokens.bin": 5501},
        model={"auxiliary_loss_coefficient": 0.02},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "fp8_delayed": Problem(
        shows=(
            "FP8 with scales from the three steps before, of whole tensors over the batch, and 1 in the first step, on "
            "DeepSeek-V3's model with latent attention, a shared expert, and routed ones, whose rows have scales by token."
        ),
        config=deepseek_v3(num_hidden_layers=3),
        train=run(28, 4, 2, precision="fp8", fp8_recipe="delayed", fp8_history=3, fp8_experts=True),
        token_files={"tokens.bin": 1121},
        model={"auxiliary_loss_coefficient": 0.02},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "fp8_row": Problem(
        shows=(
            "FP8 with a scale for each token and each row of a product's result, which are not powers of two, on a Qwen2 "
            "with biases; the first block isn't in FP8. Gradients of weights aren't."
        ),
        config=qwen("qwen2", num_hidden_layers=3),
        train=run(32, precision="fp8", fp8_recipe="row", fp8_scale="exact", fp8_first_layers_bf16=1),
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "fp8_block": Problem(
        shows=(
            "FP8 as in DeepSeek-V3's training: a scale for 1 x 128 of activations and gradients and 128 x 128 of a weight, "
            "E4M3 throughout, on its model with latent attention, a shared expert and routed ones. The dense layer is wider "
            "than a block."
        ),
        config=deepseek_v3(num_hidden_layers=3, intermediate_size=136),
        train=run(30, 4, 2, precision="fp8", fp8_recipe="block", fp8_experts=True),
        token_files={"tokens.bin": 1281},
        model={"auxiliary_loss_coefficient": 0.02},
        optimizer={"learning_rate": 0.004, "warmup_steps": 2},
    ),
    "lora": Problem(
        shows=(
            "Low-rank adapters of all matrices of attention and MLP beside a frozen Llama with grouped queries: each of "
            "the fused q, k, v and gate, up has its own A and B. They alone have gradients, norm and updates. Full "
            "recompute; two microbatches."
        ),
        config=llama(),
        train=run(32, 4, 2, recompute="full"),
        token_files={"tokens.bin": 1301},
        adapter={
            "rank": 4,
            "alpha": 6.0,
            "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        },
        optimizer={"learning_rate": 0.01, "warmup_steps": 2, "clip_norm": 0.3, "schedule": "cosine"},
    ),
    "lora_gpt2": Problem(
        shows=(
            "Adapters whose scale is stabilised by rank, of GPT-2's fused q, k, v and both output projections, but not of "
            "the first matrix of its MLP; files have matrices (in, out), adapters don't."
        ),
        config=gpt2(),
        train=run(32),
        adapter={"rank": 3, "alpha": 4.0, "rank_stabilised": True, "targets": ["c_attn", "c_proj"]},
        optimizer={"learning_rate": 0.01, "schedule": "linear", "weight_decay": 0.2},
    ),
    "lora_phi3": Problem(
        shows=(
            "Adapters of tensors that stand fused in the files, too: q, k and v have one A and one B together, and so have "
            "gate and up."
        ),
        config=phi3(),
        train=run(32),
        adapter={"rank": 3, "alpha": 5.0, "targets": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
        optimizer={"learning_rate": 0.01, "schedule": "cosine", "warmup_steps": 2},
    ),
    "lora_qwen3_5": Problem(
        shows=(
            "Adapters of a hybrid: of the four projections of gated DeltaNet and its output's, of attention with gates, "
            "whose queries' tensor has their rows, and of feed-forward layers."
        ),
        config=qwen3_5(),
        train=run(70, recompute="selective"),
        token_files={"tokens.bin": 1401},
        adapter={
            "rank": 3,
            "alpha": 5.0,
            "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
            + ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"],
        },
        optimizer={"learning_rate": 0.01, "schedule": "cosine", "warmup_steps": 2},
    ),
    "lora_deepseek": Problem(
        shows=(
            "Adapters of all projections of latent attention, in layers with frozen experts and without: those down, which "
            "no tensor-parallel rank splits, and those up from gathered latents. The auxiliary loss reaches them through "
            "the frozen routers."
        ),
        config=deepseek_v3(),
        train=run(30, 4, 2),
        token_files={"tokens.bin": 1281},
        model={"auxiliary_loss_coefficient": 0.02},
        adapter={
            "rank": 3,
            "alpha": 5.0,
            "targets": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
        },
        optimizer={"learning_rate": 0.01, "warmup_steps": 2, "schedule": "cosine"},
    ),
    "lora_experts": Problem(
        shows=(
            "Adapters of each expert's own gate, up and down, of the shared expert's behind its gate and of dense layers' "
            "between them, and of queries; routers are frozen. transformers packs a layer's experts into one tensor: for "
            "the reference each matrix is a module again, as in the files, to which peft gives an adapter."
        ),
        config=qwen2_moe(decoder_sparse_step=2, num_experts=8),
        train=run(28, 4, 2, recompute="selective"),
        model={"auxiliary_loss_coefficient": 0.02},
        adapter={"rank": 3, "alpha": 5.0, "targets": ["q_proj", "gate_proj", "up_proj", "down_proj"]},
        optimizer={"learning_rate": 0.01, "schedule": "cosine", "warmup_steps": 2},
    ),
}
