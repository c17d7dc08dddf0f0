#include "kernels/attention_mma_forward.hpp"
#include "kernels/attention_warpgroup.hpp"

// attention_mma_forward.cpp's kernel, whose products are warpgroups': tiles come from shared memory, the rows of p from
// the registers that they were computed in. The sum of one tile's values is computed while the next one's scores become
// weights (Shah et al. 2024, FlashAttention-3, section 3.2). No dropout, whose draws take registers.

namespace forge::attention_mma {

namespace {

// `groups` times 64 queries of one head against tiles of `tile` keys. While the scores of one and the sum of the values
// before it are computed, its values and the next one's keys come.
template <int head_, int groups_, int tile_>
struct ForwardGroups {
  static constexpr int head = head_, value_head = head_, groups = groups_, tile = tile_, block_warps = 4 * groups,
                       threads = 32 * block_warps, rows = group_rows * groups;
  using Own = Panels<rows, head>;
  using Other = Panels<tile, head>;
  static constexpr std::size_t bytes =
      sizeof(bf16) * (Own::values_all + 4 * Other::values_all) + sizeof(ListMemory) + panel_alignment;
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    forward_kernel_of_groups(Problem<bf16> p, View<bf16, 3> o, View<float, 2> lse, View<float, 2> peak,
                             Factors factors) {
  constexpr int j = S::tile / 8;
  const AttentionSizes& n = p.n;
  const auto heads = static_cast<unsigned>(n.H), sequences = static_cast<unsigned>(n.B);
  const int h = static_cast<int>(blockIdx.x % heads), kv = h / factors.group;
  const int first =
      static_cast<int>(tiles_of(n.Tq, S::rows) - 1 - blockIdx.x / heads / sequences) * S::rows;  // the longest first
  const std::int64_t b = blockIdx.x / heads % sequences, row_q = b * n.Tq + first, row_k = b * n.Tk;

  bf16* memory = panel_memory();
  const typename S::Own q{memory};
  const auto tile_of = [&](int stage, int i) {  // keys or values
    return typename S::Other{memory + S::Own::values_all + (2 * stage + i) * S::Other::values_all};
  };
  auto* list = reinterpret_cast<ListMemory*>(memory + S::Own::values_all + 4 * S::Other::values_all);

  const int count = min(static_cast<int>(n.Tq) - first, S::rows);
  const int row = 16 * warp();
  load_tile<S::rows, S::head, S::threads>(head_rows(p.q, row_q, h), count, q);
  TileList<S::tile, true, S::block_warps> tiles(query_places(p.mask, row_q, count, first),
                                                key_places(p.mask, row_k, n.Tk, 0), head_rows(p.k, row_k, kv),
                                                head_rows(p.v, row_k, kv), p.mask.window, list);
  const auto load = [&](int keys_or_values, const Visit& at, int stage) {
    load_tile<S::tile, S::head, S::threads>(tiles.rows(keys_or_values, at.first()), static_cast<int>(n.Tk) - at.first(),
                                            tile_of(stage, keys_or_values));
  };
  // What comes next has landed for all, and nobody reads what it replaces any more.
  const auto meet = [&] {
    copy_async_wait<0>();
    publish_to_warpgroups();
    __syncthreads();
  };
  float s[1][j][4], sum[1][S::head / 8][4], keep[1][2];
  std::uint32_t weights[j / 2][4];
  Softmax<1, j> softmax(factors.exponent);
  const auto start_scores = [&](int stage) {
    start_product_of_rows<S::head>(s[0], q.row(row / group_rows * group_rows), S::Own::panel_bytes,
                                   tile_of(stage, 0).values, S::Other::panel_bytes);
  };
  const auto start_sum = [&](int stage) {
    start_product(sum[0], weights, tile_of(stage, 1).values, S::Other::panel_bytes);
  };
  const auto weigh = [&](const Visit& at) {
    if (!at.whole() || at.first() + S::tile > static_cast<int>(n.Tk))
      hide<true>(OwnPlaces<1>(tiles.own(), row), tiles.tile(at.first(), S::tile), farthest(p.mask.window), s);
    softmax.step(s, keep);
  };
  clear(sum);

  Visit tile = tiles.next();
  if (tile.valid()) load(0, tile, 0);
  copy_async_commit();
  if (tile.valid()) {
    Visit next = tiles.next();
    meet();
    begin_warpgroup_products();
    start_scores(0);
    load(1, tile, 0);
    if (next.valid()) load(0, next, 1);
    copy_async_commit();
    finish_products<0>(s[0]);
    weigh(tile);
    pack_words(s[0], weights);
    int stage = 1;
    for (tile = next; tile.valid(); tile = next, stage ^= 1) {
      next = tiles.next();
      meet();
      begin_warpgroup_products();
      start_scores(stage);
      start_sum(stage ^ 1);
      load(1, tile, stage);
      if (next.valid()) load(0, next, stage ^ 1);
      copy_async_commit();
      finish_products<1>(s[0]);
      weigh(tile);
      compute_before_wait(softmax.total[0][0] + softmax.total[0][1], list->unread);
      finish_products<0>(sum[0]);
      if (risen(keep)) scale_rows(keep, sum);
      pack_words(s[0], weights);
    }
    meet();
    begin_warpgroup_products();
    start_sum(stage ^ 1);
    finish_products<0>(sum[0]);
  }
  copy_async_wait<0>();
  __syncthreads();  // q's memory, which the result goes through, is read no more, and has landed even without a tile

  float factor[1][2];
  softmax.finish(Statistics{lse, peak, row_q, h, row, count}, factor);
  store_rows(sum, factor, q, row, head_rows(View<const bf16, 3>(o), row_q, h), 0, count);
}

template <class S>
void launch_forward(Stream& stream, const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                    const View<float, 2>& peak) {
  if (const std::int64_t blocks = p.n.B * p.n.H * tiles_of(p.n.Tq, S::rows); blocks > 0)
    launch(stream, "attention, forward (tensor cores)", forward_kernel_of_groups<S>, {blocks, S::threads, S::bytes}, p,
           o, lse, peak, Factors(p));
}

}  // namespace

void forward_of_groups(Stream& stream, const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                       const View<float, 2>& peak) {
  with_largest<ForwardGroups<64, 2, 128>, ForwardGroups<128, 2, 128>>(
      p.n, [&]<class S>(S) { launch_forward<S>(stream, p, o, lse, peak); });
}

}  // namespace forge::attention_mma
