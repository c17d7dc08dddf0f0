#include <cmath>

#include "device/warpgroup.hpp"
#include "kernels/attention/attention_mma.hpp"
#include "kernels/attention/attention_mma_backward.hpp"
#include "kernels/attention/attention_specialized_calls.hpp"

// The backward in two kernels, u = d_o:
//   s = scale · q kᵀ;  p = e^(s − lse);  z = p ∘ (u vᵀ ∘ dropout − delta)
//   d_v = (p ∘ dropout)ᵀ u;  d_k = scale · zᵀ q      a block for each tile of keys: four products
//   d_q = scale · z k                                a block for each tile of queries: three products
// Seven products where one kernel would need five, which added to d_q from every tile of keys: in an order that atomics
// leave to chance, or through (number of blocks) · d_q of memory.

namespace forge::attention_mma {

namespace {

constexpr int rows = 16 * warps;  // of the tile that a block owns

// Draws of a pair of tiles, if there are any.
template <bool columns_are_keys, int j, bool dropout>
struct Kept {
  const AttentionShape& shape;
  float kept;
  Places own, columns;
  int head, row;       // the lane's first row in its tile
  int row_q, queries;  // of the pair's queries: the first, and their number

  template <class F>
  __device__ void each(const F& keep) const {
    each_draw<columns_are_keys, 1, j>(Draws(shape, kept, head, row_q, queries), OwnPlaces<1>(own, row), row, columns,
                                      keep);
  }
};

// p and z of a lane's pairs, from s = q kᵀ without scale and d_p = u vᵀ, which they replace: p ∘ dropout in s, z in
// d_p. lse(t, n) and delta(t, n): of the query of score [t][n]; lse in powers of two, +Inf where nothing was seen.
template <bool columns_are_keys, int j, bool dropout, class Lse, class Delta>
__device__ void probabilities(float c, const Lse& lse, const Delta& delta,
                              const Kept<columns_are_keys, j, dropout>& kept, float (&s)[1][j][4],
                              float (&d_p)[1][j][4]) {
#pragma unroll
  for (int t = 0; t < j; ++t)
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      s[0][t][n] = exp2_approximate(c * s[0][t][n] - lse(t, n));
      if constexpr (!dropout) d_p[0][t][n] = s[0][t][n] * (d_p[0][t][n] - delta(t, n));
    }
  if constexpr (dropout)
    kept.each([&](int, int t, int n, float factor) {
      d_p[0][t][n] = s[0][t][n] * (d_p[0][t][n] * factor - delta(t, n));
      s[0][t][n] *= factor;
    });
}

// ---- d_k and d_v
// ---------------------------------------------------------------------------------------------------------------------

// 64 keys of one head of keys against tiles of `queries` queries of every head that reads it. `parts` blocks share
// them: each computes all scores and sums its columns of d_k and d_v, which of long heads don't fit a warp's registers.
template <int head_, int value_head_, int queries_, int parts_ = 1, int width_ = queries_>
struct KeysShape {
  static constexpr int head = head_, value_head = value_head_, queries = queries_, parts = parts_, width = width_;
  static constexpr std::size_t bytes =
      sizeof(bf16) * (rows + 2 * queries) * (head + value_head) + sizeof(float) * 4 * queries + sizeof(ListMemory);
};

template <class S, bool dropout>
__global__ void __launch_bounds__(block_threads, 2) keys_kernel(Problem<bf16> p, Gradients<bf16> g, Factors factors) {
  constexpr int j = S::width / 8, k_columns = S::head / S::parts, v_columns = S::value_head / S::parts;
  const AttentionSizes& n = p.n;
  const unsigned k_tiles = tiles_of(n.Tk, rows), heads = static_cast<unsigned>(n.K);
  const unsigned block = blockIdx.x / S::parts;
  const int part = static_cast<int>(blockIdx.x % S::parts), first = static_cast<int>(block % k_tiles) * rows;
  const int kv = static_cast<int>(block / k_tiles % heads), group = factors.group;
  const int b = static_cast<int>(block / k_tiles / heads);
  const int row_q = b * static_cast<int>(n.Tq), row_k = b * static_cast<int>(n.Tk) + first;
  const int row = 16 * warp(), thread = static_cast<int>(threadIdx.x);

  bf16* memory = reinterpret_cast<bf16*>(dynamic_shared());
  const Tile<S::head> k{memory};
  const Stages<S::queries, S::head> q{memory + rows * S::head};
  bf16* values = memory + (rows + 2 * S::queries) * S::head;
  const Tile<S::value_head> v{values};
  const Stages<S::queries, S::value_head> u{values + rows * S::value_head};
  float* statistics =
      reinterpret_cast<float*>(values + (rows + 2 * S::queries) * S::value_head);  // [stage][2][queries]
  auto* list = reinterpret_cast<ListMemory*>(statistics + 4 * S::queries);

  const int count = min(static_cast<int>(n.Tk) - first, rows);
  QueryWalk<S::queries> walk(
      TileList<S::queries, false>(key_places(p.mask, row_k, count, first), query_places(p.mask, row_q, n.Tq, 0),
                                  head_rows(p.q, row_q, 0), head_rows(g.d_o, row_q, 0), p.mask.window, list),
      kv * group, group);
  load_rows<rows>(head_rows(p.k, row_k, kv), count, k);
  load_rows<rows>(head_rows(p.v, row_k, kv), count, v);
  const auto load_queries = [&](const QueryWalk<S::queries>& at, int stage) {
    const int count = static_cast<int>(n.Tq) - at.tile.first();
    load_rows<S::queries>(at.tiles.rows(0, at.tile.first()).head(at.head), count, q[stage]);
    load_rows<S::queries>(at.tiles.rows(1, at.tile.first()).head(at.head), count, u[stage]);
  };
  // One number a thread: lse of the tile's queries, then delta; of queries that aren't there, what makes p = z = 0.
  const auto statistic = [&](const QueryWalk<S::queries>& at) {
    const bool is_lse = thread < S::queries;
    const int query = at.tile.first() + (is_lse ? thread : thread - S::queries);
    if (thread >= 2 * S::queries || query >= n.Tq) return is_lse ? infinity<float>() : 0.0f;
    return is_lse ? lse_to_subtract(g.lse.row(row_q + query)[at.head]) : g.delta.row(row_q + query)[at.head];
  };
  const auto keep_statistic = [&](float x, int stage) {
    if (thread < 2 * S::queries) statistics[2 * stage * S::queries + thread] = x;
  };
  if (walk.tile.valid()) {
    load_queries(walk, 0);
    keep_statistic(statistic(walk), 0);
  }
  copy_async_commit();

  float d_k[1][k_columns / 8][4], d_v[1][v_columns / 8][4];
  clear(d_k);
  clear(d_v);
  for (int stage = 0; walk.tile.valid(); stage ^= 1) {
    const Visit tile = walk.tile;
    const int head = walk.head;
    walk.next();
    copy_async_wait<0>();
    __syncthreads();  // the tile is there for all, and nobody reads the other stage any more
    float coming = 0;
    if (walk.tile.valid()) {
      load_queries(walk, stage ^ 1);
      coming = statistic(walk);
    }
    copy_async_commit();

#pragma unroll 1
    for (int at = 0; at < S::queries; at += S::width) {
      const Tile<S::head> q_at = rows_from(q[stage], at);
      const Tile<S::value_head> u_at = rows_from(u[stage], at);
      float s[1][j][4], d_p[1][j][4];
      clear(s);
      clear(d_p);
      add_product_of_rows(k, row, q_at, s);
      add_product_of_rows(v, row, u_at, d_p);
      const Places columns = walk.tiles.tile(tile.first() + at, S::width);
      if (!tile.whole()) hide<false>(OwnPlaces<1>(walk.tiles.own(), row), columns, farthest(p.mask.window), s);
      const float* of_column = statistics + 2 * stage * S::queries + at + 2 * (lane() % 4);
      probabilities(
          factors.exponent, [&](int t, int e) { return of_column[8 * t + e % 2]; },
          [&](int t, int e) { return of_column[S::queries + 8 * t + e % 2]; },
          Kept<false, j, dropout>{p.shape, factors.kept, walk.tiles.own(), columns, head, row,
                                  row_q + tile.first() + at, columns.count},
          s, d_p);
      add_product(as_weights(s), u_at, part * v_columns, d_v);
      add_product(as_weights(d_p), q_at, part * k_columns, d_k);
    }
    keep_statistic(coming, stage ^ 1);
  }
  copy_async_wait<0>();
  __syncthreads();  // k's and v's memory, which the results go through, has landed even where no tile was visited

  const float scale = static_cast<float>(p.shape.scale);
  const float scales[1][2] = {{scale, scale}}, ones[1][2] = {{1, 1}};
  store_rows(d_k, scales, k, row, head_rows(View<const bf16, 3>(g.d_k), row_k, kv), part * k_columns, count);
  store_rows(d_v, ones, v, row, head_rows(View<const bf16, 3>(g.d_v), row_k, kv), part * v_columns, count);
}

// ---- d_q
// ---------------------------------------------------------------------------------------------------------------------

// 64 queries of one head against tiles of `keys` keys.
template <int head_, int value_head_, int keys_, int width_ = keys_>
struct QueriesShape {
  static constexpr int head = head_, value_head = value_head_, keys = keys_, width = width_;
  static constexpr std::size_t bytes = sizeof(bf16) * (rows + 2 * keys) * (head + value_head) + sizeof(ListMemory);
};

template <class S, bool dropout>
__global__ void __launch_bounds__(block_threads, 2)
    queries_kernel(Problem<bf16> p, Gradients<bf16> g, Factors factors) {
  constexpr int j = S::width / 8;
  const AttentionSizes& n = p.n;
  const unsigned q_tiles = tiles_of(n.Tq, rows), heads = static_cast<unsigned>(n.H);
  const int first = static_cast<int>(q_tiles - 1 - blockIdx.x % q_tiles) * rows;  // the longest blocks first
  const int h = static_cast<int>(blockIdx.x / q_tiles % heads), kv = h / factors.group;
  const int b = static_cast<int>(blockIdx.x / q_tiles / heads);
  const int row_q = b * static_cast<int>(n.Tq) + first, row_k = b * static_cast<int>(n.Tk);
  const int row = 16 * warp();

  bf16* memory = reinterpret_cast<bf16*>(dynamic_shared());
  const Tile<S::head> q{memory};
  const Stages<S::keys, S::head> k{memory + rows * S::head};
  bf16* values = memory + (rows + 2 * S::keys) * S::head;
  const Tile<S::value_head> u{values};
  const Stages<S::keys, S::value_head> v{values + rows * S::value_head};
  auto* list = reinterpret_cast<ListMemory*>(values + (rows + 2 * S::keys) * S::value_head);

  const int count = min(static_cast<int>(n.Tq) - first, rows);
  TileList<S::keys, true> tiles(query_places(p.mask, row_q, count, first), key_places(p.mask, row_k, n.Tk, 0),
                                head_rows(p.k, row_k, kv), head_rows(p.v, row_k, kv), p.mask.window, list);
  load_rows<rows>(head_rows(p.q, row_q, h), count, q);
  load_rows<rows>(head_rows(g.d_o, row_q, h), count, u);
  const auto load_keys = [&](int at, int stage) {
    load_rows<S::keys>(tiles.rows(0, at), static_cast<int>(n.Tk) - at, k[stage]);
    load_rows<S::keys>(tiles.rows(1, at), static_cast<int>(n.Tk) - at, v[stage]);
  };
  Visit tile = tiles.next();
  if (tile.valid()) load_keys(tile.first(), 0);
  copy_async_commit();

  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = row + 8 * half + lane() / 4;
    const bool inside = at < count;
    lse[half] = inside ? lse_to_subtract(g.lse.row(row_q + at)[h]) : infinity<float>();
    delta[half] = inside ? g.delta.row(row_q + at)[h] : 0;
  }
  float d_q[1][S::head / 8][4];
  clear(d_q);
  for (int stage = 0; tile.valid(); stage ^= 1) {
    const Visit next = tiles.step(stage, load_keys);
#pragma unroll 1
    for (int at = 0; at < S::keys; at += S::width) {
      const Tile<S::head> k_at = rows_from(k[stage], at);
      float s[1][j][4], d_p[1][j][4];
      clear(s);
      clear(d_p);
      add_product_of_rows(q, row, k_at, s);
      add_product_of_rows(u, row, rows_from(v[stage], at), d_p);
      const Places columns = tiles.tile(tile.first() + at, S::width);
      if (!tile.whole() || columns.count < S::width)
        hide<true>(OwnPlaces<1>(tiles.own(), row), columns, farthest(p.mask.window), s);
      probabilities(
          factors.exponent, [&](int, int e) { return lse[e / 2]; }, [&](int, int e) { return delta[e / 2]; },
          Kept<true, j, dropout>{p.shape, factors.kept, tiles.own(), columns, h, row, row_q, count}, s, d_p);
      add_product(as_weights(d_p), k_at, 0, d_q);
    }
    tile = next;
  }
  copy_async_wait<0>();
  __syncthreads();  // q's memory, which the result goes through, has landed even where no tile was visited

