#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cuda_check.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_mask.hpp"
#include "kernels/attention_sizes.hpp"

// Attention of the CUDA build for every type and head size: tiles in shared memory, products by plain multiply-adds.
// Forward and d_q: one block per sequence, head and tile of queries. d_k and d_v: one block per sequence, head of keys
// and tile of keys, over all queries that read it. The backward computes the probabilities twice, so that no two blocks
// add to the same number: no atomics, and the same bits in every run.
//
// 256 threads stand as 16 x 16 over a tile. Thread (ty, tx) has rows ty + 16 r and columns tx + 16 c of every product,
// so the 16 threads that share a row are neighbours in one warp, and neighbours read neighbouring columns.

namespace forge {

namespace {

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
FORGE_HD constexpr int row_length(std::int64_t columns) { return static_cast<int>(columns) | 1; }

// ---- what a block does with tiles -------------------------------------------------------------------------------------

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

// Of rows [begin, begin + count), count <= 256; every thread gets it. `shared`: 4 integers.
__device__ AttentionSpan block_span(const View<const std::int32_t, 1>& positions,
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
    return attention_visible(m.position_q[row_q + i], m.position_k[row_k + j],
                             documents ? m.document_q[row_q + i] : 0, documents ? m.document_k[row_k + j] : 0,
                             m.window);
  }
  // What dropout multiplies a visible probability by.
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

template <class A>
__device__ A infinity() {
  return static_cast<A>(INFINITY);
}

extern __shared__ __align__(16) unsigned char shared_bytes[];

// ---- forward ----------------------------------------------------------------------------------------------------------

template <class T, int tile, int head>
__global__ void __launch_bounds__(threads) forward_kernel(Problem<T> p, View<T, 3> o, View<acc_t<T>, 2> lse) {
  using A = acc_t<T>;
  constexpr int parts = tile / side, column_parts = head / side;
  const AttentionSizes& n = p.n;
  const std::int64_t q_tiles = (n.Tq + tile - 1) / tile;
  const std::int64_t first = (q_tiles - 1 - blockIdx.x % q_tiles) * tile;  // the longest blocks first
  const std::int64_t h = blockIdx.x / q_tiles % n.H, b = blockIdx.x / q_tiles / n.H, kv = h / n.group();
  const int D = static_cast<int>(n.D), Dv = static_cast<int>(n.Dv);
  const int ty = threadIdx.x / side, tx = threadIdx.x % side;

  __shared__ int span_memory[4];
  A* q = reinterpret_cast<A*>(shared_bytes);
  A* k_or_v = q + tile * row_length(D);
  A* weights = k_or_v + tile * row_length(D > Dv ? D : Dv);

  Pair<T> at{p, b * n.Tq + first, 0, static_cast<int>(min(n.Tq - first, std::int64_t{tile})), 0,
             attention_dropout_key(p.shape.dropout_key, p.shape.first_head + h), Visibility::none};
  load_tile<tile>(p.q.row(at.row_q) + h * D, p.q.pitch, at.rows, D, static_cast<A>(p.shape.scale), q);
  const AttentionSpan span_q = block_span(p.mask.position_q, p.mask.document_q, at.row_q, at.rows, span_memory);

  A sum[parts][column_parts], largest[parts], total[parts];
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    largest[r] = -infinity<A>();
    total[r] = A(0);
#pragma unroll
    for (int c = 0; c < column_parts; ++c) sum[r][c] = A(0);
  }

  for (std::int64_t j = 0; j < n.Tk; j += tile) {
    at.row_k = b * n.Tk + j;
    at.keys = static_cast<int>(min(n.Tk - j, std::int64_t{tile}));
    const AttentionSpan span_k = block_span(p.mask.position_k, p.mask.document_k, at.row_k, at.keys, span_memory);
    at.seen = attention_visibility(span_q, span_k, p.mask.window);
    if (at.seen == Visibility::none) continue;
    load_tile<tile>(p.k.row(at.row_k) + kv * D, p.k.pitch, at.keys, D, A(1), k_or_v);
    __syncthreads();
    A s[parts][parts];
    product_of_rows(q, k_or_v, D, s);
#pragma unroll
    for (int r = 0; r < parts; ++r) {
      const int row = ty + side * r;
      A peak = largest[r];
#pragma unroll
      for (int c = 0; c < parts; ++c) {
        if (!at.visible(row, tx + side * c)) s[r][c] = -infinity<A>();
        peak = s[r][c] > peak ? s[r][c] : peak;
      }
      peak = row_max(peak);
      const A shift = peak == -infinity<A>() ? A(0) : peak;  // nothing seen yet: exp(−Inf − 0) = 0
      const A keep = exp(largest[r] - shift);
      A row_total = A(0);
#pragma unroll
      for (int c = 0; c < parts; ++c) {
        const int column = tx + side * c;
        A weight = exp(s[r][c] - shift);
        row_total += weight;
        if (p.shape.dropout > 0 && row < at.rows && column < at.keys) weight *= at.kept(row, column);
        weights[row * (tile + 1) + column] = weight;
      }
      total[r] = keep * total[r] + row_sum(row_total);
      largest[r] = peak;
#pragma unroll
      for (int c = 0; c < column_parts; ++c) sum[r][c] *= keep;
    }
    __syncthreads();
    load_tile<tile>(p.v.row(at.row_k) + kv * Dv, p.v.pitch, at.keys, Dv, A(1), k_or_v);
    __syncthreads();
    add_product<false>(weights, k_or_v, Dv, sum);
  }

