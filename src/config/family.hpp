#pragma once

#include <array>

#include "core/to_size.hpp"

// Families of Hugging Face models. A new one stands here, with the names of its tensors, and in the table of
// hf/families.cpp, with the keys of its config.json.

namespace forge {

enum class Family : int {
  llama,
  mistral,
  qwen2,
  qwen3,
  gpt2,
  mixtral,
  qwen3_moe,
  deepseek_v3,
  deepseek_v2,
  qwen2_moe,
  phi3,
  glm4_moe,
  smollm3,
  olmoe,
  olmo2,
  olmo3,
  minimax_m2,
  ministral3,
  gemma3_text,
  gpt_oss,
  qwen3_5_text,
  qwen3_5_moe_text,
  qwen3_next
};

// The deck's words for them, in this order: model_type in config.json.
inline constexpr std::array family_words{"llama",        "mistral",          "qwen2",       "qwen3",       "gpt2",
                                         "mixtral",      "qwen3_moe",        "deepseek_v3", "deepseek_v2", "qwen2_moe",
                                         "phi3",         "glm4_moe",         "smollm3",     "olmoe",       "olmo2",
                                         "olmo3",        "minimax_m2",       "ministral3",  "gemma3_text", "gpt_oss",
                                         "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"};
constexpr const char* name_of(Family family) {
  return family_words[to_size(family)];
}

// Where the names of a family's tensors differ from the others' (nn/*.plan.cpp have those).
struct TensorNames {
  bool gpt2 = false;         // names of its own for all; matrices are stored (in, out)
  const char* moe = "mlp.";  // before the router and the experts of a layer
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* shared = "shared_expert.";  // before the matrices of the shared expert
  const char* qkv = "";                   // of the tensor that has q, k and v, one behind the other; "": one each
  const char* gate_up = "";               // likewise the tensor of a gated feed-forward layer's gate and up
  const char* router_bias = "gate.e_score_correction_bias";  // behind `moe`
  const char* router = "gate.";                              // behind `moe`: the router's matrix
  bool linear_groups = false;   // gated DeltaNet's projections in two tensors: of each key head q, k, v, z; and b, a
  bool packed = false;          // a layer's experts in one tensor (packed_place of checkpoint/hf_source.hpp)
  bool adapted_experts = true;  // PEFT has names for adapters of experts' matrices
  double norm_offset = 0;       // added to the files' weights of norms
  bool mtp = false;             // multi-token prediction, one layer, under "mtp." instead of the layers behind the last
};
// In the order of the enumerators.
inline constexpr std::array<TensorNames, family_words.size()> family_tensors{{
    {},
    {},
    {},
    {},
    {.gpt2 = true, .qkv = "attn.c_attn."},
    {.moe = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2"},
    {},
    {.shared = "shared_experts."},
    {.shared = "shared_experts."},
    {},
    {.qkv = "self_attn.qkv_proj.", .gate_up = "gate_up_proj."},
    {.shared = "shared_experts."},
    {},
    {},
    {},
    {},
    {.moe = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2", .router_bias = "e_score_correction_bias"},
    {},
    {.norm_offset = 1},
    {.router = "router.", .packed = true, .adapted_experts = false},
    {.norm_offset = 1, .mtp = true},
    {.adapted_experts = false, .norm_offset = 1, .mtp = true},
    {.linear_groups = true, .norm_offset = 1, .mtp = true},
}};
constexpr const TensorNames& tensor_names(Family family) {
  return family_tensors[to_size(family)];
}

}  // namespace forge
