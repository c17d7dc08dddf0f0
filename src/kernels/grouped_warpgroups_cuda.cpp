#include "device/instructions.hpp"
#include "device/warpgroup_bf16.hpp"
#include "kernels/grouped_tile.hpp"
#include "kernels/grouped_warpgroups.hpp"

namespace forge {

namespace {

// A block of two warpgroups has 128 rows and 256 columns of C, a warpgroup 64 of the rows. Slots of 64 of the depth of
// both operands come into shared memory in turn, two ahead of the one that is multiplied; the products of the slot
// before that one may still be running.
constexpr int block_threads = 256, tile_rows = group_tile, tile_columns = warpgroup_columns, slot = warpgroup_depth;
constexpr int stages = 4, ahead = 2, a_bytes = tile_rows * slot * 2, b_bytes = tile_columns * slot * 2;
constexpr unsigned alignment = 1024;
constexpr std::size_t shared_bytes = stages * (a_bytes + b_bytes) + alignment;
using Sums = float[tile_columns / 8][4];

struct alignas(16) Four {
  float values[4];
};
struct alignas(8) Pair {
  float low, high;
};
struct alignas(16) Words {
  std::uint32_t values[4];
};

__device__ int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ int warp() {
  return static_cast<int>(threadIdx.x) / 32;
}

__device__ unsigned char* tile_memory() {
  unsigned char* memory = dynamic_shared();
  const auto beyond = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(memory) % alignment);
  return memory + (beyond > 0 ? alignment - beyond : 0);
}

// An operand's lines of a tile: rows of the depth's values, or rows of the depth that have a value of each line.
template <bool depth_major, int tile>
struct Operand {
  const bf16* data;  // the tile's first line, at the depth's first place
  std::int64_t pitch;
  int lines, depth;

