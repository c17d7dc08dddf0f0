#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "hf/families.hpp"

namespace forge {

// The words of config.json for layers of gated DeltaNet and for gates of attention's output (HfFamily::linear): they
// are read and written; an obstacle says why a model has none.

void read_linear(const JsonObject& config, const HfFamily& family, ModelDeck& model);
void write_linear(const ModelDeck& model, nlohmann::ordered_json& config);
std::string linear_obstacle(const ModelDeck& model, const HfFamily& family);

}  // namespace forge
