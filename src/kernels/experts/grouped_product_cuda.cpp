#include <type_traits>

#include "core/error.hpp"
#include "kernels/attention/attention_mma_tiles.hpp"
#include "kernels/experts/grouped_product.hpp"
#include "kernels/experts/grouped_tile.hpp"

namespace forge {

namespace {

using namespace attention_mma;

// A block of four warps has 128 rows and 128 columns of C, a warp 64 of each. Slots of 64 of the depth of both operands
// come into shared memory in turn, two ahead of the one that is multiplied.
constexpr int tile = group_tile, slot = 64, stages = 3, part = tile / 2;
constexpr int operand_values = tile * slot;
constexpr std::size_t shared_bytes = stages * 2 * operand_values * sizeof(bf16);
using Sums = float[part / 16][part / 8][4];

// Rows of a matrix from (row, column) on.
__device__ HeadRows rows_of(const bf16* data, std::int64_t pitch, std::int64_t columns, std::int64_t row,
                            std::int64_t column) {
  const bool aligned = (reinterpret_cast<std::uintptr_t>(data) % 16 | static_cast<std::uint64_t>(pitch) % 8 |
                        static_cast<std::uint64_t>(columns) % 8) == 0;
  return {data + row * pitch + column, pitch, static_cast<int>(columns - column), aligned};
}

// An operand's slots of a tile of its lines, in shared memory: lines by rows of 64 of the depth, or rows of the depth
// by 128 lines.
template <bool lines_are_rows>
struct Operand {
  static constexpr int rows = lines_are_rows ? tile : slot, columns = lines_are_rows ? slot : tile;

  HeadRows from;  // the tile's lines, from the depth's first on
  int lines, depth;

