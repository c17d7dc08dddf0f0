#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace forge {

// The printable characters that stand for bytes in byte-level vocabularies (Radford et al. 2019): those of Latin-1 that
// are printable for themselves, the others from U+0100 on.
char32_t character_of_byte(std::uint8_t byte);
// -1: a character that stands for none.
int byte_of_character(char32_t code);

// Each byte as its character.
std::string to_byte_alphabet(std::string_view bytes);
// Nothing where a character stands for no byte.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace forge
