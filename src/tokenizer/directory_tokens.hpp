#pragma once

#include <string>

#include "hf/json_input.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

// The keys of the files beside a tokenizer, as transformers' AutoTokenizer reads them: tokenizer_config.json, and where
// that has no added_tokens_decoder, special_tokens_map.json and added_tokens.json.
struct DirectoryConfig {
  DirectoryConfig() = default;
  explicit DirectoryConfig(const std::string& directory);

  bool given = false;      // one of the files is there
  nlohmann::json config;   // a map
  nlohmann::json special;  // special_tokens_map.json, a map
  nlohmann::json added;    // added_tokens.json, a map
  std::string text;        // of all of them, for a digest
  std::string name;        // of tokenizer_config.json

  // The class of transformers without "Fast"; "": none is named.
  std::string tokenizer_class;
  std::vector<std::string> keys;  // of the first two
  bool flag(const char* key, bool fallback) const;
  // Where LlamaTokenizer puts a space before a text: "first", "always" or "never".
  const char* prefix_scheme() const;
};

// Changes a tokenizer.json as the directory's class does. Most classes take it as it is (false); GPT2Tokenizer and
// LlamaTokenizer take vocabulary and merges, and have a normalizer and a pre-tokenizer of their own.
bool adapt_to_class(const DirectoryConfig& directory, nlohmann::json& root);

// Adds the tokens that are named beside a tokenizer.json (whose own list of added tokens is `own`) or a SentencePiece
// model, and takes the end of documents (eos_token). `rebuilt`: adapt_to_class has made the tokenizer, or its like.
enum class MainFile { json, sentencepiece, tiktoken };
void add_directory_tokens(const DirectoryConfig& directory, MainFile kind, bool rebuilt, const nlohmann::json& own,
                          TokenizerParts& parts);

}  // namespace forge