  // Starts copying a slot; zeros behind the last line and the end of the depth. Eight threads take 128 bytes of a row.
  __device__ void load(int number, unsigned char* to) const {
    constexpr int rows = depth_major ? tile : slot, width = depth_major ? slot : tile;
    const int first = static_cast<int>(threadIdx.x) / 8, chunk = static_cast<int>(threadIdx.x) % 8,
              done = number * slot;
    const int row_end = depth_major ? lines : depth - done, column_end = depth_major ? depth - done : lines;
    const bf16* source = depth_major ? data + done : data + done * pitch;
    unsigned char* place = to + first * 128 + (chunk ^ (first & 7)) * 16;
#pragma unroll
    for (int r = 0; r < rows; r += block_threads / 8)
#pragma unroll
      for (int c = 0; c < width; c += 64) {
        const int row = first + r, column = 8 * chunk + c;
        const bool inside = row < row_end && column < column_end;
        copy_async_16(place + c / 64 * warpgroup_panel_bytes + r * 128, inside ? source + row * pitch + column : data,
                      inside ? 16 : 0);
      }
  }
};

// sum = the block's tile of A B over their depth. At the end nobody reads shared memory any more.
template <bool a_depth_major, bool b_depth_major>
__device__ void multiply(const Operand<a_depth_major, tile_rows>& a, const Operand<b_depth_major, tile_columns>& b,
                         unsigned char* memory, Sums& sum) {
  const int slots = pieces_of(a.depth, slot);
  const auto load = [&](int number) {
    if (number < slots) {
      unsigned char* to = memory + number % stages * (a_bytes + b_bytes);
      a.load(number, to);
      b.load(number, to + a_bytes);
    }
    copy_async_commit();
  };
  WarpgroupProducts products;
  for (int number = 0; number < ahead; ++number) load(number);
  for (int number = 0; number < slots; ++number) {
    copy_async_wait<ahead - 1>();
    publish_to_warpgroups();
    __syncthreads();  // the slot is there, and all have the products of the second before it
    unsigned char* here = memory + number % stages * (a_bytes + b_bytes);
    begin_warpgroup_product<a_depth_major, b_depth_major>(products, sum, here + warp() / 4 * warpgroup_panel_bytes,
                                                          here + a_bytes);
    load(number + ahead);
    wait_for_warpgroup_products<1>(products, sum);
  }
  copy_async_wait<0>();
  wait_for_warpgroup_products<0>(products, sum);
  __syncthreads();
}

// A warp's 16 rows of a tile of bf16 go through its part of shared memory, and leave in whole rows, 16 bytes a lane.
__device__ void store_tile(const Sums& sum, unsigned char* memory, View<bf16, 2> c, const GroupTile& at) {
  const int l = lane(), row = warp() * 16;
  unsigned char* stage = memory + row * tile_columns * 2;
#pragma unroll
  for (int j = 0; j < tile_columns / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = l / 4 + 8 * i;
      *reinterpret_cast<std::uint32_t*>(stage + r * tile_columns * 2 + (j ^ (r & 7)) * 16 + l % 4 * 4) =
          pack_bf16(sum[j][2 * i], sum[j][2 * i + 1]);
    }
  __syncwarp();
  const std::int64_t column = at.column + 8 * l;
  if (column >= c.columns()) return;
#pragma unroll
  for (int r = 0; r < 16; ++r)
    if (at.row + row + r < at.rows)
      *reinterpret_cast<Words*>(c.row(at.begin + at.row + row + r) + column) =
          *reinterpret_cast<const Words*>(stage + r * tile_columns * 2 + (l ^ (r & 7)) * 16);
}

// to(rows, columns) = or += the block's tile, whose first element is `to`'s: a warp's 16 rows, by way of shared memory,
// 16 bytes a lane; those of four rows are read before they are written.
__device__ void add_tile(const Sums& sum, unsigned char* memory, float* to, std::int64_t pitch, int rows, int columns,
                         bool adds) {
  const int l = lane(), row = warp() * 16;
  unsigned char* stage = memory + row * tile_columns * 4;
#pragma unroll
  for (int j = 0; j < tile_columns / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = l / 4 + 8 * i, chunk = (2 * j + l % 4 / 2) ^ 2 * (r & 3);
      *reinterpret_cast<Pair*>(stage + r * tile_columns * 4 + chunk * 16 + l % 2 * 8) = {sum[j][2 * i],
                                                                                         sum[j][2 * i + 1]};
    }
  __syncwarp();
#pragma unroll 1
  for (int first = 0; first < 16; first += 4) {
    Four old[8] = {};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int r = first + n / 2, chunk = l + 32 * (n % 2);
      if (adds && row + r < rows && 4 * chunk < columns)
        old[n] = *reinterpret_cast<const Four*>(to + (row + r) * pitch + 4 * chunk);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int r = first + n / 2, chunk = l + 32 * (n % 2);
      if (row + r >= rows || 4 * chunk >= columns) continue;
      Four add = *reinterpret_cast<const Four*>(stage + r * tile_columns * 4 + (chunk ^ 2 * (r & 3)) * 16);
#pragma unroll
      for (int e = 0; e < 4; ++e) add.values[e] += old[n].values[e];
      *reinterpret_cast<Four*>(to + (row + r) * pitch + 4 * chunk) = add;
    }
  }
}

template <bool weights_by_rows>
__global__ void __launch_bounds__(block_threads, 1)
    warpgroup_rows_kernel(RowGroups groups, View<const bf16, 2> a, View<const bf16, 3> b, View<bf16, 2> c) {
  const std::int64_t K = a.columns(), N = c.columns();
  GroupTile at = find_tile(groups, static_cast<int>(blockIdx.x), pieces_of(N, tile_columns));
  if (at.group < 0) return;
  at.column *= tile_columns / group_tile;
  const int depth = static_cast<int>(K);
  const std::int64_t width = weights_by_rows ? K : N;
  const Operand<true, tile_rows> rows{a.row(at.begin + at.row), a.pitch, at.rows - at.row, depth};
  const Operand<weights_by_rows, tile_columns> weights{b.row(at.group) + at.column * (weights_by_rows ? width : 1),
                                                       width, static_cast<int>(N) - at.column, depth};
  unsigned char* memory = tile_memory();
  Sums sum = {};
  multiply(rows, weights, memory, sum);
  store_tile(sum, memory, c, at);
}

