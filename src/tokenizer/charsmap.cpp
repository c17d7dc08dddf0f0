#include "tokenizer/charsmap.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace forge {

namespace {

// SentencePiece's own reader has room for so many keys of one text.
constexpr int most_keys = 32;

// A unit of Darts-clone's array: bit 31 marks a value; else bits 0 … 7 are the label, bit 8 says that a value stands
// below, bits 10 … 30 are the offset, bit 9 shifts it by 8.
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & ((1u << 31) | 0xFF);
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  std::uint32_t size = 0;
  if (blob.size() > sizeof size) std::memcpy(&size, blob.data(), sizeof size);
  if (blob.size() <= sizeof size || size >= blob.size() - sizeof size || size % 4 != 0 || size < 1024)
    throw BadInput(where + ": a trie of " + std::to_string(size) + " bytes in " + std::to_string(blob.size()) +
                   " bytes; legal: a multiple of 4, at least 1024, with the replacements behind it");
  units_.resize(size / 4);
  std::memcpy(units_.data(), blob.data() + sizeof size, size);
  replacements_ = blob.substr(sizeof size + size);
  if (replacements_.back() != '\0') replacements_ += '\0';
}

Charsmap::Rule Charsmap::match(std::string_view text, bool longest) const {
  Rule rule;
  if (units_.empty()) return rule;
  std::uint32_t node = offset_of(units_[0]);
  int keys = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size()) break;
    const std::uint32_t unit = units_[node];
    if (label_of(unit) != byte) break;
    node ^= offset_of(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= units_.size()) break;
    const std::size_t place = units_[node] & 0x7FFFFFFF;
    const std::size_t at = std::min(place, replacements_.size() - 1);
    rule = {i + 1, std::string_view(replacements_.data() + at)};
    if (!longest || ++keys == most_keys) break;
  }
  return rule;
}

bool Charsmap::touches(std::string_view text) const {
  if (units_.empty()) return false;
  std::uint32_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return false;
    if ((units_[node] >> 8 & 1) != 0) return true;
    node ^= offset_of(units_[node]);
  }
  return true;
}

void Charsmap::add_followers(std::string_view start, std::bitset<256>& bytes) const {
  if (units_.empty()) return;
  std::uint32_t node = offset_of(units_[0]);
  for (const char c : start) {
    const auto byte = static_cast<std::uint8_t>(c);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return;
    node ^= offset_of(units_[node]);
  }
  for (std::uint32_t byte = 0; byte < bytes.size(); ++byte)
    if (const std::uint32_t child = node ^ byte; child < units_.size() && label_of(units_[child]) == byte)
      bytes.set(byte);
}

}  // namespace forge
