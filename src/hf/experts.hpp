#pragma once

#include <nlohmann/json.hpp>

#include "config/deck.hpp"
#include "hf/json_input.hpp"

namespace forge {

// What config.json of mixtral, qwen3_moe and deepseek_v3 says about experts and, for deepseek_v3, latent attention.
// `model` has its family, heads and layers. Reads nothing of other families.
void read_hf_experts(const JsonObject& config, ModelDeck& model);

// Adds these keys.
void write_hf_experts(const ModelDeck& model, nlohmann::ordered_json& config);

// Why the family has no words for the model's experts or attention; "" when it has.
std::string hf_experts_obstacle(const ModelDeck& model);

}  // namespace forge
