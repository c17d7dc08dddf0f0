#include "kernels/attention_mma_backward.hpp"
#include "kernels/attention_mma_launch.hpp"
#include "kernels/attention_warpgroup.hpp"

// attention_mma_backward.cpp's two kernels, whose products are warpgroups': tiles come from shared memory, the rows of
// p and z from the registers that they were computed in. No dropout, whose draws take registers.
// The last products of a tile are still computed while the first ones of the next are waited for, so that the tiles
// that they read stay for one more turn.

namespace forge::attention_mma {

namespace {

// `groups` times 64 keys of one head of keys against tiles of `tile` queries, and the reverse; with memory for so many
// tiles of them, of two tensors, and for so many numbers.
template <int head_, int groups_, int tile_, int tiles_, int numbers_>
struct GroupShape {
  static constexpr int head = head_, value_head = head_, groups = groups_, tile = tile_, block_warps = 4 * groups,
                       threads = 32 * block_warps, rows = group_rows * groups;
  using Own = Panels<rows, head>;
  using Other = Panels<tile, head>;
  static constexpr std::size_t bytes = sizeof(bf16) * (2 * Own::values_all + tiles_ * Other::values_all) +
                                       sizeof(float) * numbers_ + sizeof(ListMemory) + panel_alignment;
};

// One of three places that take turns.
__device__ inline int behind(int place) {
  return place < 2 ? place + 1 : 0;
}

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    keys_kernel_of_groups(Problem<bf16> p, Gradients<bf16> g, Factors factors) {
  constexpr int j = S::tile / 8;
  using Walk = QueryWalk<S::tile, S::block_warps>;
  const AttentionSizes& n = p.n;
  const auto heads = static_cast<unsigned>(n.K), sequences = static_cast<unsigned>(n.B);
  const int kv = static_cast<int>(blockIdx.x % heads), b = static_cast<int>(blockIdx.x / heads % sequences);
  const int first = static_cast<int>(blockIdx.x / heads / sequences) * S::rows;  // of causal masks the longest first
  const int group = factors.group;
  const int row_q = b * static_cast<int>(n.Tq), row_k = b * static_cast<int>(n.Tk) + first;
  const int row = 16 * warp(), thread = static_cast<int>(threadIdx.x);

  bf16* memory = panel_memory();
  const typename S::Own k{memory}, v{memory + S::Own::values_all};
  bf16* others = memory + 2 * S::Own::values_all;  // (place, q or u, tile)
  const auto tile_of = [&](int place, int i) {
    return typename S::Other{others + (2 * place + i) * S::Other::values_all};
  };
  float* statistics = reinterpret_cast<float*>(others + 6 * S::Other::values_all);  // [stage][2][tile]
  auto* list = reinterpret_cast<ListMemory*>(statistics + 4 * S::tile);

  const int count = min(static_cast<int>(n.Tk) - first, S::rows);
  load_tile<S::rows, S::head, S::threads>(head_rows(p.k, row_k, kv), count, k);
  load_tile<S::rows, S::head, S::threads>(head_rows(p.v, row_k, kv), count, v);
  Walk walk(TileList<S::tile, false, S::block_warps>(key_places(p.mask, row_k, count, first),
                                                     query_places(p.mask, row_q, n.Tq, 0), head_rows(p.q, row_q, 0),
                                                     head_rows(g.d_o, row_q, 0), p.mask.window, list),
            kv * group, group);
  const auto load_queries = [&](const Walk& at, int place) {
    const int count = static_cast<int>(n.Tq) - at.tile.first();
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_tile<S::tile, S::head, S::threads>(at.tiles.rows(i, at.tile.first()).head(at.head), count,
                                              tile_of(place, i));
  };
  const auto statistic = [&](const Walk& at) {
    const bool is_lse = thread < S::tile;
    const int query = at.tile.first() + (is_lse ? thread : thread - S::tile);
    if (thread >= 2 * S::tile || query >= n.Tq) return is_lse ? infinity<float>() : 0.0f;
    return is_lse ? lse_to_subtract(g.lse.row(row_q + query)[at.head]) : g.delta.row(row_q + query)[at.head];
  };
  const auto keep_statistic = [&](float x, int stage) {
    if (thread < 2 * S::tile) statistics[2 * stage * S::tile + thread] = x;
  };
  if (walk.tile.valid()) {
    load_queries(walk, 0);
    keep_statistic(statistic(walk), 0);
  }
  copy_async_commit();

  float d_k[1][S::head / 8][4], d_v[1][S::head / 8][4];
  clear(d_k);
  clear(d_v);
  const int group_row = row / group_rows * group_rows;
  if (walk.tile.valid()) {
    int stage = 0, place = 0;
    do {
      const Visit tile = walk.tile;
      walk.next();
      copy_async_wait<0>();
      publish_to_warpgroups();
      __syncthreads();  // the tile is there for all, and nobody reads the one before the last any more
      float s[1][j][4], d_p[1][j][4];
      const typename S::Other q = tile_of(place, 0), u = tile_of(place, 1);
      begin_warpgroup_products();
      start_product_of_rows<S::head>(s[0], k.row(group_row), S::Own::panel_bytes, q.values, S::Other::panel_bytes);
      finish_products<1>(d_v[0]);
      finish_products<1>(d_k[0]);
      begin_warpgroup_products();
      start_product_of_rows<S::head>(d_p[0], v.row(group_row), S::Own::panel_bytes, u.values, S::Other::panel_bytes);
      float coming = 0;
      if (walk.tile.valid()) {
        load_queries(walk, behind(place));
        coming = statistic(walk);
      }
      copy_async_commit();

      const float* of_column = statistics + 2 * stage * S::tile + 2 * (lane() % 4);
      finish_products<1>(s[0]);
      if (!tile.whole())
        hide<false>(OwnPlaces<1>(walk.tiles.own(), row), walk.tiles.tile(tile.first(), S::tile),
                    farthest(p.mask.window), s);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[0][t][e] = exp2_approximate(factors.exponent * s[0][t][e] - of_column[8 * t + e % 2]);
      std::uint32_t weights[j / 2][4], z[j / 2][4];
      pack_words(s[0], weights);
      begin_warpgroup_products();
      start_product(d_v[0], weights, u.values, S::Other::panel_bytes);
      finish_products<1>(d_p[0]);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) d_p[0][t][e] = s[0][t][e] * (d_p[0][t][e] - of_column[S::tile + 8 * t + e % 2]);
      pack_words(d_p[0], z);
      begin_warpgroup_products();
      start_product(d_k[0], z, q.values, S::Other::panel_bytes);
      keep_statistic(coming, stage ^ 1);
      stage ^= 1, place = behind(place);
    } while (walk.tile.valid());
    finish_products<0>(d_v[0]);
    finish_products<0>(d_k[0]);
  }
  copy_async_wait<0>();
  __syncthreads();  // k's and v's memory, which the results go through, has landed even where no tile was visited

