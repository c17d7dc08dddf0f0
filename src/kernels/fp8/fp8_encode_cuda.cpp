#include <cmath>

#include "config/fp8_format.hpp"
#include "core/error.hpp"
#include "device/instructions.hpp"
#include "device/launch.hpp"
#include "device/packs.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/rows/largest.hpp"

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
__device__ std::uint32_t two_codes(float low, float high, Fp8Format format) {
  return format == Fp8Format::e4m3 ? pack_e4m3(low, high) : pack_e5m2(low, high);
}
__device__ float scale_of(float amax, Fp8Format format, bool exact) {
  return amax < static_cast<float>(INFINITY) ? fp8_scale(amax, format, exact) : 0.0f;
}

// Where the largest magnitude of rows goes; null: nobody asks for it.
struct Seen {
  float* most;
  const std::int64_t* samples;

  __device__ bool counts(std::int64_t r) const { return most && !(samples && samples[r] < 0); }
};

// codes(R, 128 · slots): a warp for eight slots of a row, of which each half takes every second one; all are read
// before the first is written. Lane s of the warp finds out about slot s mod 8.
constexpr int warp_slots = 8, slot_lanes = scale_width / pack;
static_assert(2 * slot_lanes == warp_lanes);

__device__ void encode_rows(const View<const bf16, 2>& x, const Fp8Codes& to, std::uint8_t* codes, const Seen& seen,
                            unsigned pieces, unsigned block) {
  const unsigned warp = block * (block_threads / warp_lanes) + threadIdx.x / warp_lanes;
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
  if (seen.counts(r)) {
    float most = 0;
    FORGE_UNROLL
    for (int i = 0; i < warp_slots / 2; ++i) FORGE_UNROLL
    for (int e = 0; e < pack; ++e) most = larger(magnitude(numbers[i].values[e]), most);
    for (int offset = warp_lanes / 2; offset > 0; offset /= 2)
      most = larger(__shfl_xor_sync(0xffffffffu, most, offset), most);
    if (lane == 0) raise(seen.most, most);
  }
  std::uint8_t* const line = codes + r * to.codes.pitch + first * scale_width + own;
  FORGE_UNROLL
  for (int i = 0; i < warp_slots / 2; ++i) {
    const float s = __shfl_sync(0xffffffffu, scale, 2 * i + half);
    const auto number = [&](int e) { return static_cast<float>(numbers[i].values[e]) * s; };
    std::uint32_t words[2];
    FORGE_UNROLL
    for (int w = 0; w < 2; ++w)
      words[w] = two_codes(number(4 * w), number(4 * w + 1), to.format) |
                 two_codes(number(4 * w + 2), number(4 * w + 3), to.format) << 16;
    if (first + 2 * i + half < slots)
      *reinterpret_cast<std::uint64_t*>(line + (2 * i + half) * scale_width) = words[0] | std::uint64_t{words[1]} << 32;
  }
}

// codes(N, 128 · slots) of x(R,N): a block for a slot of 64 columns, a thread for four rows of eight columns,
// which are turned in shared memory.
constexpr int turned_columns = 64, turned_words = scale_width / 4, turned_pitch = turned_words + 1;
static_assert(block_threads == turned_columns / pack * turned_words);

__device__ void encode_columns(const View<const bf16, 2>& x, const Fp8Codes& to, std::uint8_t* codes, unsigned tiles,
                               unsigned block) {
  FORGE_SHARED(std::uint32_t, words, turned_columns * turned_pitch);
  FORGE_SHARED(float, scales, turned_columns);
  const auto slot = static_cast<std::int32_t>(block / tiles);
  const std::int64_t first = std::int64_t{block % tiles} * turned_columns;
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
        two_codes(number(0), number(1), to.format) | two_codes(number(2), number(3), to.format) << 16;
  }
  __syncthreads();
  for (int c = thread / warp_lanes; c < turned_columns && first + c < x.columns(); c += block_threads / warp_lanes)
    *reinterpret_cast<std::uint32_t*>(codes + (first + c) * to.codes.pitch + slot * scale_width + 4 * lane) =
        words[c * turned_pitch + lane];
}

// 1 / scale of a group, by which a sum of products of its codes is multiplied; NaN where its amax is Inf.
__device__ float factor_of(float amax, Fp8Format format, bool exact) {
  return amax < static_cast<float>(INFINITY) ? 1 / fp8_scale(amax, format, exact) : static_cast<float>(NAN);
}

// factors(rows, columns) of a layout: 1 / scale of a group of lines and one of the depth; of a line; of a slot of a
// line; of a slot of 128 lines, 0 behind the last slot.
__device__ void make_factors(const Fp8Codes& of, const FactorLayout& layout, float* factors, unsigned block) {
  const std::uint32_t i = block * block_threads + threadIdx.x, columns = static_cast<std::uint32_t>(layout.columns);
  if (i >= static_cast<std::uint32_t>(layout.rows) * columns) return;
  const std::int64_t r = i / columns, c = i % columns;
  std::int64_t line_group = r, depth_group = c;
  if (layout.order != FactorOrder::groups) {
    const bool blocks = layout.order == FactorOrder::blocks, slots = layout.order == FactorOrder::slots;
    const std::int64_t line = blocks ? r * scale_width : c, slot = blocks ? c : slots ? r : 0;
    if (slot >= of.slots.first[3]) {
      factors[i * layout.each()] = 0;
      return;
    }
    line_group = of.lines.group_of(line);
    depth_group = of.slots.group_of(static_cast<std::int32_t>(slot));
  }
  const float amax = of.amax[line_group * of.line_stride + depth_group * of.depth_stride];
  factors[i * layout.each()] = factor_of(amax, of.format, of.exact);
}

