#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hf/json_input.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

// Parts of a tokenizer from the bytes of its file. `name` stands in messages. BadInput: not such a file, or something
// that is not available.

// tokenizer.json of the library tokenizers: models BPE and Unigram.
inline constexpr JsonLimits tokenizer_json_limits{32, 1 << 26};
TokenizerParts read_tokenizer_json(const std::string& text, const std::string& name);
TokenizerParts read_tokenizer_json(const nlohmann::json& root, const std::string& name);
// Rules of transformers' classes in the place of a SentencePiece model's own.
struct SentencePieceUse {
  bool normalizes = true;               // by the model's rules
  std::optional<PrependScheme> prefix;  // where a space is put before a text; none: the model says it, of each part
};
// A SentencePiece model (sentencepiece_model.proto): types BPE and UNIGRAM.
TokenizerParts read_sentencepiece(std::string_view bytes, const std::string& name, const SentencePieceUse& use = {});
// A tiktoken file: lines of a token's bytes in base64 and its rank. `pattern` cuts the text.
TokenizerParts read_tiktoken(std::string_view text, const std::string& name, const std::string& pattern);
// The pattern that has a name; "": none has.
std::string tiktoken_pattern(const std::string& name);
std::string tiktoken_pattern_names();
}  // namespace forge
