#include <cmath>

#include "core/fp8.hpp"
#include "device/instructions.hpp"
#include "device/packs.hpp"
#include "kernels/fp8/fp8_operand.hpp"

namespace forge {

namespace {

constexpr int block_threads = 256, warp_lanes = 32;

// Numbers that a thread reads at once, 16 bytes of them.
constexpr int pack = 8;
using Numbers = device_detail::Pack<bf16, pack>;

__device__ Numbers read(const bf16* from, int count) {
  if (count >= pack && device_detail::aligned(from)) return device_detail::read_pack<true, pack>(from, pack);
  return device_detail::read_pack<false, pack>(from, count);
}

// Of a group whose amax isn't finite any code will do: its scale is NaN to the product.
__device__ std::uint32_t codes_of(float low, float high, Fp8Format format) {
  return format == Fp8Format::e4m3 ? pack_e4m3(low, high) : pack_e5m2(low, high);
}
__device__ float scale_of(float amax, Fp8Format format, bool exact) {
  return amax < static_cast<float>(INFINITY) ? fp8_scale(amax, format, exact) : 0.0f;
}

// codes(R, 128 · slots): a warp for eight slots of a row, of which each half takes every second one; all are read
// before the first is written. Lane s of the warp finds out about slot s mod 8.
constexpr int warp_slots = 8, slot_lanes = fp8_block / pack;
static_assert(2 * slot_lanes == warp_lanes);

__global__ void __launch_bounds__(block_threads)
    encode_rows_kernel(View<const bf16, 2> x, Fp8Codes to, std::uint8_t* codes, unsigned pieces) {
  const unsigned warp = blockIdx.x * (block_threads / warp_lanes) + threadIdx.x / warp_lanes;
  const std::int64_t r = warp / pieces;
  if (r >= x.rows()) return;
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes, half = lane / slot_lanes, own = lane % slot_lanes * pack;
  const int first = static_cast<int>(warp % pieces) * warp_slots, slots = to.slots.first[3];
  int begin = 0, count = 0;
  float scale = 0;
  if (first + lane % warp_slots < slots) {
    const Fp8Slots::Lines here = to.slots.lines_of(first + lane % warp_slots);
    begin = static_cast<int>(here.begin), count = static_cast<int>(here.end - here.begin);
    scale = scale_of(to.amax_of(r)[here.group * to.depth_stride], to.format, to.exact);
  }
  Numbers numbers[warp_slots / 2];
  FORGE_UNROLL
  for (int i = 0; i < warp_slots / 2; ++i) {
    const int from = __shfl_sync(0xffffffffu, begin, 2 * i + half), n = __shfl_sync(0xffffffffu, count, 2 * i + half);
    numbers[i] = read(x.row(r) + from + own, n - own);
  }
  std::uint8_t* const line = codes + r * to.codes.pitch + first * fp8_block + own;
  FORGE_UNROLL
  for (int i = 0; i < warp_slots / 2; ++i) {
    const float s = __shfl_sync(0xffffffffu, scale, 2 * i + half);
    const auto number = [&](int e) { return static_cast<float>(numbers[i].values[e]) * s; };
    std::uint32_t words[2];
    FORGE_UNROLL
    for (int w = 0; w < 2; ++w)
      words[w] = codes_of(number(4 * w), number(4 * w + 1), to.format) |
                 codes_of(number(4 * w + 2), number(4 * w + 3), to.format) << 16;
    if (first + 2 * i + half < slots)
      *reinterpret_cast<std::uint64_t*>(line + (2 * i + half) * fp8_block) = words[0] | std::uint64_t{words[1]} << 32;
  }
}

// codes(N, 128 · slots) of x(R,N): a block for a slot of 64 columns, a thread for four rows of eight columns,
// which are turned in shared memory.
constexpr int turned_columns = 64, turned_words = fp8_block / 4, turned_pitch = turned_words + 1;
static_assert(block_threads == turned_columns / pack * turned_words);

__global__ void __launch_bounds__(block_threads)
    encode_columns_kernel(View<const bf16, 2> x, Fp8Codes to, std::uint8_t* codes, unsigned tiles) {
  FORGE_SHARED(std::uint32_t, words, turned_columns * turned_pitch);
  FORGE_SHARED(float, scales, turned_columns);
  const auto slot = static_cast<std::int32_t>(blockIdx.x / tiles);
  const std::int64_t first = std::int64_t{blockIdx.x % tiles} * turned_columns;
  const Fp8Slots::Lines here = to.slots.lines_of(slot);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp_lanes;
  if (thread < turned_columns && first + thread < x.columns())
    scales[thread] = scale_of(to.amax_of(first + thread)[here.group * to.depth_stride], to.format, to.exact);
  const int column = thread % (turned_columns / pack) * pack, four = thread / (turned_columns / pack);
  Numbers numbers[4];
  FORGE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = here.begin + 4 * four + i, left = x.columns() - first - column;
    numbers[i] = row < here.end && left > 0
                     ? read(x.row(row) + first + column, static_cast<int>(left < pack ? left : pack))
                     : Numbers{};
  }
  __syncthreads();
  FORGE_UNROLL
  for (int e = 0; e < pack; ++e) {
    const float scale = first + column + e < x.columns() ? scales[column + e] : 0;
    const auto number = [&](int i) { return static_cast<float>(numbers[i].values[e]) * scale; };
    words[(column + e) * turned_pitch + four] =
        codes_of(number(0), number(1), to.format) | codes_of(number(2), number(3), to.format) << 16;
  }
  __syncthreads();
  for (int c = thread / warp_lanes; c < turned_columns && first + c < x.columns(); c += block_threads / warp_lanes)
    *reinterpret_cast<std::uint32_t*>(codes + (first + c) * to.codes.pitch + slot * fp8_block + 4 * lane) =
        words[c * turned_pitch + lane];
}

}  // namespace

Fp8Codes fp8_encode(Stream& stream, View<const bf16, 2> x, const ScaledOperand& operand, bool sums_rows, bool exact,
                    View<const float, 1> amax, View<std::uint8_t, 1> memory) {
  const std::int64_t groups = operand.by_column.count;
  Fp8Codes to;
  to.lines = sums_rows ? operand.by_column : operand.by_row;
  to.slots = fp8_slots(sums_rows ? operand.by_row : operand.by_column);
  to.amax = amax.data;
  to.line_stride = sums_rows ? 1 : groups;
  to.depth_stride = sums_rows ? groups : 1;
  to.format = operand.format;
  to.exact = exact;
  const std::int64_t pitch = fp8_block * to.slots.count(), lines = sums_rows ? x.columns() : x.rows();
  require(lines * pitch <= memory.rows(), "codes don't fit their memory");
  to.codes = View<const std::uint8_t, 2>(memory.data, {{lines, pitch}});
  if (lines == 0 || pitch == 0) return to;
  if (sums_rows) {
    const auto tiles = static_cast<unsigned>((lines + turned_columns - 1) / turned_columns);
    launch(stream, "codes of columns", encode_columns_kernel, {tiles * to.slots.count(), block_threads}, x, to,
           memory.data, tiles);
  } else {
    constexpr int warps = block_threads / warp_lanes;
    const std::int64_t pieces = (to.slots.count() + warp_slots - 1) / warp_slots;
    launch(stream, "codes of rows", encode_rows_kernel, {(lines * pieces + warps - 1) / warps, block_threads}, x, to,
           memory.data, static_cast<unsigned>(pieces));
  }
  return to;
}

}  // namespace forge
