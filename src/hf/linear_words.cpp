#include "hf/linear_words.hpp"

#include <algorithm>

#include "config/key_bounds.hpp"

namespace forge {

using nlohmann::json;

namespace {

constexpr const char *full = "full_attention", *linear = "linear_attention";

// layer_types of a model in which each `every`-th layer, counted from 1, has attention.
json types_of(std::int64_t layers, std::int64_t every) {
  json types = json::array();
  for (std::int64_t number = 1; number <= layers; ++number) types.push_back(number % every == 0 ? full : linear);
  return types;
}

std::int64_t read_interval(const JsonObject& config, const ModelDeck& model) {
  const json* const types = config.find("layer_types");
  if (!types) return config.integer("full_attention_interval", 4, 1, most_layers);
  const std::int64_t first =
      types->is_array() ? std::find(types->begin(), types->end(), full) - types->begin() : model.layers;
  if (first < model.layers && *types == types_of(model.layers, first + 1)) return first + 1;
  config.refuse("layer_types", "legal: " + std::to_string(model.layers) +
                                   " entries, linear_attention but for every layer whose number, counted from 1, is a "
                                   "multiple of one number: full_attention");
  return 1;
}

}  // namespace

void read_linear(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  if (!family.linear) return;
  model.attention_output_gate = true;
  if (!config.flag("attn_output_gate", true)) config.refuse("attn_output_gate", "= false: not available; legal: true");
  const std::string gate = config.text("output_gate_type", "silu");  // of the normalised outputs of linear layers
  if (gate != "silu" && gate != "swish")
    config.refuse("output_gate_type", "= " + gate + ": not available; legal: silu | swish");
  const std::int64_t interval = read_interval(config, model);
  if (interval == 1) return;  // all layers have attention
  model.full_attention_interval = interval;
  model.linear_key_heads = config.integer("linear_num_key_heads", 16, 1, most_heads);
  model.linear_value_heads = config.integer("linear_num_value_heads", 32, 1, most_heads);
  model.linear_key_dim = config.integer("linear_key_head_dim", 128, 1, most_heads);
  model.linear_value_dim = config.integer("linear_value_head_dim", 128, 1, most_heads);
  model.linear_conv_taps = config.integer("linear_conv_kernel_dim", 4, 1, most_taps);
}

void write_linear(const ModelDeck& m, nlohmann::ordered_json& config) {
  config["layer_types"] = types_of(m.layers, std::max<std::int64_t>(m.full_attention_interval, 1));
  if (m.full_attention_interval == 0) return;
  config["full_attention_interval"] = m.full_attention_interval;
  config["linear_num_key_heads"] = m.linear_key_heads;
  config["linear_num_value_heads"] = m.linear_value_heads;
  config["linear_key_head_dim"] = m.linear_key_dim;
  config["linear_value_head_dim"] = m.linear_value_dim;
  config["linear_conv_kernel_dim"] = m.linear_conv_taps;
}

std::string linear_obstacle(const ModelDeck& m, const HfFamily& family) {
  if (m.attention_output_gate != family.linear)
    return std::string("attention_output_gate must be ") + (family.linear ? "true" : "false");
  return m.full_attention_interval > 0 && !family.linear ? "full_attention_interval must be 0" : "";
}

}  // namespace forge