  // Starts copying a slot; zeros behind the last line and the end of the depth.
  __device__ void load(int number, bf16* to) const {
    const int done = number * slot;
    if constexpr (lines_are_rows)
      load_rows<rows>({from.data + done, from.pitch, depth - done, from.aligned}, lines, Tile<columns>{to});
    else
      load_rows<rows>(from.from(done), depth - done, Tile<columns>{to});
  }
};

// sum(64, 64) += a b of this warp's lines over a slot. a: fragments of 16 lines by 16 of the depth; b: of 16 of the
// depth by 16 lines. Where the depth has the rows, the matrices are transposed as they are read.
template <bool a_lines, bool b_lines>
__device__ void multiply_slot(bf16* of_a, bf16* of_b, Sums& sum) {
  const int l = lane(), row = warp() / 2 * part, column = warp() % 2 * part;
  const Tile<Operand<a_lines>::columns> a{of_a + (a_lines ? row * slot : row)};
  const Tile<Operand<b_lines>::columns> b{of_b + (b_lines ? column * slot : column)};
  const int first = a_lines ? a.lane_bytes(l % 16, l / 16) : a.lane_bytes(l / 16 * 8 + l % 8, l / 8 % 2);
  const int second = b_lines ? b.lane_bytes(l / 16 * 8 + l % 8, l / 8 % 2) : b.lane_bytes(l % 16, l / 16);
#pragma unroll
  for (int k = 0; k < slot / 16; ++k) {
    std::uint32_t x[part / 16][4];
#pragma unroll
    for (int i = 0; i < part / 16; ++i)
      if constexpr (a_lines)
        load_matrices(x[i], a.at(first, k, 16 * i));
      else
        load_matrices_transposed(x[i], a.at(first, i, 16 * k));
#pragma unroll
    for (int c = 0; c < part / 8; c += 2) {
      std::uint32_t y[4];
      if constexpr (b_lines)
        load_matrices(y, b.at(second, k, 8 * c));
      else
        load_matrices_transposed(y, b.at(second, c / 2, 16 * k));
      const std::uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
#pragma unroll
      for (int i = 0; i < part / 16; ++i) {
        multiply_add_bf16(sum[i][c], x[i], low);
        multiply_add_bf16(sum[i][c + 1], x[i], high);
      }
    }
  }
}

// The block's tile of A B over their depth.
template <bool a_lines, bool b_lines>
__device__ void multiply(const Operand<a_lines>& a, const Operand<b_lines>& b, bf16* memory, Sums& sum) {
  const int slots = pieces_of(a.depth, slot);
  const bool computes = warp() / 2 * part < a.lines && warp() % 2 * part < b.lines;  // its part has lines of both
  const auto load = [&](int number) {
    if (number < slots) {
      bf16* to = memory + number % stages * 2 * operand_values;
      a.load(number, to);
      b.load(number, to + operand_values);
    }
    copy_async_commit();
  };
  for (int number = 0; number < stages - 1; ++number) load(number);
  for (int number = 0; number < slots; ++number) {
    copy_async_wait<stages - 2>();
    __syncthreads();  // the slot is there, and the one before it is read
    load(number + stages - 1);
    bf16* here = memory + number % stages * 2 * operand_values;
    if (computes) multiply_slot<a_lines, b_lines>(here, here + operand_values, sum);
  }
  copy_async_wait<0>();
  __syncthreads();
}

// A warp's part of a tile of bf16 goes through shared memory, which nobody reads any more, and leaves in pieces of 16
// bytes.
__device__ void store_part(const Sums& sum, bf16* memory, const HeadRows& to, int column, int rows) {
  float factors[part / 16][2];
#pragma unroll
  for (int i = 0; i < part / 16; ++i) factors[i][0] = factors[i][1] = 1;
  const Tile<part> stage{memory + warp() % 2 * tile * part};
  store_rows(sum, factors, stage, warp() / 2 * part, to, column + warp() % 2 * part, rows);
}

// sum ← alpha sum + a warp's part of `old`(rows, columns), whose first element is the tile's; nullptr: of nothing. The
// lanes of the warp that reads an element are those that write it, behind a barrier.
__device__ void scale_part(Sums& sum, float alpha, const bf16* old, std::int64_t pitch, int rows, int columns) {
  const int row = warp() / 2 * part + lane() / 4, column = warp() % 2 * part + lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < part / 16; ++i)
#pragma unroll
    for (int c = 0; c < part / 8; ++c)
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const int r = row + 16 * i + 8 * (at / 2), j = column + 8 * c + at % 2;
        const bool there = old && r < rows && j < columns;
        sum[i][c][at] = alpha * sum[i][c][at] + (there ? static_cast<float>(old[r * pitch + j]) : 0.0f);
      }
}

struct alignas(8) Pair {
  float low, high;
};

// to(rows, columns) = or += a warp's part of a tile, whose first element is `to`'s.
__device__ void add_part(const Sums& sum, float* to, std::int64_t pitch, std::int64_t rows, std::int64_t columns,
                         bool adds) {
  const int row = warp() / 2 * part + lane() / 4, column = warp() % 2 * part + lane() % 4 * 2;
  const bool pairs = (reinterpret_cast<std::uintptr_t>(to) % 8 | static_cast<std::uint64_t>(pitch) % 2) == 0;
#pragma unroll
  for (int i = 0; i < part / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 16 * i + 8 * half;
      if (r >= rows) continue;
      float* line = to + r * pitch;
#pragma unroll
      for (int c = 0; c < part / 8; ++c) {
        const int at = column + 8 * c;
        const float low = sum[i][c][2 * half], high = sum[i][c][2 * half + 1];
        if (pairs && at + 1 < columns) {
          auto* pair = reinterpret_cast<Pair*>(line + at);
          const Pair old = adds ? *pair : Pair{0, 0};
          *pair = {old.low + low, old.high + high};
        } else {
          if (at < columns) line[at] = (adds ? line[at] : 0) + low;
          if (at + 1 < columns) line[at + 1] = (adds ? line[at + 1] : 0) + high;
        }
      }
    }
}

