#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forge {

// The kinds of token files, by what tells them apart (docs/data.md).
enum class TokenFormat {
  raw,       // nothing: little-endian uint16 or uint32
  npy,       // its name and header
  megatron,  // the header of the .idx file beside the .bin file
  llm_c,     // its header: 256 int32, magic 20240520 (uint16) or 20240801 (uint32)
  ds,        // its name: datatrove's and nanotron's; types as raw, or as the .metadata file says
};
std::string_view name_of(TokenFormat format);
// Of the magic that begins Megatron's .idx file.
inline constexpr std::size_t megatron_magic_bytes = 9;

// "raw" | "npy" | "megatron" | "llm.c" | "ds": a format by its name on a command line. Throws BadInput.
TokenFormat token_format_named(const std::string& word);

}  // namespace forge
