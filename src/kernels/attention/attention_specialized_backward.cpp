#include "device/warpgroup.hpp"
#include "kernels/attention/attention_specialized.hpp"

// attention_mma_backward.cpp's two kernels, by warps of different tasks: tiles come from shared memory, the rows of p
// and z from the registers that they were computed in. No dropout, whose draws take registers.

namespace forge::attention_mma {

namespace {

// 128 keys of one head of keys against tiles of `tile` queries. A group's last products of a tile are computed while
// the first ones of the next are waited for, so that a tile's place is free one tile later.
template <int head_, int value_head_, int tile_>
struct SpecializedKeys {
  static constexpr int head = head_, value_head = value_head_, tile = tile_, rows = group_rows * consumer_groups,
                       places = 3;
  using Keys = Panels<rows, head>;
  using Values = Panels<rows, value_head>;
  using Queries = Panels<tile, head>;
  using Outputs = Panels<tile, value_head>;  // their gradients
  static constexpr int place_values = Queries::values_all + Outputs::values_all;
  struct Control {
    BlockRows rows;
    TileBits bits;
    Mbarrier own;
    Ring<places> queries;
    float statistics[places][2][tile];  // of the queries: lse, delta
  };
  static constexpr std::size_t bytes =
      sizeof(bf16) * (Keys::values_all + Values::values_all + places * place_values) + sizeof(Control);
};

template <class S>
struct KeysMemory {
  bf16* panels = aligned_panels();

