#pragma once

#include "device/warpgroup.hpp"
#include "kernels/attention_mma_mask.hpp"
#include "kernels/attention_mma_tiles.hpp"

// What blocks of the kernels that multiply by warpgroups do with tiles of bf16: four warps have 64 rows of a product,
// of which a warp has 16, and its lanes their columns as in attention_mma_tiles.hpp.

namespace forge::attention_mma {

constexpr int group_rows = 64;

// A tile in panels of 64 columns: device/warpgroup.hpp says where its chunks stand.
template <int rows_, int columns_>
struct Panels {
  static_assert(rows_ % 8 == 0 && columns_ % 64 == 0);
  static constexpr int rows = rows_, columns = columns_, chunks = columns / 8, values_all = rows * columns;
  static constexpr int row_values = 64, next_64_columns = 64 * rows, panel_bytes = 2 * next_64_columns;
  bf16* values;

  __device__ bf16* chunk(int row, int c) const {
    return values + c / 8 * next_64_columns + row * row_values + (c % 8 ^ (row & 7)) * 8;
  }
  __device__ const bf16* row(int r) const { return values + r * row_values; }
};

// The left factor of a product, from the registers of another one's result.
template <int j>
__device__ void pack_words(const float (&x)[j][4], std::uint32_t (&words)[j / 2][4]) {
#pragma unroll
  for (int c = 0; c < j; ++c) {
    words[c / 2][c % 2 * 2] = pack_bf16(x[c][0], x[c][1]);
    words[c / 2][c % 2 * 2 + 1] = pack_bf16(x[c][2], x[c][3]);
  }
}

// Dynamic shared memory from a multiple of 1,024 bytes on; a launch asks for so many more.
constexpr std::size_t panel_alignment = 1024;
__device__ inline bf16* panel_memory() {
  unsigned char* memory = dynamic_shared();
  const auto beyond = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(memory) % panel_alignment);
  return reinterpret_cast<bf16*>(memory + (beyond > 0 ? panel_alignment - beyond : 0));
}

}  // namespace forge::attention_mma
