#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/deck.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

// How a model's tokens are text: by a tokenizer, or because they are bytes.
class ModelText {
 public:
  // `tokenizer`, `pattern`: as on the command line; "": model.tokenizer of the deck, else the tokenizer of the
  // directory model.hf, where it has one. BadInput: it can't be read, or has ids that the model hasn't.
  ModelText(const Deck& deck, const std::string& tokenizer = "", const std::string& pattern = "");

  // Whether there is a way from tokens to text.
  bool known() const { return tokenizer_.has_value() || bytes_; }
  // The ids of a prompt. BadInput that names `option`: there is no way, or an id outside of the vocabulary.
  std::vector<std::int32_t> encode(const std::string& text, const std::string& option) const;
  // Bytes of text that a token stands for.
  std::int64_t bytes_of(std::int32_t id) const;
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  // The tokens that end a text.
  const std::vector<std::int32_t>& ends() const { return ends_; }
  // The token that stands before a text: the model's document begin, else its first end; none: it has neither.
  std::optional<std::int32_t> before_text() const;
  // "<|endoftext|> (id 0)", "id 256".
  std::string name_of(std::int32_t id) const;

 private:
  std::int64_t vocabulary_;
  bool bytes_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<std::int32_t> ends_;
  std::optional<std::int32_t> begin_;
  friend class TextPrinter;
  friend class TextBytes;
};

// Text of tokens as they come, for a terminal: control characters are '?'; an end of texts is its own text, or where
// tokens are bytes a new line; other special tokens say nothing.
class TextPrinter {
 public:
  explicit TextPrinter(const ModelText& text);
  std::string add(std::int32_t id);
  std::string finish();

 private:
  std::string add_byte(char byte);

  const ModelText& text_;
  std::optional<TextStream> stream_;
  std::string bytes_;  // of a character, without a tokenizer
};

// The bytes of tokens' text as they come, for a file: special tokens say nothing. There is a way from tokens to text.
class TextBytes {
 public:
  explicit TextBytes(const ModelText& text);
  std::string add(std::int32_t id);
  std::string finish() { return stream_ ? stream_->finish() : ""; }

 private:
  std::optional<TextStream> stream_;
};

// Text that ends before the first of some texts, which may come in several parts. A possible beginning of one waits.
class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  // The text that is certain to stand before a stop.
  std::string add(const std::string& text);
  // The waiting text, of a text that ends here.
  std::string finish() { return std::exchange(waiting_, ""); }
  // The one that has come; "": none.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string waiting_, found_;
};

// Valid UTF-8 with '?' for control characters, but for line ends and tabs.
std::string printable_text(const std::string& text);

}  // namespace forge
