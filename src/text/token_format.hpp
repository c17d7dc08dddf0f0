#pragma once

#include <cstddef>
#include <string_view>

namespace forge {

// The kinds of token files, each with its mark of recognition (docs/data.md).
enum class TokenFormat {
  raw,       // nothing: little-endian uint16 or uint32
  npy,       // its name and header
  megatron,  // the header of the .idx file beside the .bin file
  llm_c,     // its header: 256 int32, magic 20240520 (uint16) or 20240801 (uint32)
  ds,        // its name: datatrove's and nanotron's; types as raw, or as the .metadata file says
};
constexpr std::string_view name_of(TokenFormat format) {
  constexpr std::string_view names[] = {"raw", ".npy", "Megatron", "llm.c", ".ds"};
  return names[static_cast<int>(format)];
}
// The length of the magic that begins Megatron's .idx file.
inline constexpr std::size_t megatron_magic_bytes = 9;

}  // namespace forge
