#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/types.hpp"

namespace forge {

// The use of an array: token ids are u16, u32, i32 or i64, little-endian; a mask is bytes or truths.
enum class NpyUse { tokens, mask };

// The header of a NumPy .npy file, for the one kind of array that forge reads: of one axis.
struct NpyHeader {
  DType type = DType::u16;
  std::int64_t count = 0;        // elements
  std::int64_t data_offset = 0;  // bytes before the first element
};

// The longest header that is read, magic and length included; NumPy's own are 64 to 192 bytes.
inline constexpr std::size_t npy_header_limit = 65536;

// Reads versions 1 to 3 from the first bytes of a file (min(file size, npy_header_limit) of them). None of them is
// trusted: throws BadInput with `path`, the byte offset and the error.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& path, NpyUse use = NpyUse::tokens);

}  // namespace forge