  A factor[parts];
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    const int row = ty + side * r;
    factor[r] = total[r] == A(0) ? A(0) : A(1) / total[r];
    if (tx == 0 && row < at.rows)
      lse.row(at.row_q + row)[h] = total[r] == A(0) ? -infinity<A>() : largest[r] + log(total[r]);
  }
  store_tile(sum, factor, at.rows, Dv, o.row(at.row_q) + h * Dv, o.pitch);
}

// ---- backward ---------------------------------------------------------------------------------------------------------

// Of one pair of tiles, from the tiles q, k, u = d_o and v: weights = p ∘ dropout (left out where null) and
// d_scores = p ∘ (u vᵀ ∘ dropout − delta), p = e^(scale · q kᵀ − lse).
template <class T, int tile>
__device__ void backward_scores(const Pair<T>& at, const Gradients<T>& g, std::int64_t h, const acc_t<T>* q,
                                const acc_t<T>* k, const acc_t<T>* u, const acc_t<T>* v, acc_t<T>* weights,
                                acc_t<T>* d_scores) {
  using A = acc_t<T>;
  constexpr int parts = tile / side;
  const int ty = threadIdx.x / side, tx = threadIdx.x % side;
  A s[parts][parts], d_p[parts][parts];
  product_of_rows(q, k, static_cast<int>(at.p.n.D), s);
  product_of_rows(u, v, static_cast<int>(at.p.n.Dv), d_p);
  const A scale = static_cast<A>(at.p.shape.scale);
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    const int row = ty + side * r;
    const bool inside = row < at.rows;
    const A lse = inside ? g.lse.row(at.row_q + row)[h] : A(0), delta = inside ? g.delta.row(at.row_q + row)[h] : A(0);
#pragma unroll
    for (int c = 0; c < parts; ++c) {
      const int column = tx + side * c;
      A weight = A(0), d_score = A(0);
      if (lse != -infinity<A>() && at.visible(row, column)) {
        const A probability = exp(scale * s[r][c] - lse), kept = at.kept(row, column);
        weight = probability * kept;
        d_score = probability * (d_p[r][c] * kept - delta);
      }
      if (weights) weights[row * (tile + 1) + column] = weight;
      d_scores[row * (tile + 1) + column] = d_score;
    }
  }
}

