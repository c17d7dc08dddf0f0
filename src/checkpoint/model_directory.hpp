#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "hf/config.hpp"

namespace forge {

// The files of an exported Hugging Face directory that are no tensors, and whose exports a directory may take.

// Throws BadInput where the deck names a tokenizer that isn't there.
void check_tokenizer(const ModelDeck& model);

// Marks of a run's exports: paths, of which two exports of the same run have one in common.
std::vector<std::string> names_of_run(const std::string& checkpoints, const std::string& output);

// Throws BadInput, which begins with `who`, where the directory has files that no earlier export of the run has put
// there, or is one that the model was read from.
void check_export_directory(const std::string& directory, const std::vector<std::string>& run, const ModelDeck& model,
                            const std::string& who);
// Makes the directory and marks it as the run's.
void begin_export(const std::string& directory, const std::vector<std::string>& run);

// Writes config.json, generation_config.json where an end of texts is known, and the tokenizer of the model, under the
// names that other programs look for. `dtype`: of the tensors, in PyTorch's word. False: without the tokenizer, which
// isn't where the deck has it.
bool write_model_files(const Deck& deck, const std::string& directory, const std::string& dtype,
                       const CodedWeights* coded = nullptr);

}  // namespace forge
