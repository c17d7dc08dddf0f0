#pragma once

#include <nlohmann/json.hpp>

#include "config/deck.hpp"
#include "hf/json_input.hpp"

namespace forge {

// Biases of a family's projections, and the keys that say so.
enum class HfBiases {
  none,
  qkv,               // always
  attention,         // of q, k, v and the output, where attention_bias
  attention_and_mlp  // and those of the feed-forward layer, where mlp_bias
};

// Layers that have a sliding window, and the keys that say so.
enum class HfWindow {
  none,
  every_layer,           // sliding_window, which is 4096 where it is left out
  every_layer_if_given,  // sliding_window
  every_layer_if_used,   // sliding_window (4096 where left out) with use_sliding_window
  from_layer             // as every_layer_if_used, from layer max_window_layers on
};

// What transformers takes for dimensions that a family's config.json leaves out.
struct HfSizes {
  std::int64_t width, ffn, layers, heads, vocabulary;
  std::int64_t kv_heads;  // 0 = heads
  std::int64_t positions;
  std::int64_t head_dim = 0;  // 0 = width / heads
};

// What is particular to a family.
struct HfFamily {
  const char* architecture;
  HfSizes sizes;
  double epsilon = 1e-6, rope_theta = 10000;
  HfBiases biases = HfBiases::none;
  HfWindow window = HfWindow::none;
  bool qk_norm = false;
  bool latent = false;  // head_dim and num_key_value_heads are not read

  bool reads_attention_bias() const { return biases == HfBiases::attention || biases == HfBiases::attention_and_mlp; }

  // Of families with experts; `model` has its heads and layers.
  void (*read_experts)(const JsonObject& config, ModelDeck& model) = nullptr;
  void (*write_experts)(const ModelDeck& model, nlohmann::ordered_json& config) = nullptr;
  // Why the family has no words for the model's experts or attention; "" when it has.
  std::string (*obstacle)(const ModelDeck& model) = nullptr;
};

// The row of a family other than gpt2, which has keys of its own for everything.
const HfFamily& hf_family(Family family);

// A number under either of two names that transformers maps to each other.
std::int64_t aliased_size(const JsonObject& config, const char* key, const char* alias, std::int64_t fallback,
                          std::int64_t least = 1);

}  // namespace forge
