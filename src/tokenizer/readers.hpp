#pragma once

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.hpp"

namespace forge {

// Parts of a tokenizer from the bytes of its file. `name` stands in messages. BadInput: not such a file, or something
// that is not available.

// tokenizer.json of the library tokenizers: models BPE and Unigram.
TokenizerParts read_tokenizer_json(const std::string& text, const std::string& name);
// A SentencePiece model (sentencepiece_model.proto): types BPE and UNIGRAM.
TokenizerParts read_sentencepiece(std::string_view bytes, const std::string& name);
// A tiktoken file: lines of a token's bytes in base64 and its rank. `pattern` cuts the text.
TokenizerParts read_tiktoken(std::string_view text, const std::string& name, const std::string& pattern);
// The pattern that has a name; "": none has.
std::string tiktoken_pattern(const std::string& name);
std::string tiktoken_pattern_names();
// Makes the added tokens of a directory's tokenizer_config.json (added_tokens_decoder) known to a tokenizer whose file
// has none, and takes the end of documents (eos_token) from it.
void read_tokenizer_config(const std::string& text, const std::string& name, bool with_tokens, TokenizerParts& parts);

}  // namespace forge