  __device__ typename S::Keys k() const { return {panels}; }
  __device__ typename S::Values v() const { return {panels + S::Keys::values_all}; }
  __device__ typename S::Queries q(int place) const {
    return {panels + S::Keys::values_all + S::Values::values_all + place * S::place_values};
  }
  __device__ typename S::Outputs u(int place) const { return {q(place).values + S::Queries::values_all}; }
  __device__ typename S::Control* control() const {
    return reinterpret_cast<typename S::Control*>(q(S::places).values);
  }
};

template <class S>
__device__ void prepare_keys(const Problem<bf16>& p) {
  prepare_panels();
  typename S::Control* control = KeysMemory<S>().control();
  const BlockRows rows = rows_of_keys(p.n, S::rows);
  find_tiles<S::tile, false>(key_places(p.mask, rows.row_k, rows.count, rows.first),
                             query_places(p.mask, rows.row_q, p.n.Tq, 0), p.mask.window, &control->bits);
  __syncthreads();
  if (threadIdx.x == 0) {
    control->rows = rows;
    mbarrier_init(&control->own, 2);
    control->queries.init(3);
  }
  __syncthreads();
}

// Two warps copy, `side` 0: k, and q of each tile; 1: v and u. They wait for each copy: two tiles are there meanwhile,
// and with what a wait for the one before would keep, their registers don't do.
template <class S, int side>
__device__ void produce_queries(const Problem<bf16>& p, const View<const bf16, 3>& queries,
                                const View<const bf16, 3>& keys, int group) {
  const KeysMemory<S> memory;
  typename S::Control* control = memory.control();
  const BlockRows& block = control->rows;
  const int rows = static_cast<int>(p.n.Tq);
  if constexpr (side == 0)
    load_by_warp<1>(keys, block.row_k, block.kv, block.count, memory.k(), 0);
  else
    load_by_warp<1>(keys, block.row_k, block.kv, block.count, memory.v(), 0);
  announce(&control->own);
  TileWalk<S::tile> walk(&control->bits, rows);
  Turn<S::places> turn;
  int head = 0;
  Visit at = walk.next();
#pragma unroll 1
  while (true) {
    wait_until_empty(control->queries, turn, at, side);
    const auto load = [&](const auto& to) {
      load_by_warp<1>(queries, block.row_q + at.first(), block.kv * group + head, rows - at.first(), to, 0);
    };
    if constexpr (side == 0) {
      if (at.valid()) load(memory.q(turn.place()));
    } else {
      if (at.valid()) load(memory.u(turn.place()));
    }
    announce(control->queries.full + turn.place());
    if (!at.valid()) return;
    turn.next();
    if (++head < group) continue;
    head = 0;
    at = walk.next();
  }
}

// Starts copying a head's numbers of `tile` rows from row `row` on; 0 behind the first `left`. By a warp.
template <int tile>
__device__ void copy_numbers(const View<const float, 2>& from, std::int64_t row, int head, int left,
                             float (&to)[tile]) {
#pragma unroll 1
  for (int i = lane(); i < tile; i += 32)
    copy_async_4(to + i, i < left ? from.row(row + i) + head : from.data, i < left ? 4 : 0);
}

// A third warp copies the queries' numbers, and makes of lse what the kernel subtracts. A query behind the last has lse
// 0: its scores are 0, and so are its rows of u.
template <class S>
__device__ void produce_statistics(const Problem<bf16>& p, const Gradients<bf16>& g, int group) {
  const KeysMemory<S> memory;
  typename S::Control* control = memory.control();
  const BlockRows& block = control->rows;
  const int rows = static_cast<int>(p.n.Tq);
  TileWalk<S::tile> walk(&control->bits, rows);
  Turn<S::places> turn;
#pragma unroll 1
  for (Visit at = walk.next(); at.valid(); at = walk.next())
#pragma unroll 1
    for (int head = block.kv * group; head < (block.kv + 1) * group; ++head, turn.next()) {
      const int left = rows - at.first();
      mbarrier_wait(control->queries.empty + turn.place(), turn.parity() ^ 1);
      copy_numbers(g.lse, block.row_q + at.first(), head, left, control->statistics[turn.place()][0]);
      copy_numbers(g.delta, block.row_q + at.first(), head, left, control->statistics[turn.place()][1]);
      copy_async_commit();
      copy_async_wait<0>();
      float* lse = control->statistics[turn.place()][0];
      for (int i = lane(); i < S::tile; i += 32) lse[i] = lse_to_subtract(lse[i]);
      mbarrier_arrive_as_warp(control->queries.full + turn.place());
    }
  mbarrier_wait(control->queries.empty + turn.place(), turn.parity() ^ 1);
  mbarrier_arrive_as_warp(control->queries.full + turn.place());
}

template <class S>
__device__ void consume_queries(const Problem<bf16>& p, const Gradients<bf16>& g, const Factors& factors) {
  const KeysMemory<S> memory;
  constexpr int j = S::tile / 8;
  typename S::Control* control = memory.control();
  const BlockRows& block = control->rows;
  const int row = 16 * warp();
  float d_k[1][S::head / 8][4], d_v[1][S::value_head / 8][4];
  clear(d_k);
  clear(d_v);
  Turn<S::places> turn;
  mbarrier_wait(&control->own, 0);
  if (Visit at = wait_until_full(control->queries, turn); at.valid()) {
    bool first = true;
    do {
      int thread = static_cast<int>(threadIdx.x);
      compute_here(thread);  // what follows from it takes no registers from one tile to the next
      const int group_row = thread / 128 * group_rows;
      float s[1][j][4], d_p[1][j][4];
      const typename S::Queries q = memory.q(turn.place());
      const typename S::Outputs u = memory.u(turn.place());
      begin_warpgroup_products();
      start_product_of_rows<S::head>(s[0], memory.k().row(group_row), S::Keys::panel_bytes, q.values,
                                     S::Queries::panel_bytes);
      finish_products<1>(d_v[0]);
      finish_products<1>(d_k[0]);
      if (!first) mbarrier_arrive_as_warp(control->queries.empty + turn.before().place());
      first = false;
      begin_warpgroup_products();
      start_product_of_rows<S::value_head>(d_p[0], memory.v().row(group_row), S::Values::panel_bytes, u.values,
                                           S::Outputs::panel_bytes);
      const float* of_column = &control->statistics[turn.place()][0][2 * (thread % 4)];
      finish_products<1>(s[0]);
      if (!at.whole())
        hide<false>(OwnPlaces<1>(key_places(p.mask, block.row_k, block.count, block.first), row),
                    query_places(p.mask, block.row_q, p.n.Tq, 0).tile(at.first(), S::tile), farthest(p.mask.window), s);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[0][t][e] = exp2_approximate(factors.exponent * s[0][t][e] - of_column[8 * t + e % 2]);
      std::uint32_t weights[j / 2][4], z[j / 2][4];
      pack_words(s[0], weights);
      begin_warpgroup_products();
      start_product(d_v[0], weights, u.values, S::Outputs::panel_bytes);
      finish_products<1>(d_p[0]);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) d_p[0][t][e] = s[0][t][e] * (d_p[0][t][e] - of_column[S::tile + 8 * t + e % 2]);
      pack_words(d_p[0], z);
      begin_warpgroup_products();
      start_product(d_k[0], z, q.values, S::Queries::panel_bytes);
      turn.next();
      at = wait_until_full(control->queries, turn);
    } while (at.valid());
    finish_products<0>(d_v[0]);
    finish_products<0>(d_k[0]);
  }

