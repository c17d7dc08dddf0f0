#include "text/ill_formed.hpp"

#include "tokenizer/unicode.hpp"

namespace forge {

void IllFormedBytes::add(const IllFormedBytes& other) {
  if (first.empty()) first = other.first;
  bytes += other.bytes;
  of += other.of;
}

std::size_t IllFormedBytes::count(std::string_view text, const std::string& place, std::int64_t offset,
                                  bool with_offset, bool ends) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ValidPrefix prefix = valid_prefix(text.substr(at));
    at += prefix.valid;
    if (prefix.broken == 0) break;
    // Half a character may become a whole one.
    if (!ends && at + prefix.broken == text.size() && static_cast<unsigned char>(text[at]) >= 0xC2) break;
    if (first.empty())
      first = place + (with_offset ? ", byte " + std::to_string(offset + static_cast<std::int64_t>(at)) : "");
    bytes += static_cast<std::int64_t>(prefix.broken);
    at += prefix.broken;
  }
  of += static_cast<std::int64_t>(at);
  return text.size() - at;
}

}  // namespace forge
