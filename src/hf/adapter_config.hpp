#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge {

// adapter_config.json of PEFT (https://github.com/huggingface/peft), which stands beside adapter_model.safetensors.

// Throws one BadInput with all that a directory's file has other than the deck's adapter section, or that forge doesn't
// compute.
void check_adapter_config(const std::string& directory, const ModelDeck& model);

// The file's text. The base model: model.hf, where that is given.
std::string write_adapter_config(const ModelDeck& model);

}  // namespace forge
