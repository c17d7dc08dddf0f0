#pragma once

#include <array>

#include "core/to_size.hpp"

// Families of Hugging Face models. A new one stands here, with the names of its tensors, and in the table of
// hf/families.cpp, with what its config.json says.

namespace forge {

enum class Family : int { llama, mistral, qwen2, qwen3, gpt2, mixtral, qwen3_moe, deepseek_v3 };

// The deck's words for them, in this order: model_type in config.json.
inline constexpr std::array family_words{"llama", "mistral", "qwen2",     "qwen3",
                                         "gpt2",  "mixtral", "qwen3_moe", "deepseek_v3"};
constexpr const char* name_of(Family family) {
  return family_words[to_size(family)];
}

// Where the names of a family's tensors differ from the others' (nn/*.plan.cpp have those).
struct TensorNames {
  bool gpt2 = false;         // names of its own for all; q, k and v are one tensor; matrices are stored (in, out)
  const char* moe = "mlp.";  // before the router and the experts of a layer
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* shared = "shared_expert.";  // before the matrices of the shared expert
};
constexpr TensorNames tensor_names(Family family) {
  TensorNames names;
  if (family == Family::gpt2) names.gpt2 = true;
  if (family == Family::mixtral) names = {false, "block_sparse_moe.", "w1", "w3", "w2"};
  if (family == Family::deepseek_v3) names.shared = "shared_experts.";
  return names;
}

}  // namespace forge
