#include <cmath>

#include "device/launch.hpp"
#include "kernels/fp8_product.hpp"

namespace forge {

namespace {

constexpr int block_threads = 256, warp_lanes = 32;

// Of a group whose amax isn't finite any code will do: its scale is NaN to the product.
__device__ std::uint8_t code_of(bf16 x, float scale, Fp8Format format) {
  return fp8_code(round_to_fp8(static_cast<float>(x) * scale, format), format);
}
__device__ float scale_of(float amax, Fp8Format format, bool exact) {
  return amax < static_cast<float>(INFINITY) ? fp8_scale(amax, format, exact) : 0.0f;
}

// codes(R, 128 · slots): a warp for a row, a lane for four codes of each slot.
__global__ void __launch_bounds__(block_threads)
    encode_rows_kernel(View<const bf16, 2> x, Fp8Codes to, std::uint8_t* codes) {
  const std::int64_t r = std::int64_t{blockIdx.x} * (block_threads / warp_lanes) + threadIdx.x / warp_lanes;
  if (r >= x.rows()) return;
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const float* amax = to.amax_of(r);
  for (std::int32_t s = 0; s < to.slots.first[3]; ++s) {
    const Fp8Slots::Lines here = to.slots.lines_of(s);
    const float scale = scale_of(amax[here.group * to.depth_stride], to.format, to.exact);
    std::uint32_t word = 0;
    for (int e = 0; e < 4; ++e) {
      const std::int64_t k = here.begin + 4 * lane + e;
      if (k < here.end) word |= static_cast<std::uint32_t>(code_of(x.row(r)[k], scale, to.format)) << (8 * e);
    }
    *reinterpret_cast<std::uint32_t*>(codes + r * to.codes.pitch + s * fp8_block + 4 * lane) = word;
  }
}

// codes(N, 128 · slots) of each x(R,N): a block for a slot of 64 columns, which are turned in shared memory.
constexpr int turned_columns = 64, turned_pitch = fp8_block + 4;

__global__ void __launch_bounds__(block_threads)
    encode_columns_kernel(View<const bf16, 2> x, std::int64_t rows, Fp8Codes to, std::uint8_t* codes, unsigned tiles) {
  FORGE_SHARED(std::uint32_t, words, turned_columns * turned_pitch / 4);
  auto* bytes = reinterpret_cast<std::uint8_t*>(words);
  const auto slots = static_cast<unsigned>(to.slots.first[3]);
  const auto slot = static_cast<std::int32_t>(blockIdx.x / tiles % slots);
  const std::int64_t matrix = blockIdx.x / tiles / slots, first = std::int64_t{blockIdx.x % tiles} * turned_columns;
  const std::int64_t first_row = matrix * rows, first_line = matrix * to.matrix_lines;
  const Fp8Slots::Lines here = to.slots.lines_of(slot);
  const int thread = static_cast<int>(threadIdx.x), own = thread % turned_columns;
  const std::int64_t column = first + own;
  float scale = 0;
  if (column < x.columns())
    scale = scale_of(to.amax_of(first_line + column)[here.group * to.depth_stride], to.format, to.exact);
  for (int k = thread / turned_columns; k < fp8_block; k += block_threads / turned_columns) {
    const bool inside = here.begin + k < here.end && column < x.columns();
    bytes[own * turned_pitch + k] = inside ? code_of(x.row(first_row + here.begin + k)[column], scale, to.format) : 0;
  }
  __syncthreads();
  const int lane = thread % warp_lanes;
  for (int c = thread / warp_lanes; c < turned_columns && first + c < x.columns(); c += block_threads / warp_lanes)
    *reinterpret_cast<std::uint32_t*>(codes + (first_line + first + c) * to.codes.pitch + slot * fp8_block + 4 * lane) =
        words[c * (turned_pitch / 4) + lane];
}

}  // namespace

Fp8Codes fp8_encode(Stream& stream, View<const bf16, 2> x, const ScaledOperand& operand, bool sums_rows, bool exact,
                    View<const float, 1> amax, View<std::uint8_t, 1> memory, std::int64_t matrices) {
  const std::int64_t groups = operand.by_column.count, rows = x.rows() / matrices;
  Fp8Codes to;
  to.lines = sums_rows ? operand.by_column : operand.by_row;
  to.slots = fp8_slots(sums_rows ? operand.by_row : operand.by_column);
  to.amax = amax.data;
  to.line_stride = sums_rows ? 1 : groups;
  to.depth_stride = sums_rows ? groups : 1;
  to.matrix_lines = sums_rows ? x.columns() : rows;
  to.matrix_groups = operand.groups();
  to.format = operand.format;
  to.exact = exact;
  const std::int64_t pitch = fp8_block * to.slots.count(), lines = matrices * to.matrix_lines;
  require(lines * pitch <= memory.rows(), "codes don't fit their memory");
  to.codes = View<const std::uint8_t, 2>(memory.data, {{lines, pitch}});
  if (lines == 0 || pitch == 0) return to;
  if (sums_rows) {
    const auto tiles = static_cast<unsigned>((to.matrix_lines + turned_columns - 1) / turned_columns);
    launch(stream, "codes of columns", encode_columns_kernel, {matrices * tiles * to.slots.count(), block_threads}, x,
           rows, to, memory.data, tiles);
  } else {
    constexpr int rows_each = block_threads / warp_lanes;
    launch(stream, "codes of rows", encode_rows_kernel, {(lines + rows_each - 1) / rows_each, block_threads}, x, to,
           memory.data);
  }
  return to;
}

}  // namespace forge