template <class T, int tile, int head>
__global__ void __launch_bounds__(threads) backward_keys_kernel(Problem<T> p, Gradients<T> g) {
  using A = acc_t<T>;
  constexpr int parts = tile / side, column_parts = head / side;
  const AttentionSizes& n = p.n;
  const std::int64_t k_tiles = (n.Tk + tile - 1) / tile;
  const std::int64_t first = blockIdx.x % k_tiles * tile;
  const std::int64_t kv = blockIdx.x / k_tiles % n.K, b = blockIdx.x / k_tiles / n.K;
  const int D = static_cast<int>(n.D), Dv = static_cast<int>(n.Dv);

  __shared__ int span_memory[4];
  A* q = reinterpret_cast<A*>(shared_bytes);
  A* k = q + tile * row_length(D);
  A* u = k + tile * row_length(D);
  A* v = u + tile * row_length(Dv);
  A* weights = v + tile * row_length(Dv);
  A* d_scores = weights + tile * (tile + 1);

  Pair<T> at{p, 0, b * n.Tk + first, 0, static_cast<int>(min(n.Tk - first, std::int64_t{tile})), 0, Visibility::none};
  load_tile<tile>(p.k.row(at.row_k) + kv * D, p.k.pitch, at.keys, D, A(1), k);
  load_tile<tile>(p.v.row(at.row_k) + kv * Dv, p.v.pitch, at.keys, Dv, A(1), v);
  const AttentionSpan span_k = block_span(p.mask.position_k, p.mask.document_k, at.row_k, at.keys, span_memory);

  A d_k[parts][column_parts], d_v[parts][column_parts], scale[parts], one[parts];
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    scale[r] = static_cast<A>(p.shape.scale);
    one[r] = A(1);
#pragma unroll
    for (int c = 0; c < column_parts; ++c) d_k[r][c] = d_v[r][c] = A(0);
  }
  for (std::int64_t i = 0; i < n.Tq; i += tile) {
    at.row_q = b * n.Tq + i;
    at.rows = static_cast<int>(min(n.Tq - i, std::int64_t{tile}));
    const AttentionSpan span_q = block_span(p.mask.position_q, p.mask.document_q, at.row_q, at.rows, span_memory);
    at.seen = attention_visibility(span_q, span_k, p.mask.window);
    if (at.seen == Visibility::none) continue;
    for (std::int64_t h = kv * n.group(); h < (kv + 1) * n.group(); ++h) {
      at.dropout_key = attention_dropout_key(p.shape.dropout_key, p.shape.first_head + h);
      __syncthreads();
      load_tile<tile>(p.q.row(at.row_q) + h * D, p.q.pitch, at.rows, D, A(1), q);
      load_tile<tile>(g.d_o.row(at.row_q) + h * Dv, g.d_o.pitch, at.rows, Dv, A(1), u);
      __syncthreads();
      backward_scores<T, tile>(at, g, h, q, k, u, v, weights, d_scores);
      __syncthreads();
      add_product<true>(weights, u, Dv, d_v);
      add_product<true>(d_scores, q, D, d_k);
    }
  }
  store_tile(d_k, scale, at.keys, D, g.d_k.row(at.row_k) + kv * D, g.d_k.pitch);
  store_tile(d_v, one, at.keys, Dv, g.d_v.row(at.row_k) + kv * Dv, g.d_v.pitch);
}

template <class T, int tile, int head>
__global__ void __launch_bounds__(threads) backward_queries_kernel(Problem<T> p, Gradients<T> g) {
  using A = acc_t<T>;
  constexpr int parts = tile / side, column_parts = head / side;
  const AttentionSizes& n = p.n;
  const std::int64_t q_tiles = (n.Tq + tile - 1) / tile;
  const std::int64_t first = (q_tiles - 1 - blockIdx.x % q_tiles) * tile;
  const std::int64_t h = blockIdx.x / q_tiles % n.H, b = blockIdx.x / q_tiles / n.H, kv = h / n.group();
  const int D = static_cast<int>(n.D), Dv = static_cast<int>(n.Dv);

  __shared__ int span_memory[4];
  A* q = reinterpret_cast<A*>(shared_bytes);
  A* k = q + tile * row_length(D);
  A* u = k + tile * row_length(D);
  A* v = u + tile * row_length(Dv);
  A* d_scores = v + tile * row_length(Dv);

  Pair<T> at{p, b * n.Tq + first, 0, static_cast<int>(min(n.Tq - first, std::int64_t{tile})), 0,
             attention_dropout_key(p.shape.dropout_key, p.shape.first_head + h), Visibility::none};
  load_tile<tile>(p.q.row(at.row_q) + h * D, p.q.pitch, at.rows, D, A(1), q);
  load_tile<tile>(g.d_o.row(at.row_q) + h * Dv, g.d_o.pitch, at.rows, Dv, A(1), u);
  const AttentionSpan span_q = block_span(p.mask.position_q, p.mask.document_q, at.row_q, at.rows, span_memory);

  A d_q[parts][column_parts], scale[parts];
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    scale[r] = static_cast<A>(p.shape.scale);
#pragma unroll
    for (int c = 0; c < column_parts; ++c) d_q[r][c] = A(0);
  }
  for (std::int64_t j = 0; j < n.Tk; j += tile) {
    at.row_k = b * n.Tk + j;
    at.keys = static_cast<int>(min(n.Tk - j, std::int64_t{tile}));
    const AttentionSpan span_k = block_span(p.mask.position_k, p.mask.document_k, at.row_k, at.keys, span_memory);
    at.seen = attention_visibility(span_q, span_k, p.mask.window);
    if (at.seen == Visibility::none) continue;
    load_tile<tile>(p.k.row(at.row_k) + kv * D, p.k.pitch, at.keys, D, A(1), k);
    load_tile<tile>(p.v.row(at.row_k) + kv * Dv, p.v.pitch, at.keys, Dv, A(1), v);
    __syncthreads();
    backward_scores<T, tile>(at, g, h, q, k, u, v, static_cast<A*>(nullptr), d_scores);
    __syncthreads();
    add_product<false>(d_scores, k, D, d_q);
  }
  store_tile(d_q, scale, at.rows, D, g.d_q.row(at.row_q) + h * D, g.d_q.pitch);
}

// ---- launches ---------------------------------------------------------------------------------------------------------

