#include "tokenizer/sentencepiece_normalizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>

#include "tokenizer/unicode.hpp"

namespace forge {
namespace {

using RuleTexts = std::map<std::string, std::string>;

// A precompiled_charsmap: each node of its trie has a block of 256 units of its own.
std::string charsmap_of(const RuleTexts& rules) {
  std::vector<std::uint32_t> units(256);
  std::string texts;
  const auto with_block = [&](std::size_t node) {
    if (units[node] >> 10 == 0) {
      units[node] |= static_cast<std::uint32_t>(node ^ units.size()) << 10;
      units.resize(units.size() + 256);
    }
    return node ^ units[node] >> 10;
  };
  for (const auto& [from, to] : rules) {
    std::size_t node = 0;
    for (const char c : from) {
      const auto byte = static_cast<std::uint8_t>(c);
      node = with_block(node) ^ byte;
      units[node] |= byte;
    }
    const std::size_t leaf = with_block(node);
    units[node] |= 1u << 8;
    units[leaf] = 1u << 31 | static_cast<std::uint32_t>(texts.size());
    texts += to + '\0';
  }
  const auto bytes = static_cast<std::uint32_t>(4 * units.size());
  std::string blob(4 + bytes, '\0');
  std::memcpy(blob.data(), &bytes, 4);
  std::memcpy(blob.data() + 4, units.data(), bytes);
  return blob + texts;
}

// The longest symbol, else the longest rule, else a character; of spaces side by side one is left, at the ends none.
std::string by_rules(const RuleTexts& rules, const std::vector<std::string>& symbols, const std::string& text) {
  std::string out;
  const auto put = [&](const std::string& part) {
    for (const char c : part)
      if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  };
  for (std::size_t at = 0; at < text.size();) {
    std::string best;
    for (const std::string& symbol : symbols)
      if (text.compare(at, symbol.size(), symbol) == 0 && symbol.size() > best.size()) best = symbol;
    std::string to = best;
    if (best.empty())
      for (const auto& [from, replacement] : rules)
        if (text.compare(at, from.size(), from) == 0 && from.size() > best.size()) best = from, to = replacement;
    if (best.empty()) to = best = text.substr(at, decode_valid(text, at).bytes);
    put(to);
    at += best.size();
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

// Characters whose fate the next byte decides, and those that nothing changes, beside one another in all ways.
TEST(SentencePieceNormalizer, WhatFollowsACharacterDecides) {
  const std::string acute = utf8_of(0x301), ya = utf8_of(0x44F), kana = utf8_of(0x304B), smile = utf8_of(0x1F642);
  const RuleTexts rules{{"\n", " "},
                        {"\n" + acute, "|"},
                        {"\t", " "},
                        {"e" + acute, "E"},
                        {ya + acute, "Y"},
                        {kana + utf8_of(0x3099), "g"},
                        {utf8_of(0x3000), " "},
                        {utf8_of(0x1F600), ":)"},
                        {utf8_of(0x200B), ""}};
  const std::vector<std::string> symbols{"[x]", ya + "!", " \n", smile + "_"};
  std::vector<std::string> characters{" ", "\n", "\t", "a",   "e",  "[",   "x",   "]",
                                      "!", "_",  ya,   acute, kana, smile, "[x]", utf8_of(0x3099)};
  for (const char32_t c : {0x3000, 0x1F600, 0x200B, 0x430, 0x4E16, 0x1F9FF, 0x20000, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF})
    characters.push_back(utf8_of(c));
  SentencePieceRules spec;
  const std::string charsmap = charsmap_of(rules);
  spec.charsmap = charsmap;
  spec.symbols.assign(symbols.begin(), symbols.end());
  spec.dummy_prefix = spec.escape_spaces = false;
  const auto normalizer = make_sentencepiece_normalizer(spec, "rules");
  std::mt19937 random(3);
  RegexScratch scratch;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::size_t n = 1 + random() % 12; n > 0; --n) text += characters[random() % characters.size()];
    std::string made = text;
    normalizer.apply(made, scratch);
    ASSERT_EQ(made, by_rules(rules, symbols, text)) << text;
  }
  // Longer than what is copied at a time.
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += characters[random() % characters.size()];
  const std::string expected = by_rules(rules, symbols, text);
  normalizer.apply(text, scratch);
  EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace forge