  const float scale = static_cast<float>(p.shape.scale);
  const float scales[1][2] = {{scale, scale}}, ones[1][2] = {{1, 1}};
  store_rows(d_k, scales, k, row, head_rows(View<const bf16, 3>(g.d_k), row_k, kv), 0, count);
  store_rows(d_v, ones, v, row, head_rows(View<const bf16, 3>(g.d_v), row_k, kv), 0, count);
}

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    queries_kernel_of_groups(Problem<bf16> p, Gradients<bf16> g, Factors factors) {
  constexpr int j = S::tile / 8;
  const AttentionSizes& n = p.n;
  const auto heads = static_cast<unsigned>(n.H), sequences = static_cast<unsigned>(n.B);
  const int h = static_cast<int>(blockIdx.x % heads), kv = h / factors.group;
  const int b = static_cast<int>(blockIdx.x / heads % sequences);
  const int first =
      static_cast<int>(tiles_of(n.Tq, S::rows) - 1 - blockIdx.x / heads / sequences) * S::rows;  // the longest first
  const int row_q = b * static_cast<int>(n.Tq) + first, row_k = b * static_cast<int>(n.Tk);
  const int row = 16 * warp();

  bf16* memory = panel_memory();
  const typename S::Own q{memory}, u{memory + S::Own::values_all};
  bf16* others = memory + 2 * S::Own::values_all;  // three tiles of k, then two of v
  const auto keys_of = [&](int place) { return typename S::Other{others + place * S::Other::values_all}; };
  const auto values_of = [&](int stage) { return typename S::Other{others + (3 + stage) * S::Other::values_all}; };
  auto* list = reinterpret_cast<ListMemory*>(others + 5 * S::Other::values_all);

  const int count = min(static_cast<int>(n.Tq) - first, S::rows);
  load_tile<S::rows, S::head, S::threads>(head_rows(p.q, row_q, h), count, q);
  load_tile<S::rows, S::head, S::threads>(head_rows(g.d_o, row_q, h), count, u);
  TileList<S::tile, true, S::block_warps> tiles(query_places(p.mask, row_q, count, first),
                                                key_places(p.mask, row_k, n.Tk, 0), head_rows(p.k, row_k, kv),
                                                head_rows(p.v, row_k, kv), p.mask.window, list);
  const auto load_keys = [&](int at, int place, int stage) {
    load_tile<S::tile, S::head, S::threads>(tiles.rows(0, at), static_cast<int>(n.Tk) - at, keys_of(place));
    load_tile<S::tile, S::head, S::threads>(tiles.rows(1, at), static_cast<int>(n.Tk) - at, values_of(stage));
  };
  Visit tile = tiles.next();
  if (tile.valid()) load_keys(tile.first(), 0, 0);
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
  const int group_row = row / group_rows * group_rows;
  if (tile.valid()) {
    int stage = 0, place = 0;
    do {
      const Visit next = tiles.next();
      copy_async_wait<0>();
      publish_to_warpgroups();
      __syncthreads();
      float s[1][j][4], d_p[1][j][4];
      const typename S::Other k = keys_of(place), v = values_of(stage);
      begin_warpgroup_products();
      start_product_of_rows<S::head>(s[0], q.row(group_row), S::Own::panel_bytes, k.values, S::Other::panel_bytes);
      finish_products<1>(d_q[0]);
      begin_warpgroup_products();
      start_product_of_rows<S::head>(d_p[0], u.row(group_row), S::Own::panel_bytes, v.values, S::Other::panel_bytes);
      if (next.valid()) load_keys(next.first(), behind(place), stage ^ 1);
      copy_async_commit();
      finish_products<1>(s[0]);
      if (!tile.whole() || tile.first() + S::tile > static_cast<int>(n.Tk))
        hide<true>(OwnPlaces<1>(tiles.own(), row), tiles.tile(tile.first(), S::tile), farthest(p.mask.window), s);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][t][e] = exp2_approximate(factors.exponent * s[0][t][e] - lse[e / 2]);
      compute_before_wait(s[0], list->unread);
      finish_products<0>(d_p[0]);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) d_p[0][t][e] = s[0][t][e] * (d_p[0][t][e] - delta[e / 2]);
      std::uint32_t z[j / 2][4];
      pack_words(d_p[0], z);
      begin_warpgroup_products();
      start_product(d_q[0], z, k.values, S::Other::panel_bytes);
      tile = next, stage ^= 1, place = behind(place);
    } while (tile.valid());
    finish_products<0>(d_q[0]);
  }
  copy_async_wait<0>();
  __syncthreads();  // q's memory, which the result goes through, has landed even where no tile was visited

  const float scale = static_cast<float>(p.shape.scale);
  const float scales[1][2] = {{scale, scale}};
  store_rows(d_q, scales, q, row, head_rows(View<const bf16, 3>(g.d_q), row_q, h), 0, count);
}

template <class S>
void launch_keys(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  if (const std::int64_t blocks = p.n.B * p.n.K * tiles_of(p.n.Tk, S::rows); blocks > 0)
    launch(stream, "attention, backward of keys (tensor cores)", keys_kernel_of_groups<S>,
           {blocks, S::threads, S::bytes}, p, g, Factors(p));
}

template <class S>
void launch_queries(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  if (const std::int64_t blocks = p.n.B * p.n.H * tiles_of(p.n.Tq, S::rows); blocks > 0)
    launch(stream, "attention, backward of queries (tensor cores)", queries_kernel_of_groups<S>,
           {blocks, S::threads, S::bytes}, p, g, Factors(p));
}

}  // namespace

void backward_of_groups(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  with_largest<GroupShape<64, 2, 64, 6, 256>, GroupShape<128, 2, 64, 6, 256>>(
      p.n, [&]<class S>(S) { launch_keys<S>(stream, p, g); });
  with_largest<GroupShape<64, 2, 128, 5, 0>, GroupShape<128, 2, 128, 5, 0>>(
      p.n, [&]<class S>(S) { launch_queries<S>(stream, p, g); });
}

}  // namespace forge::attention_mma
