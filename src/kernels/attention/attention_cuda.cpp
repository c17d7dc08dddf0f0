#include <algorithm>
#include <cmath>

#include "core/to_size.hpp"
#include "device/launch.hpp"
#include "kernels/attention/attention_cuda.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/attention/attention_mma.hpp"

// Attention of the CUDA build for every type and head size. Forward and d_q: one block per sequence, head and tile of
// queries. d_k and d_v: one block per sequence, head of keys and tile of keys, over all queries that read it. The
// backward computes the probabilities twice, so that no two blocks add to the same number: no atomics, and the same
// bits in every run.

namespace forge {

namespace {

using namespace attention_detail;

// ---- forward
// ----------------------------------------------------------------------------------------------------------

template <class T, int tile, int head>
__global__ void __launch_bounds__(threads)
    forward_kernel(Problem<T> p, View<T, 3> o, View<acc_t<T>, 2> lse, View<acc_t<T>, 2> peaks) {
  using A = acc_t<T>;
  constexpr int parts = tile / side, column_parts = head / side;
  const AttentionSizes& n = p.n;
  const std::int64_t q_tiles = (n.Tq + tile - 1) / tile;
  const std::int64_t first = (q_tiles - 1 - blockIdx.x % q_tiles) * tile;  // the longest blocks first
  const std::int64_t h = blockIdx.x / q_tiles % n.H, b = blockIdx.x / q_tiles / n.H, kv = h / n.group();
  const int D = static_cast<int>(n.D), Dv = static_cast<int>(n.Dv);
  const int ty = threadIdx.x / side, tx = threadIdx.x % side;

  FORGE_SHARED(int, span_memory, 4);
  A* q = reinterpret_cast<A*>(dynamic_shared());
  A* k_or_v = q + tile * row_length(D);
  A* weights = k_or_v + tile * row_length(D > Dv ? D : Dv);

  Pair<T> at{p,
             b * n.Tq + first,
             0,
             static_cast<int>(min(n.Tq - first, std::int64_t{tile})),
             0,
             attention_dropout_key(p.shape.dropout_key, p.shape.first_head + h),
             Visibility::none};
  load_tile<tile>(p.q.row(at.row_q) + h * D, p.q.pitch, at.rows, D, static_cast<A>(p.shape.scale), q);
  const AttentionSpan span_q = block_span(p.mask.position_q, p.mask.document_q, at.row_q, at.rows, span_memory);

  const A cap = static_cast<A>(p.shape.soft_cap);
  A sum[parts][column_parts], largest[parts], total[parts], highest[parts];
#pragma unroll
  for (int r = 0; r < parts; ++r) {
    highest[r] = largest[r] = -infinity<A>();
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
        const bool seen = at.visible(row, tx + side * c);
        if (seen && s[r][c] > highest[r]) highest[r] = s[r][c];
        s[r][c] = seen ? capped(s[r][c], cap) : -infinity<A>();
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
    const A peak = row_max(highest[r]);
    if (tx == 0 && row < at.rows && !peaks.empty()) peaks.row(at.row_q + row)[h] = peak;
    if (tx == 0 && row < at.rows)
      lse.row(at.row_q + row)[h] = total[r] == A(0) ? -infinity<A>() : largest[r] + log(total[r]);
  }
  store_tile(sum, factor, at.rows, Dv, o.row(at.row_q) + h * Dv, o.pitch);
}

// ---- backward
// ---------------------------------------------------------------------------------------------------------

// Of one pair of tiles, from the tiles q, k, u = d_o and v: weights = p ∘ dropout (left out where null) and
// d_scores = p ∘ (u vᵀ ∘ dropout − delta), p = e^(s − lse), s = scale · q kᵀ; with a soft cap s is capped, and d_scores
// times the cap's slope.
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
  const A scale = static_cast<A>(at.p.shape.scale), cap = static_cast<A>(at.p.shape.soft_cap);
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
        const A score = capped(scale * s[r][c], cap), probability = exp(score - lse), kept = at.kept(row, column);
        weight = probability * kept;
        d_score = probability * (d_p[r][c] * kept - delta) * slope_of_capped(score, cap);
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

  FORGE_SHARED(int, span_memory, 4);
  A* q = reinterpret_cast<A*>(dynamic_shared());
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

  FORGE_SHARED(int, span_memory, 4);
  A* q = reinterpret_cast<A*>(dynamic_shared());
  A* k = q + tile * row_length(D);
  A* u = k + tile * row_length(D);
  A* v = u + tile * row_length(Dv);
  A* d_scores = v + tile * row_length(Dv);