template <bool weights_by_rows>
__global__ void __launch_bounds__(block_threads, 2)
    grouped_rows_kernel(RowGroups groups, View<const bf16, 2> a, View<const bf16, 3> b, View<bf16, 2> c, float alpha,
                        bool adds) {
  const std::int64_t K = a.columns(), N = c.columns();
  const GroupTile at = find_tile(groups, static_cast<int>(blockIdx.x), pieces_of(N, tile));
  if (at.group < 0) return;
  auto* memory = reinterpret_cast<bf16*>(dynamic_shared());
  const int depth = static_cast<int>(K);
  const Operand<true> rows{rows_of(a.data, a.pitch, K, at.begin + at.row, 0), at.rows - at.row, depth};
  const int row = weights_by_rows ? at.column : 0, column = weights_by_rows ? 0 : at.column;
  const std::int64_t width = weights_by_rows ? K : N;
  const Operand<weights_by_rows> weights{rows_of(b.row(at.group), width, width, row, column),
                                         static_cast<int>(N) - at.column, depth};
  Sums sum = {};
  multiply(rows, weights, memory, sum);
  if (alpha != 1 || adds)
    scale_part(sum, alpha, adds ? c.row(at.begin + at.row) + at.column : nullptr, c.pitch, at.rows - at.row,
               static_cast<int>(N) - at.column);
  store_part(sum, memory, rows_of(c.data, c.pitch, N, at.begin + at.row, 0), at.column, at.rows - at.row);
}

// Tiles of C by group, then by columns, then by rows.
__global__ void __launch_bounds__(block_threads, 2)
    grouped_sums_kernel(RowGroups groups, View<const bf16, 2> a, View<const bf16, 2> b, bool adds, View<float, 3> c) {
  const std::int64_t M = c.extent(1), N = c.extent(2);
  const int row_tiles = pieces_of(M, tile), all = row_tiles * pieces_of(N, tile);
  const int group = static_cast<int>(blockIdx.x) / all, inside = static_cast<int>(blockIdx.x) % all;
  const std::int64_t begin = groups.begin_of(group);
  const int depth = static_cast<int>(groups.begin_of(group + 1) - begin);
  if (depth == 0 && adds) return;
  const int row = inside % row_tiles * tile, column = inside / row_tiles * tile;
  const Operand<false> left{rows_of(a.data, a.pitch, M, begin, row), static_cast<int>(M) - row, depth};
  const Operand<false> right{rows_of(b.data, b.pitch, N, begin, column), static_cast<int>(N) - column, depth};
  Sums sum = {};
  if (depth > 0) multiply(left, right, reinterpret_cast<bf16*>(dynamic_shared()), sum);
  add_part(sum, c.row(group) + row * N + column, N, M - row, N - column, adds);
}

}  // namespace

void grouped_rows(Stream& stream, const RowGroups& groups, bool weights_by_rows, View<const bf16, 2> a,
                  View<const bf16, 3> b, View<bf16, 2> c, double alpha, bool adds) {
  require(groups.count == b.rows() && a.rows() == c.rows() && b.extent(weights_by_rows ? 1 : 2) == c.columns() &&
              b.extent(weights_by_rows ? 2 : 1) == a.columns(),
          "the extents of a grouped product do not match");
  const LaunchShape shape{most_group_tiles(groups, c.rows(), c.columns()), block_threads, shared_bytes};
  if (shape.blocks == 0) return;
  launch(stream, "grouped rows (tensor cores)",
         weights_by_rows ? grouped_rows_kernel<true> : grouped_rows_kernel<false>, shape, groups, a, b, c,
         static_cast<float>(alpha), adds);
}

void grouped_sums(Stream& stream, const RowGroups& groups, View<const bf16, 2> a, View<const bf16, 2> b, bool adds,
                  View<float, 3> c) {
  require(groups.count == c.rows() && a.rows() == b.rows() && a.columns() == c.extent(1) && b.columns() == c.extent(2),
          "the extents of a grouped product do not match");
  const LaunchShape shape{groups.count * pieces_of(c.extent(1), tile) * pieces_of(c.extent(2), tile), block_threads,
                          shared_bytes};
  if (shape.blocks == 0 || (a.rows() == 0 && adds)) return;
  launch(stream, "grouped sums (tensor cores)", grouped_sums_kernel, shape, groups, a, b, adds, c);
}

}  // namespace forge