  // The results go through this warp's rows of k and v, which no other warp reads.
  __syncwarp();
  const float scale = static_cast<float>(p.shape.scale);
  const float scales[1][2] = {{scale, scale}}, ones[1][2] = {{1, 1}};
  store_rows(d_k, scales, memory.k(), row, head_rows(View<const bf16, 3>(g.d_k), block.row_k, block.kv), 0,
             block.count);
  store_rows(d_v, ones, memory.v(), row, head_rows(View<const bf16, 3>(g.d_v), block.row_k, block.kv), 0, block.count);
}

template <class S>
__global__ void __launch_bounds__(specialized_threads, 1)
    specialized_keys_kernel(Problem<bf16> p, Gradients<bf16> g, Factors factors) {
  prepare_keys<S>(p);
  if (warp() >= consumer_warps) {
    give_registers<producer_registers>();
    const int task = warp() - consumer_warps;
    if (task == 0) produce_queries<S, 0>(p, p.q, p.k, factors.group);
    if (task == 1) produce_queries<S, 1>(p, g.d_o, p.v, factors.group);
    if (task == 2) produce_statistics<S>(p, g, factors.group);
    return;
  }
  take_registers<consumer_registers>();
  consume_queries<S>(p, g, factors);
}

// 128 queries of one head against tiles of `tile` keys. d_q's product of a tile is computed while the next one's scores
// are waited for, so that of keys three tiles are there.
template <int head_, int value_head_, int tile_>
struct SpecializedQueries {
  static constexpr int head = head_, value_head = value_head_, tile = tile_, rows = group_rows * consumer_groups;
  using Queries = Panels<rows, head>;
  using Outputs = Panels<rows, value_head>;  // their gradients
  using Keys = Panels<tile, head>;
  using Values = Panels<tile, value_head>;
  struct Control {
    alignas(16) float unread[4];  // device/warpgroup.hpp's compute_before_wait
    BlockRows rows;
    TileBits bits;
    Mbarrier own;
    Ring<3> keys;
    Ring<2> values;
  };
  static constexpr std::size_t bytes =
      sizeof(bf16) * (Queries::values_all + Outputs::values_all + 3 * Keys::values_all + 2 * Values::values_all) +
      sizeof(Control);
};

template <class S>
struct QueriesMemory {
  bf16* panels = aligned_panels();

