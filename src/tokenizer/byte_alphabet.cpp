#include "tokenizer/byte_alphabet.hpp"

#include <array>

#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

bool is_printable(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 512> of_character{};
};

constexpr std::uint32_t first_stand_in = 0x100;

const Alphabet& alphabet() {
  static const Alphabet table = [] {
    Alphabet made;
    made.of_character.fill(-1);
    char32_t next = first_stand_in;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      made.of_byte[byte] = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
      made.of_character[made.of_byte[byte]] = static_cast<int>(byte);
    }
    return made;
  }();
  return table;
}

}  // namespace

char32_t character_of_byte(std::uint8_t byte) {
  return alphabet().of_byte[byte];
}

int byte_of_character(char32_t code) {
  return code < alphabet().of_character.size() ? alphabet().of_character[code] : -1;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) append_utf8(text, character_of_byte(static_cast<std::uint8_t>(byte)));
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_valid(text, at);
    const int byte = byte_of_character(c.code);
    if (byte < 0) return {};
    bytes += static_cast<char>(byte);
    at += c.bytes;
  }
  return bytes;
}

}  // namespace forge
