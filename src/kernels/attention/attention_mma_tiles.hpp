#pragma once

#include <cstdint>

#include "device/instructions.hpp"
#include "kernels/attention/attention_cuda.hpp"

// Work of a block of the tensor-core kernels on tiles of bf16 in shared memory. Four warps; a warp has whole rows
// of a product, 16 or 32 of them, so that a row's softmax stays within four of its lanes. Lane 4 g + t holds of every
// 16 x 8 of a product the rows g and g + 8, columns 2 t and 2 t + 1: d[2 i + e] is row g + 8 i, column 2 t + e.

namespace forge::attention_mma {

using namespace attention_detail;

constexpr int warps = 4, block_threads = 32 * warps;

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline int warp() {
  return static_cast<int>(threadIdx.x) / 32;
}

// Rows of `columns` values in chunks of 16 bytes. Chunk c of row r stands at place c xor (r mod 8): the eight rows of
// one chunk, which ldmatrix reads at once, lie in different banks.
template <int columns>
struct Tile {
  static_assert(columns % 64 == 0);
  static constexpr int chunks = columns / 8, row_bytes = 2 * columns;
  static constexpr int row_values = columns, next_64_columns = 64;  // from a row's chunk to the next row's chunk, …
  bf16* values;

  __device__ bf16* chunk(int row, int c) const { return values + row * columns + (c ^ (row & 7)) * 8; }
  // The lane's offset in the tile, for row `row` and chunks c, c + 2, …: of chunk c + 2 k this number xor 32 (k mod 4),
  // and 128 (k / 4). Rows further on by a multiple of 8 are that many rows of bytes away.
  __device__ static int lane_bytes(int row, int c) { return row * row_bytes + (c ^ (row & 7)) * 16; }
  __device__ const void* at(int lane_bytes, int k, int rows_on) const {
    return reinterpret_cast<const unsigned char*>(values) + (lane_bytes ^ 32 * (k % 4)) + 128 * (k / 4) +
           rows_on * row_bytes;
  }
};

// Two tiles that take turns, one behind the other.
template <int rows, int columns>
struct Stages {
  bf16* values;

  __device__ Tile<columns> operator[](int stage) const { return {values + stage * rows * columns}; }
};

// The rows of a tile from `row` on, a multiple of 8.
template <int columns>
__device__ Tile<columns> rows_from(const Tile<columns>& tile, int row) {
  return {tile.values + row * columns};
}

// One head of a tensor, from a row on.
struct HeadRows {
  const bf16* data;
  std::int64_t pitch;
  int columns;
  bool aligned;  // every row begins at a multiple of 16 bytes and has whole chunks

  __device__ HeadRows from(std::int64_t row) const { return {data + row * pitch, pitch, columns, aligned}; }
  __device__ HeadRows head(int h) const { return {data + h * columns, pitch, columns, aligned}; }
};

// Whether 16 bytes at a time reach every head of every row.
template <class T>
__device__ bool chunks_aligned(const View<T, 3>& x) {
  return (reinterpret_cast<std::uintptr_t>(x.data) % 16 | static_cast<std::uint64_t>(x.pitch) % 8 |
          static_cast<std::uint64_t>(x.extent(2)) % 8) == 0;
}
__device__ inline HeadRows head_rows(const View<const bf16, 3>& x, std::int64_t row, int head) {
  const int columns = static_cast<int>(x.extent(2));
  return {x.row(row) + head * columns, x.pitch, columns, chunks_aligned(x)};
}

// Starts copying rows [0, count) to a tile of `rows` rows; zeros behind them and behind their columns. The block: eight
// threads take 128 bytes of a row.
template <int rows, int columns, int threads, class T>
__device__ void load_tile(const HeadRows& from, int count, const T& to) {
  static_assert(rows % (threads / 8) == 0);
  int thread = static_cast<int>(threadIdx.x);
  compute_here(thread);
  const int first_row = thread / 8, first = thread % 8;
  bf16* place = to.chunk(first_row, first);
  if (from.aligned && count >= rows && from.columns == columns) {  // the rule: no instructions for places outside
    const bf16* source = from.data + first_row * from.pitch + 8 * first;
#pragma unroll
    for (int r = 0; r < rows; r += threads / 8) {
#pragma unroll
      for (int c = 0; c < columns; c += 64)
        copy_async_16(place + r * T::row_values + c / 64 * T::next_64_columns, source + c, 16);
      source += threads / 8 * from.pitch;
    }
    return;
  }
  if (from.aligned) {
    const bf16* source = from.data + first_row * from.pitch + 8 * first;
#pragma unroll 1
    for (int r = 0; r < rows; r += threads / 8) {
#pragma unroll
      for (int c = 0; c < columns; c += 64) {
        const bool inside = first_row + r < count && 8 * first + c < from.columns;
        copy_async_16(place + r * T::row_values + c / 64 * T::next_64_columns, inside ? source + c : from.data,
                      inside ? 16 : 0);
      }
      source += threads / 8 * from.pitch;
    }
    return;
  }
#pragma unroll 1
  for (int r = 0; r < rows; r += threads / 8)
#pragma unroll 1
    for (int c = 0; c < columns; c += 64)
#pragma unroll 1
      for (int e = 0; e < 8; ++e) {
        const bool inside = first_row + r < count && 8 * first + c + e < from.columns;
        place[r * T::row_values + c / 64 * T::next_64_columns + e] =
            inside ? from.data[(first_row + r) * from.pitch + 8 * first + c + e] : bf16(0.0f);
      }
}
template <int rows, int columns>
__device__ void load_rows(const HeadRows& from, int count, const Tile<columns>& to) {
  load_tile<rows, columns, block_threads>(from, count, to);
}

// ---- products, by warps
// ---------------------------------------------------------------------------------------------------------------------

// sum(16 m, 8 j) += a bᵀ over the columns of both tiles; a from row `row` on, b from its first.
template <int m, int j, int columns>
__device__ void add_product_of_rows(const Tile<columns>& a, int row, const Tile<columns>& b, float (&sum)[m][j][4]) {
  const int l = lane();
  const int of_a = a.lane_bytes(row + l % 16, l / 16), of_b = b.lane_bytes(l / 16 * 8 + l % 8, l / 8 % 2);
#pragma unroll
  for (int k = 0; k < columns / 16; ++k) {
    std::uint32_t x[m][4];
#pragma unroll
    for (int i = 0; i < m; ++i) load_matrices(x[i], a.at(of_a, k, 16 * i));
#pragma unroll
    for (int c = 0; c < j; c += 2) {
      std::uint32_t y[4];
      load_matrices(y, b.at(of_b, k, 8 * c));
      const std::uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add_bf16(sum[i][c], x[i], low);
        multiply_add_bf16(sum[i][c + 1], x[i], high);
      }
    }
  }
}

