#pragma once

#include <string>

#include "config/deck.hpp"
#include "hf/special_ids.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

// Where a model's tokenizer is: model.tokenizer, else the directory model.hf where it has one; "": nowhere.
std::string tokenizer_path(const ModelDeck& model);

// A model's special tokens: from model.hf's files, where the directory is there; then data.document_end_token is
// one more end. Where neither names an end, the tokenizer's is it. `tokenizer`: null: none is known.
SpecialIds model_ids(const Deck& deck, const Tokenizer* tokenizer);

}  // namespace forge
