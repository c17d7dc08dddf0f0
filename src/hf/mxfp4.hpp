#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hf/safetensors.hpp"

namespace forge {

// Matrices in MXFP4 (OCP Microscaling Formats, version 1.0), as gpt-oss's files have for all experts of a layer:
// <name>_blocks (E, m, n / 32, 16), U8, has two codes of E2M1 in each byte, the low one first, and
// <name>_scales (E, m, n / 32), U8, a power of two for each 32 of a row:
//   value[e, i, j] = code[e, i, j] · 2^(scale[e, i, j / 32] − 127)

inline constexpr std::int64_t mxfp4_block = 32;

// Why the two tensors do not hold (experts, rows, columns); "" when they do.
std::string mxfp4_problem(const TensorFiles& files, const TensorInfo& blocks, const TensorInfo* scales,
                          const std::vector<std::int64_t>& shape);

// Row after row, so many columns each, of the matrices of all experts one below the other: rows first_row, first_row +
// step, …, as many as `out` has. Exact in fp32. Throws BadInput where a scale is 255, which is no number.
template <class A>
void read_mxfp4(const TensorFiles& files, const TensorInfo& blocks, const TensorInfo& scales, std::int64_t columns,
                std::int64_t first_row, std::int64_t step, std::span<A> out);

}  // namespace forge
