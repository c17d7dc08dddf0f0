#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "hf/json_input.hpp"

namespace forge {

// quantization_config of a config.json: weights in FP8 with a scale for each 128 x 128 (hf/fp8/block_scales.hpp), as
// DeepSeek-V3's and Qwen3's files say it, or gpt-oss's experts in MXFP4 (hf/mxfp4.hpp); any other quantisation is
// refused by key. Which tensors are coded their types and names say. GPT-2 stores matrices (in, out), for which no such
// files exist.
void check_quantization(const JsonObject& config, Family family);

// The quantization_config of forge's own files; `plain`: modules whose matrices are not in FP8.
nlohmann::ordered_json quantization_config(const std::vector<std::string>& plain);

// Whether the directory's config.json has the key.
bool has_quantization(const std::string& directory);

}  // namespace forge
