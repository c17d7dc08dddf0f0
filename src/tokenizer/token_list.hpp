#pragma once

#include <string>
#include <unordered_map>

#include "tokenizer/tokenizer.hpp"

namespace forge {

// Adds tokens to those that a tokenizer has (TokenizerParts::added), as the library tokenizers numbers them: one that
// the vocabulary or the list has keeps its id, and the last flags that are given hold; others get the ids behind the
// vocabulary and the added tokens.
class TokenList {
 public:
  explicit TokenList(TokenizerParts& parts);
  void add(AddedToken token);
  const AddedToken* find(const std::string& text) const;

 private:
  TokenizerParts& parts_;
  std::unordered_map<std::string, std::size_t> place_;
  std::int32_t largest_ = -1;  // of the added tokens' ids
};

// Makes the added tokens of a list known: texts, ids, and their finders in a text. May be called again after more have
// been added.
void install_added_tokens(TokenizerParts& parts);

}  // namespace forge