// What the blocks of an operand make: its codes, then its factors.
struct Encoding {
  View<const bf16, 2> x;
  Fp8Codes to;
  std::uint8_t* codes;
  Seen seen;
  bool sums_rows;
  unsigned pieces;       // of a row; or tiles of a slot
  unsigned code_blocks;  // the blocks behind these make factors
  FactorLayout layout;
  float* factors;

  __device__ void run(unsigned block) const {
    if (block >= code_blocks) return make_factors(to, layout, factors, block - code_blocks);
    if (sums_rows) return encode_columns(x, to, codes, pieces, block);
    encode_rows(x, to, codes, seen, pieces, block);
  }
};

// Operands in the order of their blocks, which end at `end`; those behind the last have none.
struct Encodings {
  Encoding of[4];
  unsigned end[4];
};

__global__ void __launch_bounds__(block_threads) encode_kernel(Encodings all) {
  if (blockIdx.x < all.end[0]) return all.of[0].run(blockIdx.x);
  if (blockIdx.x < all.end[1]) return all.of[1].run(blockIdx.x - all.end[0]);
  if (blockIdx.x < all.end[2]) return all.of[2].run(blockIdx.x - all.end[1]);
  all.of[3].run(blockIdx.x - all.end[2]);
}

Fp8Codes codes_of(const Fp8Input& input, bool exact) {
  const ScaledOperand& operand = input.operand;
  const std::int64_t groups = operand.by_column.count;
  Fp8Codes to;
  to.lines = input.sums_rows ? operand.by_column : operand.by_row;
  to.slots = fp8_slots(input.sums_rows ? operand.by_row : operand.by_column);
  to.amax = input.amax.data;
  to.line_stride = input.sums_rows ? 1 : groups;
  to.depth_stride = input.sums_rows ? groups : 1;
  to.format = operand.format;
  to.exact = exact;
  const std::int64_t pitch = scale_width * to.slots.count(),
                     lines = input.sums_rows ? input.x.columns() : input.x.rows();
  require(lines * pitch <= input.memory.rows(), "codes don't fit their memory");
  to.codes = View<const std::uint8_t, 2>(input.memory.data, {{lines, pitch}});
  return to;
}

Encoding encoding_of(const Fp8Input& input, bool exact, CodeScaling scaling, View<float, 1> factors) {
  const Fp8Codes to = codes_of(input, exact);
  const std::int64_t lines = to.codes.rows(), slots = to.slots.count();
  const std::int64_t tiles = (lines + turned_columns - 1) / turned_columns,
                     pieces = (slots + warp_slots - 1) / warp_slots;
  constexpr int warps = block_threads / warp_lanes;
  std::int64_t blocks = input.sums_rows ? tiles * slots : (lines * pieces + warps - 1) / warps;
  if (input.made) blocks = 0;
  const FactorLayout layout = factor_layout(lines, to.lines, to.slots, scaling);
  require(input.seen.empty() || !input.sums_rows, "the largest magnitude is found of rows alone");
  require(layout.count() <= factors.rows(), "factors of codes don't fit their memory");
  return {input.x,
          to,
          input.memory.data,
          {input.seen.data, input.samples.data},
          input.sums_rows,
          static_cast<unsigned>(input.sums_rows ? tiles : pieces),
          static_cast<unsigned>(blocks),
          layout,
          factors.data};
}

std::int64_t blocks_of(const Encoding& e) {
  return e.code_blocks + (e.layout.rows * e.layout.columns + block_threads - 1) / block_threads;
}

Fp8Encoded encoded(const Encoding& e) {
  return {e.to, {e.factors, e.layout}};
}

}  // namespace

Array<CodeOperands, 2> fp8_encode(Stream& stream, std::span<const Fp8Input> operands, bool exact, CodeScaling scaling,
                                  View<float, 1> factors) {
  Encodings all{};
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < std::size(all.of); ++i) {
    if (i < operands.size()) {
      all.of[i] = encoding_of(operands[i], exact, scaling, factors);
      factors = factors.slice(all.of[i].layout.count(), factors.rows());
      blocks += blocks_of(all.of[i]);
    }
    all.end[i] = static_cast<unsigned>(blocks);
  }
  if (blocks > 0) launch(stream, "codes of operands", encode_kernel, {blocks, block_threads}, all);
  return {{{encoded(all.of[0]), encoded(all.of[1])}, {encoded(all.of[2]), encoded(all.of[3])}}};
}

}  // namespace forge