  Pair<T> at{p,
             b * n.Tq + first,
             0,
             static_cast<int>(min(n.Tq - first, std::int64_t{tile})),
             0,
             attention_dropout_key(p.shape.dropout_key, p.shape.first_head + h),
             Visibility::none};
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

// ---- launches
// ---------------------------------------------------------------------------------------------------------

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

template <class T, int head>
void launch_forward(Stream& stream, const Problem<T>& p, View<T, 3> o, View<acc_t<T>, 2> lse, View<acc_t<T>, 2> peak) {
  using A = acc_t<T>;
  constexpr int tile = forward_tile<A>(head);
  const AttentionSizes& n = p.n;
  const std::int64_t values = tile * (row_length(n.D) + row_length(std::max(n.D, n.Dv)) + tile + 1);
  if (const std::int64_t blocks = n.B * n.H * ((n.Tq + tile - 1) / tile); blocks > 0)
    launch(stream, "attention, forward", forward_kernel<T, tile, head>, {blocks, threads, to_size(values) * sizeof(A)},
           p, o, lse, peak);
}

template <class T, int head>
void launch_backward(Stream& stream, const Problem<T>& p, const Gradients<T>& g) {
  using A = acc_t<T>;
  constexpr int tile = backward_tile<A>(head);
  const AttentionSizes& n = p.n;
  const std::int64_t values = tile * (2 * row_length(n.D) + 2 * row_length(n.Dv) + 2 * (tile + 1));
  const std::size_t bytes = to_size(values) * sizeof(A);
  if (const std::int64_t blocks = n.B * n.K * ((n.Tk + tile - 1) / tile); blocks > 0)
    launch(stream, "attention, backward of keys", backward_keys_kernel<T, tile, head>, {blocks, threads, bytes}, p, g);
  if (const std::int64_t blocks = n.B * n.H * ((n.Tq + tile - 1) / tile); blocks > 0)
    launch(stream, "attention, backward of queries", backward_queries_kernel<T, tile, head>, {blocks, threads, bytes},
           p, g);
}

}  // namespace

template <class T>
void attention_forward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> q,
                       View<const T, 3> k, View<const T, 3> v, View<T, 3> o, View<acc_t<T>, 2> lse,
                       View<acc_t<T>, 2> peak) {
  const Problem<T> p{attention_sizes(shape, mask, q, k, v), shape, mask, q, k, v};
  check_attention_output(p.n, o, lse, peak);
  if (shape.kernel != AttentionKernel::cuda_cores) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (peak.empty() && cudnn_takes(shape, q, k, v, o))
        return shape.cudnn->forward(stream, {shape, mask, q, k, v}, o, lse);
      return attention_mma::forward(stream, p, o, lse, peak);
    }
    require(false, "attention: tensor cores compute in bf16 alone");
  }
  const std::int64_t head = std::max(p.n.D, p.n.Dv);
  if (head <= 64) return launch_forward<T, 64>(stream, p, o, lse, peak);
  if (head <= 128) return launch_forward<T, 128>(stream, p, o, lse, peak);
  launch_forward<T, 256>(stream, p, o, lse, peak);
}

template <class T>
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> d_o,
                        View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, View<const acc_t<T>, 2> lse,
                        View<const acc_t<T>, 2> delta, View<T, 3> d_q, View<T, 3> d_k, View<T, 3> d_v,
                        View<acc_t<T>, 3> sums, View<const T, 3> o) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    if (sums.empty()) sums = d_q;
  }
  const Problem<T> p{attention_sizes(shape, mask, q, k, v), shape, mask, q, k, v};
  check_attention_gradients(p.n, d_o, lse, delta, d_q, d_k, d_v, sums);
  const Gradients<T> g{d_o, lse, delta, d_q, d_k, d_v};
  if (shape.kernel != AttentionKernel::cuda_cores) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (!o.empty() &&
          cudnn_takes(shape, q, k, v, o, d_o, View<const T, 3>(d_q), View<const T, 3>(d_k), View<const T, 3>(d_v)))
        return shape.cudnn->backward(stream, {shape, mask, q, k, v}, {d_o, o, lse, d_q, d_k, d_v});
      return attention_mma::backward(stream, p, g);
    }
    require(false, "attention: tensor cores compute in bf16 alone");
  }
  const std::int64_t head = std::max(p.n.D, p.n.Dv);
  if (head <= 64) return launch_backward<T, 64>(stream, p, g);
  if (head <= 128) return launch_backward<T, 128>(stream, p, g);
  launch_backward<T, 256>(stream, p, g);
}

FORGE_INSTANTIATE_FUNCTION(attention_forward);
FORGE_INSTANTIATE_FUNCTION(attention_backward);

}  // namespace forge
