#include "tokenizer/unicode.hpp"

#include <utf8proc.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "tokenizer/unicode_tables.hpp"

namespace forge {

namespace {

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

int category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
int later_category(char32_t code) {
  const char32_t other = stand_in(code);
  return category(other != 0 ? other : code);
}
bool is_later(char32_t code) {
  return stand_in(code) != 0;
}

// Which first two bytes, of characters of three or four, may begin one that needs a stand-in.
class LaterPrefixes {
 public:
  LaterPrefixes() {
    for (char32_t code = 0x800; code < 0x110000; ++code)
      if (is_later(code)) {
        const std::string text = utf8_of(code);
        prefixes_[place(text, 0)] = true;
      }
  }
  bool holds(std::string_view text, std::size_t at) const { return prefixes_[place(text, at)]; }

 private:
  static std::size_t place(std::string_view text, std::size_t at) {
    return static_cast<std::size_t>((text[at] & 0x1F) << 6 | (text[at + 1] & 0x3F));
  }
  bool prefixes_[32 * 64] = {};
};

// Bytes that a lead byte promises, and the range of the second one (Unicode 15, table 3-7). 0: no lead byte.
struct Lead {
  std::size_t bytes;
  std::uint8_t least, most;
};
Lead lead_of(std::uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of the text from `at` that are ASCII, eight at a time.
std::size_t ascii_run(std::string_view text, std::size_t at) {
  const std::size_t begin = at;
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    // The lowest bit that is set here stands in the first byte that is no ASCII.
    if (const std::uint64_t high = word & 0x8080808080808080u; high != 0)
      return at + static_cast<std::size_t>(std::countr_zero(high)) / 8 - begin;
    at += 8;
  }
  while (at < text.size() && byte_at(text, at) < 0x80) ++at;
  return at - begin;
}

}  // namespace

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string utf8_of(char32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

ValidPrefix valid_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (true) {
    if (at < bytes.size() && byte_at(bytes, at) < 0x80) at += ascii_run(bytes, at);
    if (at == bytes.size()) return {at, 0};
    // Most other characters: two bytes, or three, of which any two may follow the first one.
    const std::uint8_t first = byte_at(bytes, at);
    if (first >= 0xC2 && first < 0xE0 && at + 1 < bytes.size() && continues_character(bytes[at + 1])) {
      at += 2;
      continue;
    }
    if (first > 0xE0 && first < 0xF0 && first != 0xED && at + 2 < bytes.size() && continues_character(bytes[at + 1]) &&
        continues_character(bytes[at + 2])) {
      at += 3;
      continue;
    }
    const Lead lead = lead_of(byte_at(bytes, at));
    if (lead.bytes == 0) return {at, 1};
    std::size_t good = 1;
    for (; good < lead.bytes && at + good < bytes.size(); ++good) {
      const std::uint8_t byte = byte_at(bytes, at + good);
      const bool fits = good == 1 ? byte >= lead.least && byte <= lead.most : (byte & 0xC0) == 0x80;
      if (!fits) break;
    }
    if (good < lead.bytes) return {at, good};
    at += lead.bytes;
  }
}

bool is_valid_utf8(std::string_view bytes) {
  return valid_prefix(bytes).valid == bytes.size();
}

std::string replace_ill_formed(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const ValidPrefix prefix = valid_prefix(bytes);
    text.append(bytes.substr(0, prefix.valid));
    if (prefix.broken > 0) append_utf8(text, replacement_character);
    bytes.remove_prefix(prefix.valid + prefix.broken);
  }
  return text;
}

std::string_view with_stand_ins(std::string_view text, std::string& buffer) {
  static const LaterPrefixes prefixes;
  bool copied = false;
  for (std::size_t at = 0; (at += ascii_run(text, at)) < text.size();) {
    const std::uint8_t lead = byte_at(text, at);
    const std::size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (bytes > 2 && prefixes.holds(text, at))
      if (const char32_t other = stand_in(decode_valid(text, at).code); other != 0) {
        if (!copied) buffer.assign(text);
        copied = true;
        buffer.replace(at, bytes, utf8_of(other));
      }
    at += bytes;
  }
  return copied ? std::string_view(buffer) : text;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const int kind = later_category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const int kind = category(c);
  return library_punctuation(c, kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO && !is_later(c));
}

bool is_word_character(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189))
    return true;  // Other_Alphabetic that are symbols
  const int kind = later_category(c);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_ME) || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC;
}

bool is_mark(char32_t c) {
  const int kind = category(c);
  return library_mark(c, kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME && !is_later(c));
}

bool is_nonspacing_mark(char32_t c) {
  return library_nonspacing_mark(c, category(c) == UTF8PROC_CATEGORY_MN && !is_later(c));
}

bool is_control(char32_t c) {
  const int kind = category(c);
  const bool control = kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
  return library_control(c, control && !is_later(c));
}

void append_lowercase(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {
    text += "i\xCC\x87";
  } else if (const char32_t later = later_lowercase(c); later != 0) {
    append_utf8(text, later);
  } else {
    append_utf8(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace forge
