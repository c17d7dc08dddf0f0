#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forge {

// Bits of an element of a safetensors type, 0 when the format has no such type.
int bits_of_type(const std::string& type);

// Bytes of a tensor; nothing when an extent is negative, the product passes 63 bits, or a byte is not full.
std::optional<std::uint64_t> bytes_of(const std::string& type, const std::vector<std::int64_t>& shape);

}  // namespace forge