// Sides of the tiles for heads of up to `head` values: what fits the 163 KiB that a block may have from sm_80 on.
template <class A>
constexpr int forward_tile(int head) {
  const int bytes = head * static_cast<int>(sizeof(A));
  return bytes <= 512 ? 64 : bytes <= 1024 ? 32 : 16;
}
template <class A>
constexpr int backward_tile(int head) {
  const int bytes = head * static_cast<int>(sizeof(A));
  return bytes <= 256 ? 64 : bytes <= 512 ? 32 : 16;
}

template <class Kernel, class... Args>
void launch(Stream& stream, Kernel kernel, std::int64_t blocks, std::int64_t bytes, Args... args) {
  if (blocks == 0) return;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "attention: shared memory");
  kernel<<<static_cast<unsigned>(blocks), threads, static_cast<std::size_t>(bytes),
           static_cast<cudaStream_t>(stream.native())>>>(args...);
  cuda_check(cudaGetLastError(), "attention");
}

template <class T, int head>
void launch_forward(Stream& stream, const Problem<T>& p, View<T, 3> o, View<acc_t<T>, 2> lse) {
  using A = acc_t<T>;
  constexpr int tile = forward_tile<A>(head);
  const AttentionSizes& n = p.n;
  const std::int64_t values = tile * (row_length(n.D) + row_length(std::max(n.D, n.Dv)) + tile + 1);
  launch(stream, forward_kernel<T, tile, head>, n.B * n.H * ((n.Tq + tile - 1) / tile),
         values * static_cast<std::int64_t>(sizeof(A)), p, o, lse);
}

template <class T, int head>
void launch_backward(Stream& stream, const Problem<T>& p, const Gradients<T>& g) {
  using A = acc_t<T>;
  constexpr int tile = backward_tile<A>(head);
  const AttentionSizes& n = p.n;
  const std::int64_t values = tile * (2 * row_length(n.D) + 2 * row_length(n.Dv) + 2 * (tile + 1));
  const std::int64_t bytes = values * static_cast<std::int64_t>(sizeof(A));
  launch(stream, backward_keys_kernel<T, tile, head>, n.B * n.K * ((n.Tk + tile - 1) / tile), bytes, p, g);
  launch(stream, backward_queries_kernel<T, tile, head>, n.B * n.H * ((n.Tq + tile - 1) / tile), bytes, p, g);
}

}  // namespace

template <class T>
void attention_forward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> q,
                       View<const T, 3> k, View<const T, 3> v, View<T, 3> o, View<acc_t<T>, 2> lse) {
  const Problem<T> p{attention_sizes(shape, mask, q, k, v), shape, mask, q, k, v};
  check_attention_output(p.n, o, lse);
  const std::int64_t head = std::max(p.n.D, p.n.Dv);
  if (head <= 64) return launch_forward<T, 64>(stream, p, o, lse);
  if (head <= 128) return launch_forward<T, 128>(stream, p, o, lse);
  launch_forward<T, 256>(stream, p, o, lse);
}

template <class T>
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> d_o,
                        View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, View<const acc_t<T>, 2> lse,
                        View<const acc_t<T>, 2> delta, View<T, 3> d_q, View<T, 3> d_k, View<T, 3> d_v,
                        View<acc_t<T>, 3> sums) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    if (sums.empty()) sums = d_q;
  }
  const Problem<T> p{attention_sizes(shape, mask, q, k, v), shape, mask, q, k, v};
  check_attention_gradients(p.n, d_o, lse, delta, d_q, d_k, d_v, sums);
  const Gradients<T> g{d_o, lse, delta, d_q, d_k, d_v};
  const std::int64_t head = std::max(p.n.D, p.n.Dv);
  if (head <= 64) return launch_backward<T, 64>(stream, p, g);
  if (head <= 128) return launch_backward<T, 128>(stream, p, g);
  launch_backward<T, 256>(stream, p, g);
}

#define FORGE_ATTENTION(T)                                                                                            \
  template void attention_forward<T>(Stream&, const AttentionShape&, const AttentionMask&, View<const T, 3>,          \
                                     View<const T, 3>, View<const T, 3>, View<T, 3>, View<acc_t<T>, 2>);              \
  template void attention_backward<T>(Stream&, const AttentionShape&, const AttentionMask&, View<const T, 3>,         \
                                      View<const T, 3>, View<const T, 3>, View<const T, 3>, View<const acc_t<T>, 2>,  \
                                      View<const acc_t<T>, 2>, View<T, 3>, View<T, 3>, View<T, 3>, View<acc_t<T>, 3>);
FORGE_ATTENTION(double)
FORGE_ATTENTION(float)
FORGE_ATTENTION(bf16)
#undef FORGE_ATTENTION

}  // namespace forge
