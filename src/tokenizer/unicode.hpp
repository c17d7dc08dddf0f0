#pragma once

#include <string>
#include <string_view>

namespace forge {

inline constexpr char32_t replacement_character = 0xFFFD;

// A code point and the bytes of its UTF-8.
struct Decoded {
  char32_t code;
  std::size_t bytes;
};

// The code point at `at`, of valid UTF-8.
inline Decoded decode_valid(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const auto next = [&](std::size_t i) { return byte(i) & 0x3F; };
  const char32_t a = byte(0);
  if (a < 0x80) return {a, 1};
  if (a < 0xE0) return {(a & 0x1F) << 6 | next(1), 2};
  if (a < 0xF0) return {(a & 0x0F) << 12 | next(1) << 6 | next(2), 3};
  return {(a & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4};
}
// Whether a byte of UTF-8 belongs to the character that another one before it has begun.
inline bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}
void append_utf8(std::string& text, char32_t code);
std::string utf8_of(char32_t code);

// How many bytes at the start are valid UTF-8, and, where something else follows them, how many bytes the ill-formed
// part has: the longest one that some character begins with, or one byte (Unicode 15, section 3.9, U+FFFD substitution
// of maximal subparts, as Python's errors="replace").
struct ValidPrefix {
  std::size_t valid, broken;
};
ValidPrefix valid_prefix(std::string_view bytes);

// Whether all of it is valid UTF-8.
bool is_valid_utf8(std::string_view bytes);
// The text with U+FFFD in the place of each ill-formed part.
std::string replace_ill_formed(std::string_view bytes);

// The text itself, or, where it has characters that are younger than PCRE2's tables, a copy with stand-ins for them in
// `buffer`, which lie at the same places.
std::string_view with_stand_ins(std::string_view text, std::string& buffer);

// Properties as the library tokenizers has them (unicode_tables.hpp).
bool is_white_space(char32_t code);     // White_Space
bool is_numeric(char32_t code);         // Nd, Nl, No
bool is_punctuation(char32_t code);     // P*, or an ASCII symbol
bool is_word_character(char32_t code);  // \w of UTS #18: Alphabetic, M, Nd, Pc, Join_Control
bool is_mark(char32_t code);            // M*
bool is_nonspacing_mark(char32_t code);
bool is_control(char32_t code);  // Cc, Cf, Co
// One to one but for U+0130, which is two.
void append_lowercase(std::string& text, char32_t code);

}  // namespace forge