  __device__ typename S::Queries q() const { return {panels}; }
  __device__ typename S::Outputs u() const { return {panels + S::Queries::values_all}; }
  __device__ typename S::Keys keys(int place) const {
    return {panels + S::Queries::values_all + S::Outputs::values_all + place * S::Keys::values_all};
  }
  __device__ typename S::Values values(int place) const { return {keys(3).values + place * S::Values::values_all}; }
  __device__ typename S::Control* control() const { return reinterpret_cast<typename S::Control*>(values(2).values); }
};

template <class S>
__device__ void produce(const Problem<bf16>& p, const Gradients<bf16>& g, int task) {
  const QueriesMemory<S> memory;
  typename S::Control* control = memory.control();
  const BlockRows& block = control->rows;
  load_by_warp<producer_warps>(p.q, block.row_q, block.head, block.count, memory.q(), task);
  load_by_warp<producer_warps>(g.d_o, block.row_q, block.head, block.count, memory.u(), task);
  announce(&control->own);
  produce_keys<S>(p, memory, task);
}

template <class S>
__device__ void consume_keys(const Problem<bf16>& p, const Gradients<bf16>& g, const Factors& factors) {
  const QueriesMemory<S> memory;
  constexpr int j = S::tile / 8;
  typename S::Control* control = memory.control();
  const BlockRows& block = control->rows;
  const int row = 16 * warp(), group_row = row / group_rows * group_rows, keys = static_cast<int>(p.n.Tk);
  float lse[2], delta[2], d_q[1][S::head / 8][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = row + 8 * half + lane() / 4;
    const bool inside = at < block.count;
    lse[half] = inside ? lse_to_subtract(g.lse.row(block.row_q + at)[block.head]) : infinity<float>();
    delta[half] = inside ? g.delta.row(block.row_q + at)[block.head] : 0;
  }
  clear(d_q);
  Turn<3> of_keys;
  Turn<2> of_values;
  mbarrier_wait(&control->own, 0);
  if (Visit at = wait_until_full(control->keys, of_keys); at.valid()) {
    bool first = true;
    do {
      float s[1][j][4], d_p[1][j][4];
      const typename S::Keys k = memory.keys(of_keys.place());
      const typename S::Values v = memory.values(of_values.place());
      begin_warpgroup_products();
      start_product_of_rows<S::head>(s[0], memory.q().row(group_row), S::Queries::panel_bytes, k.values,
                                     S::Keys::panel_bytes);
      finish_products<1>(d_q[0]);
      if (!first) mbarrier_arrive_as_warp(control->keys.empty + of_keys.before().place());
      first = false;
      wait_until_full(control->values, of_values);
      begin_warpgroup_products();
      start_product_of_rows<S::value_head>(d_p[0], memory.u().row(group_row), S::Outputs::panel_bytes, v.values,
                                           S::Values::panel_bytes);
      finish_products<1>(s[0]);
      if (!at.whole() || at.first() + S::tile > keys)
        hide<true>(OwnPlaces<1>(query_places(p.mask, block.row_q, block.count, block.first), row),
                   key_places(p.mask, block.row_k, keys, 0).tile(at.first(), S::tile), farthest(p.mask.window), s);
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][t][e] = exp2_approximate(factors.exponent * s[0][t][e] - lse[e / 2]);
      compute_before_wait(s[0], control->unread);
      finish_products<0>(d_p[0]);
      mbarrier_arrive_as_warp(control->values.empty + of_values.place());
#pragma unroll
      for (int t = 0; t < j; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) d_p[0][t][e] = s[0][t][e] * (d_p[0][t][e] - delta[e / 2]);
      std::uint32_t z[j / 2][4];
      pack_words(d_p[0], z);
      begin_warpgroup_products();
      start_product(d_q[0], z, k.values, S::Keys::panel_bytes);
      of_keys.next();
      of_values.next();
      at = wait_until_full(control->keys, of_keys);
    } while (at.valid());
    finish_products<0>(d_q[0]);
  }

  // The result goes through this warp's rows of q, which no other warp reads.
  __syncwarp();
  const float scale = static_cast<float>(p.shape.scale);
  const float scales[1][2] = {{scale, scale}};
  store_rows(d_q, scales, memory.q(), row, head_rows(View<const bf16, 3>(g.d_q), block.row_q, block.head), 0,
             block.count);
}

template <class S>
__global__ void __launch_bounds__(specialized_threads, 1)
    specialized_queries_kernel(Problem<bf16> p, Gradients<bf16> g, Factors factors) {
  prepare_queries<S>(p, factors.group, QueriesMemory<S>().control());
  if (warp() >= consumer_warps) {
    give_registers<producer_registers>();
    return produce<S>(p, g, warp() - consumer_warps);
  }
  take_registers<consumer_registers>();
  consume_keys<S>(p, g, factors);
}

template <class S>
void launch_keys(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  if (const std::int64_t blocks = p.n.B * p.n.K * tiles_of(p.n.Tk, S::rows); blocks > 0)
    launch(stream, "attention, backward of keys (tensor cores)", specialized_keys_kernel<S>,
           {blocks, specialized_threads, S::bytes}, p, g, Factors(p));
}

template <class S>
void launch_queries(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  if (const std::int64_t blocks = p.n.B * p.n.H * tiles_of(p.n.Tq, S::rows); blocks > 0)
    launch(stream, "attention, backward of queries (tensor cores)", specialized_queries_kernel<S>,
           {blocks, specialized_threads, S::bytes}, p, g, Factors(p));
}

}  // namespace

void specialized_backward(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g) {
  with_largest<SpecializedKeys<64, 64, 64>, SpecializedKeys<128, 128, 64>, SpecializedKeys<192, 128, 32>>(
      p.n, [&]<class S>(S) { launch_keys<S>(stream, p, g); });
  with_largest<SpecializedQueries<64, 64, 128>, SpecializedQueries<128, 128, 128>, SpecializedQueries<192, 128, 64>>(
      p.n, [&]<class S>(S) { launch_queries<S>(stream, p, g); });
}

}  // namespace forge::attention_mma
