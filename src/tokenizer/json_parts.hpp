#pragma once

#include <string>
#include <vector>

#include "hf/json_input.hpp"
#include "tokenizer/decoder_steps.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"

namespace forge {

// A part of a tokenizer.json with its place in the file, for messages: "f.json: pre_tokenizer.pretokenizers[1]".
struct JsonPart {
  const nlohmann::json& value;
  std::string place;

  [[noreturn]] void refuse(const std::string& why) const;
  // nullptr: absent or null. The part must be a map.
  const nlohmann::json* find(const char* key) const;
  std::string text(const char* key) const;  // required
  std::string text(const char* key, const std::string& fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) const;  // required
  // The members of a required list.
  std::vector<JsonPart> list(const char* key) const;
};

// The steps that a part stands for, at the end of `steps`; null stands for none. BadInput names the part that is not
// available.
void read_normalizers(const JsonPart& part, Normalizers& steps, int depth = 0);
void read_decoders(const JsonPart& part, std::vector<DecoderStep>& steps, int depth = 0);
// `ends_in_bytes`: the last step makes bytes of the text, and is left out: the model takes them as they are.
struct PreTokenizerSteps {
  std::vector<PreTokenizer> steps;
  bool ends_in_bytes = false;
};
void read_pre_tokenizers(const JsonPart& part, PreTokenizerSteps& steps, int depth = 0);

// Bytes of base64 text (RFC 4648, with padding). False: it is none.
bool decode_base64(std::string_view text, std::string& bytes);

}  // namespace forge
