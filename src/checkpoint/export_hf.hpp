#pragma once

#include <cstdint>
#include <string>

#include "config/deck.hpp"
#include "core/types.hpp"

namespace forge {

// Writes the model of a checkpoint as a Hugging Face directory: config.json and safetensors files under the names of
// the model's family, as `type` (f32 or bf16), several with an index where one would be larger than `most_file_bytes`.
// Every byte that is read is verified; holds one tensor at a time. Throws BadCheckpoint, BadInput where the family
// cannot say what the model is, IoFailed.
void export_hf(const std::string& checkpoint, const std::string& directory, DType type, std::uint64_t most_file_bytes);

// Copies the tokenizer of a model, its file or the files of its directory, to a Hugging Face directory. Where the deck
// names none, nothing.
void copy_tokenizer(const ModelDeck& model, const std::string& directory);

}  // namespace forge
