#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/normalizer.hpp"

namespace forge {

// The normalisation of a SentencePiece model (sentencepiece_model.proto).
struct SentencePieceRules {
  std::string_view charsmap;              // precompiled_charsmap; empty: no rules
  std::vector<std::string_view> symbols;  // user-defined ones, which stay as they are
  bool dummy_prefix = true;               // a space before the text
  bool space_as_suffix = false;           // that space stands behind the text
  bool remove_extra_spaces = true;
  bool escape_spaces = true;  // a space becomes U+2581
};

// SentencePiece's normalisation of a whole text: rules of the charsmap, the longest first; user-defined symbols stay.
// BadInput names `where`.
Normalizer make_sentencepiece_normalizer(const SentencePieceRules& rules, const std::string& where);

}  // namespace forge