  const float scale = static_cast<float>(p.shape.scale);
  const float scales[1][2] = {{scale, scale}};
  store_rows(d_q, scales, q, row, head_rows(View<const bf16, 3>(g.d_q), row_q, h), 0, count);
}

template <class S, bool dropout>
void launch_keys(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  if (const std::int64_t blocks = p.n.B * p.n.K * tiles_of(p.n.Tk, rows) * S::parts; blocks > 0)
    launch(stream, "attention, backward of keys (tensor cores)", keys_kernel<S, dropout>,
           {blocks, block_threads, S::bytes}, p, g, Factors(p));
}

template <class S, bool dropout>
void launch_queries(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  if (const std::int64_t blocks = p.n.B * p.n.H * tiles_of(p.n.Tq, rows); blocks > 0)
    launch(stream, "attention, backward of queries (tensor cores)", queries_kernel<S, dropout>,
           {blocks, block_threads, S::bytes}, p, g, Factors(p));
}

// Draws take registers: with them, fewer scores at once.
void backward_with_dropout(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  with_largest<KeysShape<64, 64, 64, 1, 32>, KeysShape<128, 128, 64, 1, 32>, KeysShape<256, 256, 32, 2, 16>,
               KeysShape<256, 256, 16, 2>>(p.n, [&]<class S>(S) { launch_keys<S, true>(stream, p, g); });
  with_largest<QueriesShape<64, 64, 64, 32>, QueriesShape<128, 128, 64, 32>, QueriesShape<192, 128, 32, 16>,
               QueriesShape<256, 256, 32, 16>, QueriesShape<256, 256, 16>>(
      p.n, [&]<class S>(S) { launch_queries<S, true>(stream, p, g); });
}

}  // namespace

void backward(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  check_scale(p);
  if (p.shape.dropout > 0) return backward_with_dropout(stream, p, g);
  if (specialized_takes(p.shape, p.q, p.k, p.v, g.d_o)) return specialized_backward(stream, p, g);
  with_largest<KeysShape<64, 64, 64>, KeysShape<128, 128, 64, 1, 32>, KeysShape<192, 128, 32, 1, 16>,
               KeysShape<256, 256, 32, 2>, KeysShape<256, 256, 16, 2>>(
      p.n, [&]<class S>(S) { launch_keys<S, false>(stream, p, g); });
  with_largest<QueriesShape<64, 64, 64>, QueriesShape<128, 128, 64>, QueriesShape<192, 128, 32>,
               QueriesShape<256, 256, 32, 16>, QueriesShape<256, 256, 16>>(
      p.n, [&]<class S>(S) { launch_queries<S, false>(stream, p, g); });
}

}  // namespace forge::attention_mma
