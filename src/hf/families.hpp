#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "config/deck.hpp"
#include "hf/json_input.hpp"

namespace forge {

// The keys that say which biases a family's projections have; "": no key says it.
struct HfBiases {
  const char* qkv = "";
  bool always = false;      // q, k and v have them where their key is left out, or there is none
  const char* out = "";     // attention's output; may be the same key
  bool out_always = false;  // it has one where its key is left out
  const char* mlp = "";
};
constexpr HfBiases attention_bias{.qkv = "attention_bias", .out = "attention_bias"};

// Layers that have a sliding window, and the keys that say so.
enum class HfWindow {
  none,
  every_layer,           // sliding_window, which is 4096 where it is left out
  every_layer_if_given,  // sliding_window
  every_layer_if_used,   // sliding_window (4096 where left out) with use_sliding_window
  from_layer,            // as every_layer_if_used, from layer max_window_layers on
  by_type,               // sliding_window (4096 where left out) in the layers that layer_types says, of which each has
                         // rope parameters of its own; where that is left out, in all but every full_every-th
  refused                // some layers, where use_sliding_window: not available
};

// Dimensions that transformers takes where a family's config.json leaves them out.
struct HfSizes {
  std::int64_t width, ffn, layers, heads, vocabulary;
  std::int64_t kv_heads;  // 0 = heads
  std::int64_t positions;
  std::int64_t head_dim = 0;  // 0 = width / heads
};
struct HfExpertSizes {
  std::int64_t count, per_token, ffn, shared = 0, dense = 0, groups = 1, groups_used = 1;
  double scale = 1;
  bool renormalise = false;  // where norm_topk_prob is left out
};

// The particulars of a family.
struct HfFamily {
  const char* architecture;
  HfSizes sizes;
  double epsilon = 1e-6, rope_theta = 10000;
  HfBiases biases{};
  HfWindow window = HfWindow::none;
  bool qk_norm = false, qk_norm_whole = false;
  NormPlacement norms = NormPlacement::before;
  Activation activation = Activation::swiglu;
  const char* activation_key = "hidden_act";
  std::array<const char*, 2> refused{"", ""};  // keys that must be absent or null
  const char* qk_norm_key = "";                // says whether it has it
  bool tied = false;                           // where tie_word_embeddings is left out
  // Entries and layers without rotation. Fraction 0: the class rotates whole heads; layers −1: the family has none.
  double rope_fraction = 0;           // where partial_rotary_factor is left out
  std::int64_t no_rope_every = -1;    // where no_rope_layers and no_rope_layer_interval are left out
  bool latent = false;                // head_dim and num_key_value_heads are not read
  const char* multi_token = "";       // counts layers of multi-token prediction; "": its files have none
  bool longrope = false;              // no other method stretches its wavelengths
  bool rotary_dim = false;            // a key says how many entries of a head it rotates
  bool query_position_scale = false;  // rope parameters have llama_4_scaling_beta
  bool linear = false;                // layers of gated DeltaNet, and gates of attention's output
  // For a window by_type.
  std::int64_t full_every = 4;         // where layer_types and the key are left out
  std::int64_t sliding_window = 4096;  // where it is left out
  bool one_rope = false;               // rope parameters are the same for all layers
  const char* full_every_key = "";
  const char* window_theta_key = "";  // rope_theta of layers with the window, outside of their rope parameters; …
  double window_theta = 0;            // … where it is left out: 0: rope_theta
  bool scaled_embeddings = false;     // embedding_scale is sqrt(width)
  double query_pre_attn_scalar = 0;   // where left out; 0: no key says it
  bool whole_heads = false;           // the width is a multiple of the heads
  bool router_biases = false;         // its files have them
  bool exact_router = false;          // its class keeps router matrices in fp32
  bool sinks = false;                 // attention has them
  bool expert_biases = false;         // experts and the router's logits have biases

  // Whether layers of each type have rope parameters of their own.
  bool rope_by_type() const { return window == HfWindow::by_type && !one_rope; }

  // For families with experts; `model` has its heads and layers.
  HfExpertSizes experts{};
  void (*read_experts)(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model) = nullptr;
  void (*write_experts)(const ModelDeck& model, nlohmann::ordered_json& config) = nullptr;
  // Why the family has no words for the model's experts or attention; "" when it has.
  std::string (*obstacle)(const ModelDeck& model) = nullptr;
};

// The row of a family other than gpt2, which has keys of its own for everything.
const HfFamily& hf_family(Family family);

// A model_type that a config.json may have.
struct HfModelType {
  const char* word;
  Family family;
  const HfFamily* row;  // null: gpt2's, or of a nested one the row of its text_config's model_type
  bool nested = false;  // the text model's keys stand in text_config, beside an image model's
};
// All of them: the families under their own words, then other words. nullptr: there is no such type.
const HfModelType* hf_model_type(const std::string& word);
// "llama | mistral | …".
std::string hf_model_types();

// A number under either of two names that transformers maps to each other.
std::int64_t aliased_size(const JsonObject& config, const char* key, const char* alias, std::int64_t fallback,
                          std::int64_t least = 1);

}  // namespace forge
