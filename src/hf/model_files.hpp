#pragma once

#include <string>

namespace forge {

// Weights of a Hugging Face directory, by the names of its files.
enum class WeightFiles {
  none,
  safetensors,  // model.safetensors, or parts of it
  other         // formats that are not read: PyTorch's own and others
};
WeightFiles weight_files(const std::string& directory);

// For a directory whose weights TensorFiles doesn't find: the files that it has instead, and a remedy; "": none that is
// known.
std::string other_weights(const std::string& directory);

// "" where the path is a directory with a config.json, else why model.hf can't name it, and legal values.
std::string not_a_model(const std::string& path);

// Why a model_type that forge doesn't know isn't legal: the family's needs that forge lacks; "": nothing is known.
std::string lacking_for(const std::string& model_type);

}  // namespace forge