// Tiles of C by group, then by bands of 16 tiles of rows, then by columns, then by rows, so that blocks that run
// together read few lines of both operands. Its sums are asked for before the products, and added to behind them.
__global__ void __launch_bounds__(block_threads, 1)
    warpgroup_sums_kernel(RowGroups groups, View<const bf16, 2> a, View<const bf16, 2> b, bool adds, View<float, 3> c) {
  const std::int64_t M = c.extent(1), N = c.extent(2);
  const int row_tiles = pieces_of(M, tile_rows), column_tiles = pieces_of(N, tile_columns),
            all = row_tiles * column_tiles;
  const int group = static_cast<int>(blockIdx.x) / all, inside = static_cast<int>(blockIdx.x) % all;
  const std::int64_t begin = groups.begin_of(group);
  const int depth = static_cast<int>(groups.begin_of(group + 1) - begin);
  if (depth == 0 && adds) return;
  constexpr int band_tiles = 16;
  const int band = inside / (band_tiles * column_tiles), in_band = inside % (band_tiles * column_tiles);
  const int left_tiles = row_tiles - band * band_tiles, high = left_tiles < band_tiles ? left_tiles : band_tiles;
  const int row = (band * band_tiles + in_band % high) * tile_rows, column = in_band / high * tile_columns;
  const int rows = static_cast<int>(M) - row, columns = static_cast<int>(N) - column;
  float* to = c.row(group) + row * N + column;
  for (int line = static_cast<int>(threadIdx.x); line < tile_rows * tile_columns / 32; line += block_threads)
    if (adds && line / 8 < rows && line % 8 * 32 < columns) prefetch_line(to + line / 8 * N + line % 8 * 32);
  const Operand<false, tile_rows> left{a.row(begin) + row, a.pitch, rows, depth};
  const Operand<false, tile_columns> right{b.row(begin) + column, b.pitch, columns, depth};
  unsigned char* memory = tile_memory();
  Sums sum = {};
  if (depth > 0) multiply(left, right, memory, sum);
  add_tile(sum, memory, to, N, rows, columns, adds);
}

}  // namespace

bool grouped_rows_by_warpgroups(Stream& stream, const RowGroups& groups, bool weights_by_rows, View<const bf16, 2> a,
                                View<const bf16, 3> b, View<bf16, 2> c) {
  if (!in_pieces(a.data, a.pitch, a.columns(), 8) || !in_pieces(b.data, b.pitch, b.extent(2), 8) ||
      !in_pieces(c.data, c.pitch, c.columns(), 8) || !device_has_warpgroups())
    return false;
  const LaunchShape shape{most_group_tiles(groups, c.rows(), c.columns(), tile_columns), block_threads, shared_bytes};
  launch(stream, "grouped rows (warpgroups)",
         weights_by_rows ? warpgroup_rows_kernel<true> : warpgroup_rows_kernel<false>, shape, groups, a, b, c);
  return true;
}

bool grouped_sums_by_warpgroups(Stream& stream, const RowGroups& groups, View<const bf16, 2> a, View<const bf16, 2> b,
                                bool adds, View<float, 3> c) {
  if (!in_pieces(a.data, a.pitch, a.columns(), 8) || !in_pieces(b.data, b.pitch, b.columns(), 8) ||
      !in_pieces(c.data, c.pitch, c.extent(2), 4) || !device_has_warpgroups())
    return false;
  const LaunchShape shape{groups.count * pieces_of(c.extent(1), tile_rows) * pieces_of(c.extent(2), tile_columns),
                          block_threads, shared_bytes};
  launch(stream, "grouped sums (warpgroups)", warpgroup_sums_kernel, shape, groups, a, b, adds, c);
  return true;
}

}  // namespace forge
