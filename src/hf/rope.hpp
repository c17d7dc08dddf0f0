#pragma once

#include <nlohmann/json.hpp>

#include "config/deck.hpp"
#include "hf/families.hpp"
#include "hf/json_input.hpp"

namespace forge {

// The rotary keys of a config.json: rope_theta and rope_scaling in files of transformers 4, rope_parameters in those of
// 5; a rope_scaling that isn't empty comes first. Reads max_positions of `model` and the rope_theta that stands for an
// absent one.
void read_hf_rope(const JsonObject& config, const HfFamily& family, ModelDeck& model);

// Adds rope_theta and rope_scaling, and the family's keys for parts without rotation.
void write_hf_rope(const ModelDeck& model, const HfFamily& family, nlohmann::ordered_json& config);

}  // namespace forge
