#pragma once

#include <cstdint>
#include <string>

#include "config/deck.hpp"
#include "config/export_type.hpp"

namespace forge {

// The type of --type's word; BadInput where there is none.
ExportType export_type(const std::string& word);

struct ExportNotes {
  bool tokenizer = true;  // false: it isn't where the deck has it
  std::string base;       // of a merged model: the model.hf whose files aren't there, so that W is the checkpoint's
  std::string peft;       // why PEFT can't read the adapters; "": it can
};

// Writes the model of a checkpoint as a Hugging Face directory: config.json and safetensors files under the names of
// the model's family, several with an index where one would be larger than `most_file_bytes`.
// Every byte that is read is verified; holds one tensor at a time. Throws BadCheckpoint, BadInput where the family has
// no words for the model or the directory is another one's (checkpoint/model_directory.hpp), Error (code not_finite)
// where a weight is NaN or Inf, IoFailed. `optimizer`: its states, too.
// Of a model with adapters PEFT's directory of these alone, or with `merge` the model whose matrices are W + scale B A,
// where W and all other tensors are those of model.hf's files, not as the run has rounded them.
ExportNotes export_hf(const std::string& checkpoint, const std::string& directory, ExportType type,
                      std::uint64_t most_file_bytes, bool optimizer = false, bool merge = false);

}  // namespace forge
