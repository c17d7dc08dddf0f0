#include "tokenizer/sentencepiece_normalizer.hpp"

#include <bitset>
#include <cstdint>
#include <memory>
#include <utility>

#include "tokenizer/byte_trie.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr std::string_view space_symbol = "\xE2\x96\x81";

std::uint8_t byte_of(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

// The charsmap's rules and the user-defined symbols, which go before them.
class Rules {
 public:
  Rules(const SentencePieceRules& rules, const std::string& where) : map_(rules.charsmap, where) {
    std::vector<std::pair<std::string_view, std::int32_t>> symbols;
    for (const std::string_view symbol : rules.symbols) symbols.emplace_back(symbol, 0);
    symbols_ = ByteTrie(std::move(symbols));
  }

  // What becomes of the text's start: of bytes 0, no rule and no symbol applies.
  Charsmap::Rule at_start(std::string_view text) const {
    if (const std::size_t bytes = symbol_bytes(text); bytes > 0) return {bytes, text.substr(0, bytes)};
    return map_.longest(text);
  }
  // Whether none applies to any text that begins so.
  bool stays(std::string_view start) const {
    std::int32_t node = 0;
    bool in_symbol = !symbols_.empty();
    for (std::size_t i = 0; in_symbol && i < start.size(); ++i) {
      node = symbols_.step(node, byte_of(start, i));
      in_symbol = node != ByteTrie::none;
      if (in_symbol && symbols_.value(node) != ByteTrie::none) return false;
    }
    return !in_symbol && !map_.touches(start);
  }
  // Adds the bytes that stand behind `start` in what a rule replaces or in a symbol.
  void add_followers(std::string_view start, std::bitset<256>& bytes) const {
    map_.add_followers(start, bytes);
    std::int32_t node = symbols_.empty() ? ByteTrie::none : 0;
    for (std::size_t i = 0; node != ByteTrie::none && i < start.size(); ++i)
      node = symbols_.step(node, byte_of(start, i));
    for (std::size_t b = 0; node != ByteTrie::none && b < bytes.size(); ++b)
      if (symbols_.step(node, static_cast<std::uint8_t>(b)) != ByteTrie::none) bytes.set(b);
  }

 private:
  std::size_t symbol_bytes(std::string_view text) const {
    std::size_t bytes = 0;
    if (symbols_.empty()) return bytes;
    std::int32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = symbols_.step(node, byte_of(text, i));
      if (node == ByteTrie::none) break;
      if (symbols_.value(node) != ByteTrie::none) bytes = i + 1;
    }
    return bytes;
  }

  Charsmap map_;
  ByteTrie symbols_;
};

// What the next byte, or nothing, is enough to know: most characters stay as they are, or are a space.
class Fates {
 public:
  explicit Fates(const Rules& rules) {
    for (std::size_t a = 0; a < 128; ++a) find_pairs(rules, static_cast<char>(a));
    for (char32_t c = 0x80; c < 0x10000; ++c)
      if ((c >> 11) != 0x1B) find_character(rules, c);
    for (std::size_t block = 0; block < blocks_.size(); ++block)
      blocks_[block] = rules.stays(utf8_of(static_cast<char32_t>(0x10000 + block_characters * block)).substr(0, 3));
  }
  bool ascii_stays(std::uint8_t a, std::uint8_t next) const { return pairs_[std::size_t{256} * a + next]; }
  bool is_space(std::uint8_t a, std::uint8_t next) const { return spaces_[std::size_t{256} * a + next]; }
  // A character that is no ASCII, up to `end`.
  bool stays(char32_t c, std::string_view text, std::size_t end) const {
    if (c >= 0x10000) return blocks_[(c - 0x10000) / block_characters];
    if (characters_[c]) return true;
    return alone_[c] && (end == text.size() || !followers_[byte_of(text, end)]);
  }

 private:
  static constexpr std::size_t block_characters = 64;  // of three bytes in common

  void find_pairs(const Rules& rules, char a) {
    const std::string alone(1, a);
    const auto rule = rules.at_start(alone);
    std::bitset<256> followers;
    rules.add_followers(alone, followers);
    const bool is_space = rule.bytes > 0 ? rule.replacement == " " : a == ' ';
    for (std::size_t b = 0; b < 256; ++b) {
      const std::size_t pair = std::size_t{256} * static_cast<std::uint8_t>(a) + b;
      spaces_[pair] = is_space && !followers[b];
      pairs_[pair] = !is_space && rule.bytes == 0 && !followers[b];
    }
  }
  void find_character(const Rules& rules, char32_t c) {
    const std::string alone = utf8_of(c);
    characters_[c] = rules.stays(alone);
    if (characters_[c]) return;
    alone_[c] = rules.at_start(alone).bytes == 0;
    if (alone_[c]) rules.add_followers(alone, followers_);
  }

