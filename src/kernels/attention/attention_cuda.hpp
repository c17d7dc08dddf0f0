#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_mask.hpp"
#include "kernels/attention/attention_sizes.hpp"
#include "kernels/rows/math.hpp"

// Work of a block of attention_cuda.cpp on tiles in shared memory: products by plain multiply-adds. Its 256 threads
// stand as 16 x 16 over a tile. Thread (ty, tx) has rows ty + 16 r and columns tx + 16 c of every product, so the 16
// threads that share a row are neighbours in one warp, and neighbours read neighbouring columns.

namespace forge::attention_detail {

constexpr int side = 16;
constexpr int threads = side * side;

template <class T>
struct Problem {
  AttentionSizes n;
  AttentionShape shape;
  AttentionMask mask;
  View<const T, 3> q, k, v;
};

template <class T>
struct Gradients {
  View<const T, 3> d_o;
  View<const acc_t<T>, 2> lse, delta;
  View<T, 3> d_q, d_k, d_v;
};

// Rows of shared memory have an odd length: then 16 threads that read one column hit different banks.
FORGE_HD constexpr int row_length(std::int64_t columns) {
  return static_cast<int>(columns) | 1;
}

// ---- a block's work on tiles
// -------------------------------------------------------------------------------------

// to(r, c) = factor · from(r, c), 0 for rows from `rows` on.
template <int tile, class T, class A>
__device__ void load_tile(const T* from, std::int64_t pitch, int rows, int columns, A factor, A* to) {
  const int ld = row_length(columns);
  for (int r = threadIdx.x / 32; r < tile; r += threads / 32)
    for (int c = threadIdx.x % 32; c < columns; c += 32)
      to[r * ld + c] = r < rows ? factor * static_cast<A>(from[r * pitch + c]) : A(0);
}

// to = a bᵀ, both (tile, columns).
template <int parts, class A>
__device__ void product_of_rows(const A* a, const A* b, int columns, A (&to)[parts][parts]) {
  const int ty = threadIdx.x / side, tx = threadIdx.x % side, ld = row_length(columns);
#pragma unroll
  for (int r = 0; r < parts; ++r)
#pragma unroll
    for (int c = 0; c < parts; ++c) to[r][c] = A(0);
  for (int d = 0; d < columns; ++d) {
    A x[parts], y[parts];
#pragma unroll
    for (int r = 0; r < parts; ++r) x[r] = a[(ty + side * r) * ld + d];
#pragma unroll
    for (int c = 0; c < parts; ++c) y[c] = b[(tx + side * c) * ld + d];
#pragma unroll
    for (int r = 0; r < parts; ++r)
#pragma unroll
      for (int c = 0; c < parts; ++c) to[r][c] += x[r] * y[c];
  }
}

// sum += w x, or wᵀ x: w (tile, tile), x (tile, columns). Columns from `columns` on stay as they are.
template <bool transposed, int parts, int column_parts, class A>
__device__ void add_product(const A* w, const A* x, int columns, A (&sum)[parts][column_parts]) {
  constexpr int tile = parts * side, ld_w = tile + 1;
  const int ty = threadIdx.x / side, tx = threadIdx.x % side, ld = row_length(columns);
  for (int j = 0; j < tile; ++j) {
    A weight[parts];
#pragma unroll
    for (int r = 0; r < parts; ++r) {
      const int row = ty + side * r;
      weight[r] = transposed ? w[j * ld_w + row] : w[row * ld_w + j];
    }
#pragma unroll
    for (int c = 0; c < column_parts; ++c) {
      const int column = tx + side * c;
      if (column >= columns) continue;
      const A value = x[j * ld + column];
#pragma unroll
      for (int r = 0; r < parts; ++r) sum[r][c] += weight[r] * value;
    }
  }
}

template <int parts, int column_parts, class T, class A>
__device__ void store_tile(const A (&sum)[parts][column_parts], const A (&factor)[parts], int rows, int columns, T* to,
                           std::int64_t pitch) {
  const int ty = threadIdx.x / side, tx = threadIdx.x % side;
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    const int row = ty + side * r;
#pragma unroll
    for (int c = 0; c < column_parts; ++c) {
      const int column = tx + side * c;
      if (row < rows && column < columns) to[row * pitch + column] = static_cast<T>(factor[r] * sum[r][c]);
    }
  }
}

// The span of rows [begin, begin + count), count <= 256; every thread gets it. `shared`: 4 integers.
inline __device__ AttentionSpan block_span(const View<const std::int32_t, 1>& positions,
                                           const View<const std::int32_t, 1>& documents, std::int64_t begin, int count,
                                           int* shared) {
  __syncthreads();
  if (threadIdx.x < 4) shared[threadIdx.x] = threadIdx.x % 2 == 0 ? INT32_MAX : INT32_MIN;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < count) {
    const std::int64_t row = begin + threadIdx.x;
    const std::int32_t document = documents.empty() ? 0 : documents[row];
    atomicMin(shared + 0, positions[row]);
    atomicMax(shared + 1, positions[row]);
    atomicMin(shared + 2, document);
    atomicMax(shared + 3, document);
  }
  __syncthreads();
  AttentionSpan span;
  span.first_position = shared[0];
  span.last_position = shared[1];
  span.first_document = shared[2];
  span.last_document = shared[3];
  return span;
}

// A pair of tiles: queries [row_q, row_q + rows), keys [row_k, row_k + keys).
template <class T>
struct Pair {
  const Problem<T>& p;
  std::int64_t row_q, row_k;
  int rows, keys;
  std::uint64_t dropout_key;
  Visibility seen;

  // Whether query i of the tile sees key j.
  __device__ bool visible(int i, int j) const {
    if (i >= rows || j >= keys) return false;
    if (seen == Visibility::all) return true;
    const AttentionMask& m = p.mask;
    const bool documents = !m.document_q.empty();
    return attention_visible(m.position_q[row_q + i], m.position_k[row_k + j], documents ? m.document_q[row_q + i] : 0,
                             documents ? m.document_k[row_k + j] : 0, m.window);
  }
  // The factor of a visible probability with dropout.
  __device__ acc_t<T> kept(int i, int j) const {
    using A = acc_t<T>;
    if (p.shape.dropout == 0) return A(1);
    const bool stays = attention_kept(dropout_key, p.shape.samples[row_q + i], p.mask.position_q[row_q + i],
                                      p.mask.position_k[row_k + j], p.shape.dropout);
    return stays ? static_cast<A>(1 / (1 - p.shape.dropout)) : A(0);
  }
};

// Over the 16 threads of a row.
template <class A>
__device__ A row_sum(A x) {
  for (int offset = side / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset, side);
  return x;
}
template <class A>
__device__ A row_max(A x) {
  for (int offset = side / 2; offset > 0; offset /= 2) {
    const A y = __shfl_xor_sync(0xffffffffu, x, offset, side);
    x = y > x ? y : x;
  }
  return x;
}

// c tanh(s / c), or s where c is 0.
template <class A>
__device__ A capped(A s, A c) {
  return c > A(0) ? c * math::tanh(s / c) : s;
}
// Its derivative, from its value.
template <class A>
__device__ A slope_of_capped(A value, A c) {
  return c > A(0) ? A(1) - (value / c) * (value / c) : A(1);
}

template <class A>
__device__ A infinity() {
  return static_cast<A>(INFINITY);
}

}  // namespace forge::attention_detail
