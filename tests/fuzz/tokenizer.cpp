// libFuzzer's input is a tokenizer file (the first byte says of which kind) and, behind the last zero byte, a text: the
// file is refused with BadInput, or the text has the same ids on one thread and dealt out to several, and they can be
// decoded.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.hpp"
#include "tokenizer/parallel_encoder.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {
namespace {

TokenizerParts read(std::uint8_t kind, const std::string& bytes) {
  switch (kind % 4) {
    case 0:
      return read_tokenizer_json(bytes, "f");
    case 1:
      return read_sentencepiece(bytes, "f");
    case 2:
      return read_tiktoken(bytes, "f", tiktoken_pattern("cl100k_base"));
    default:
      break;
  }
  // A pattern, on a vocabulary of bytes.
  std::string json =
      R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": ")";
  for (const char c : bytes) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c) & 0x7F);
    json += escaped;
  }
  json +=
      R"("}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},)";
  return read_tokenizer_json(
      json + R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})", "f");
}

void run(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t zero = all.rfind('\0');
  const std::string file = all.substr(0, zero);
  std::string text = zero == std::string::npos ? "" : replace_ill_formed(all.substr(zero + 1));
  text += "Hello  world 123\xC3\xA9\n\xE2\x96\x81\xE4\xB8\x96 ab";
  try {
    const Tokenizer tokenizer(read(data[0], file));
    std::vector<std::int32_t> one, several;
    Encoder(tokenizer).encode(text, one);
    ParallelEncoder(tokenizer, 2).encode(text, several, 16);
    if (one != several) std::abort();
    for (const std::int32_t id : one)
      if (id < 0 || id >= tokenizer.vocabulary()) std::abort();
    if (!is_valid_utf8(tokenizer.decode(one))) std::abort();
  } catch (const BadInput&) {
  }
}

}  // namespace
}  // namespace forge

// --seeds DIRECTORY: writes the first inputs there, the tokenizers of tests/tokenizer/data and some patterns, and ends.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string((*argv)[1]) != "--seeds") return 0;
  int number = 0;
  const auto write = [&](char kind, const std::string& bytes) {
    std::ofstream((*argv)[2] + ("/" + std::to_string(number++)), std::ios::binary) << kind << bytes;
  };
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FORGE_TOKENIZERS)) {
    const std::string name = entry.path().string();
    const int kind = name.ends_with(".json") ? 0 : name.ends_with(".model") ? 1 : name.ends_with(".tiktoken") ? 2 : -1;
    if (kind < 0) continue;
    std::ifstream in(name, std::ios::binary);
    write(static_cast<char>(kind), std::string(std::istreambuf_iterator<char>(in), {}));
  }
  for (const char* name : {"gpt2", "cl100k_base", "o200k_base", "kimi"}) write(3, forge::tiktoken_pattern(name));
  std::exit(number > 4 ? 0 : 1);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  forge::run(data, size);
  return 0;
}
