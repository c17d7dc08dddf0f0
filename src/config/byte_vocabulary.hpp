#pragma once

#include "config/deck.hpp"

namespace forge {

// The byte vocabulary: a token's id is its byte. With document ends, one more id marks the end of each document.
inline constexpr std::int64_t byte_vocabulary = 256;
inline constexpr std::int32_t byte_document_end = 256;

// Whether a model's tokens are bytes, so that text can be given to it and read from it: 256 ids, or 257 of which
// data.document_end_token is the last. A vocabulary of another size has ids that only its own tokenizer understands.
inline bool has_byte_vocabulary(const Deck& deck) {
  const std::int64_t ids = deck.model.vocabulary;
  return ids == byte_vocabulary || (ids == byte_vocabulary + 1 && deck.data.document_end_token == byte_document_end);
}
// The decks that have it, for messages.
inline constexpr const char* byte_vocabulary_text = "model.vocabulary = 256, or 257 with data.document_end_token = 256";

}  // namespace forge
