#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

// How a model's tokens are text: by a tokenizer, or because they are bytes.
class ModelText {
 public:
  // `tokenizer`, `pattern`: as on the command line; "": model.tokenizer of the deck, else that of the directory
  // model.hf, where it has one. BadInput: it can't be read, or has ids that the model hasn't.
  ModelText(const Deck& deck, const std::string& tokenizer = "", const std::string& pattern = "");

  // Whether there is a way from tokens to text.
  bool known() const { return tokenizer_.has_value() || bytes_; }
  // The ids of a prompt. BadInput that names `option`: there is no way, or an id outside of the vocabulary.
  std::vector<std::int32_t> encode(const std::string& text, const std::string& option) const;
  // Bytes of text that a token stands for.
  std::int64_t bytes_of(std::int32_t id) const;
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

 private:
  std::int64_t vocabulary_;
  std::int32_t document_end_;
  bool bytes_;
  std::optional<Tokenizer> tokenizer_;
  friend class TextPrinter;
};

// Text of tokens as they come, for a terminal: control characters are '?', the end of a document is a new line.
class TextPrinter {
 public:
  explicit TextPrinter(const ModelText& text);
  std::string add(std::int32_t id);
  std::string finish();

 private:
  const ModelText& text_;
  std::optional<TextStream> stream_;
};

// Of valid UTF-8: control characters but line ends and tabs become '?'.
std::string printable_text(const std::string& text);

}  // namespace forge
