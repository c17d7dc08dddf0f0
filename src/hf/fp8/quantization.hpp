#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hf/json_input.hpp"

namespace forge {

// quantization_config of a config.json: weights in FP8 with a scale for each 128 x 128 (hf/fp8/block_scales.hpp), as
// DeepSeek-V3's and Qwen3's files say it; any other quantisation is refused by key. Which tensors are in FP8 their
// types say. `transposed`: the family stores matrices (in, out), for which no such files exist.
void check_quantization(const JsonObject& config, bool transposed);

// The same key for files of forge's own; `plain`: modules whose matrices are not in FP8.
nlohmann::ordered_json quantization_config(const std::vector<std::string>& plain);

// Whether the directory's config.json has the key.
bool has_quantization(const std::string& directory);

}  // namespace forge