  std::bitset<128 * 256> pairs_, spaces_;  // an ASCII character before a byte: stays, but for spaces; is a space
  std::bitset<0x10000> characters_;        // others that stay
  std::bitset<0x10000> alone_;             // those that stay where none of `followers_` is next
  std::bitset<256> followers_;             // of one of them, in what a rule replaces
  std::bitset<0x100000 / block_characters> blocks_;  // of characters of four bytes: all stay
};

class SentencePieceNormalizer {
 public:
  SentencePieceNormalizer(const SentencePieceRules& rules, const std::string& where)
      : rules_(rules, where),
        fates_(rules_),
        spaces_(rules.escape_spaces ? space_symbol : " "),
        prefix_(rules.dummy_prefix),
        suffix_(rules.space_as_suffix),
        remove_(rules.remove_extra_spaces) {}

  bool keeps_start(std::string_view text) const { return !remove_ || !text.starts_with(' '); }
  void apply(std::string& text) const {
    const std::string input = std::move(text);
    std::string_view rest = input;
    text.clear();
    while (remove_ && !rest.empty()) {
      const auto [bytes, replacement] = next(rest);
      if (replacement != " ") break;
      rest.remove_prefix(bytes);
    }
    if (rest.empty()) return;
    text.reserve(rest.size() + rest.size() / 2);
    if (prefix_ && !suffix_) text += spaces_;
    bool after_space = remove_;
    while (true) {
      rest.remove_prefix(copy_plain(rest, text, after_space));
      if (rest.empty()) break;
      auto [bytes, replacement] = next(rest);
      while (after_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
      if (!replacement.empty()) {
        for (const char c : replacement) c == ' ' ? void(text += spaces_) : text.push_back(c);
        after_space = replacement.ends_with(' ');
      }
      rest.remove_prefix(bytes);
      if (!remove_) after_space = false;
    }
    while (remove_ && text.ends_with(spaces_)) text.resize(text.size() - spaces_.size());
    if (prefix_ && suffix_) text += spaces_;
  }

 private:
  // Copies what stays at the start, and spaces, and returns its bytes.
  std::size_t copy_plain(std::string_view text, std::string& out, bool& after_space) const {
    char buffer[1024];  // a character at a time is cheaper here than in a string
    constexpr std::size_t most_bytes = 4;
    std::size_t at = 0, held = 0;
    const auto put = [&](const char* from, std::size_t bytes) {
      for (std::size_t i = 0; i < bytes; ++i) buffer[held++] = from[i];
    };
    while (at + 1 < text.size()) {
      if (held + most_bytes > sizeof buffer) out.append(buffer, std::exchange(held, 0));
      const std::uint8_t a = byte_of(text, at), b = byte_of(text, at + 1);
      if (a < 0x80) {
        if (fates_.ascii_stays(a, b)) {
          buffer[held++] = text[at++];
          after_space = false;
          continue;
        }
        if (!fates_.is_space(a, b)) break;
        if (!after_space) put(spaces_.data(), spaces_.size());
        after_space = remove_;
        ++at;
        continue;
      }
      const Decoded c = decode_valid(text, at);
      if (!fates_.stays(c.code, text, at + c.bytes)) break;
      put(text.data() + at, c.bytes);
      at += c.bytes;
      after_space = false;
    }
    out.append(buffer, held);
    return at;
  }
  Charsmap::Rule next(std::string_view text) const {
    if (const auto rule = rules_.at_start(text); rule.bytes > 0) return rule;
    const std::size_t bytes = decode_valid(text, 0).bytes;
    return {bytes, text.substr(0, bytes)};
  }

  Rules rules_;
  Fates fates_;
  std::string spaces_;
  bool prefix_, suffix_, remove_;
};

}  // namespace

Normalizer make_sentencepiece_normalizer(const SentencePieceRules& rules, const std::string& where) {
  const auto made = std::make_shared<const SentencePieceNormalizer>(rules, where);
  return {[made](std::string& text, RegexScratch&) { made->apply(text); },
          [made](std::string_view text, RegexScratch&) { return made->keeps_start(text); }};
}

}  // namespace forge
