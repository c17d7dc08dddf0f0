#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/json_parts.hpp"
#include "tokenizer/readers.hpp"

namespace forge {

namespace {

// The patterns of published vocabularies, as the rules of the crate fancy-regex read them.
const std::map<std::string, std::string>& patterns() {
  static const std::map<std::string, std::string> table = [] {
    std::map<std::string, std::string> t;
    t["gpt2"] = t["r50k_base"] = t["p50k_base"] =
        R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
    t["cl100k_base"] =
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
    t["llama3"] =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    t["qwen"] =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    t["o200k_base"] =
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
        R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    t["kimi"] =
        R"([\p{Han}]+|)"
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    return t;
  }();
  return table;
}

}  // namespace

std::string tiktoken_pattern(const std::string& name) {
  const auto at = patterns().find(name);
  return at == patterns().end() ? "" : at->second;
}

std::string tiktoken_pattern_names() {
  std::string names;
  for (const auto& [name, pattern] : patterns()) names += (names.empty() ? "" : " | ") + name;
  return names;
}

TokenizerParts read_tiktoken(std::string_view text, const std::string& name, const std::string& pattern) {
  TokenizerParts parts;
  parts.name = name;
  TokenTable table;
  std::size_t line_number = 0;
  const std::int64_t most_ids = most_ids_of(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    std::string bytes;
    std::int64_t rank = -1;
    if (space == std::string_view::npos || !decode_base64(line.substr(0, space), bytes) || bytes.empty() ||
        !reads_as(line.substr(space + 1), rank) || rank < 0 || rank >= most_ids)
      throw BadInput(name + ":" + std::to_string(line_number) +
                     ": no line of a tiktoken file; legal: a token in base64, a space, its rank");
    const auto id = static_cast<std::int32_t>(rank);
    if (to_size(id) >= parts.texts.size()) parts.texts.resize(to_size(id) + 1);
    if (!parts.texts[to_size(id)].empty() || !table.add(bytes, id))
      throw BadInput(name + ":" + std::to_string(line_number) + ": its token or its rank is there twice");
    parts.texts[to_size(id)] = bytes;
    parts.ids.emplace(bytes, id);
  }
  for (int byte = 0; byte < 256; ++byte)
    if (table.find(std::string(1, static_cast<char>(byte))) < 0)
      throw BadInput(name + ": no tiktoken file: the byte " + std::to_string(byte) +
                     " is no token; legal: all 256 are");
  std::vector<std::int64_t> ranks(parts.texts.size(), -1);
  for (const auto& [token, id] : table) ranks[to_size(id)] = id;
  BpeOptions options;
  options.bytes = options.ignore_merges = true;
  const auto merges = Bpe::merges_of_ranks(table, ranks, true, 0);
  std::array<std::int32_t, 256> byte_tokens;
  byte_tokens.fill(-1);
  parts.model = std::make_unique<Bpe>(std::move(table), merges, byte_tokens, options);
  // Text between matches is no token's: the library leaves it out.
  parts.pre_tokenizers.push_back(
      make_split(Regex(pattern, RegexDialect::rust, name + ": --pattern"), SplitBehavior::removed, true));
  return parts;
}

}  // namespace forge