// The left factor of a product, (16 m, 16 k), from the registers of another one's result.
template <int m, int k>
struct Weights {
  std::uint32_t words[m][k][4];

  __device__ void set(int i, int tile, const float (&x)[4]) {
    words[i][tile / 2][tile % 2 * 2] = pack_bf16(x[0], x[1]);
    words[i][tile / 2][tile % 2 * 2 + 1] = pack_bf16(x[2], x[3]);
  }
};

template <int m, int j>
__device__ Weights<m, j / 2> as_weights(const float (&x)[m][j][4]) {
  Weights<m, j / 2> weights;
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int c = 0; c < j; ++c) weights.set(i, c, x[i][c]);
  return weights;
}

// sum(16 m, 8 j) += w x, x(16 k, 8 j) the first columns of a tile, or those that `shift` values on, a multiple of 64.
template <int m, int k, int j, int columns>
__device__ void add_product(const Weights<m, k>& w, Tile<columns> x, int shift, float (&sum)[m][j][4]) {
  x.values += shift;
  const int of_x = x.lane_bytes(lane() % 16, lane() / 16);
#pragma unroll
  for (int r = 0; r < k; ++r) {
#pragma unroll
    for (int c = 0; c < j; c += 2) {
      std::uint32_t y[4];
      load_matrices_transposed(y, x.at(of_x, c / 2, 16 * r));
      const std::uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add_bf16(sum[i][c], w.words[i][r], low);
        multiply_add_bf16(sum[i][c + 1], w.words[i][r], high);
      }
    }
  }
}

template <int m, int j>
__device__ void clear(float (&sum)[m][j][4]) {
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int c = 0; c < j; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][c][e] = 0;
}

// The sum over the four lanes that share a row.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Rows of a warp's result, times a factor each, to rows [0, count) of a head: columns [first, first + 8 j) of it. They
// go through the warp's own rows of a tile, from `row` on, and leave in pieces of 16 bytes.
template <int m, int j, class T>
__device__ void store_rows(const float (&sum)[m][j][4], const float (&factor)[m][2], const T& stage, int row,
                           const HeadRows& to, int first, int count) {
  static_assert(j <= T::chunks);
  const int l = lane(), g = l / 4, t = l % 4;
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int c = 0; c < j; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t pair =
            pack_bf16(factor[i][half] * sum[i][c][2 * half], factor[i][half] * sum[i][c][2 * half + 1]);
        *reinterpret_cast<std::uint32_t*>(stage.chunk(row + 16 * i + 8 * half + g, c) + 2 * t) = pair;
      }
  __syncwarp();
  for (int at = l; at < 16 * m * j; at += 32) {
    const int r = row + at / j, c = at % j, column = first + 8 * c;
    if (r >= count) continue;
    bf16* place = const_cast<bf16*>(to.data) + r * to.pitch + column;
    if (!to.aligned) {
      for (int e = 0; e < 8 && column + e < to.columns; ++e) place[e] = stage.chunk(r, c)[e];
    } else if (column < to.columns) {
      *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(stage.chunk(r, c));
    }
  }
}

}  // namespace forge::attention_mma
