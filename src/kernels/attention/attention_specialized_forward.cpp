#include <algorithm>

#include "device/warpgroup.hpp"
#include "kernels/attention/attention_specialized.hpp"
#include "kernels/attention/attention_specialized_calls.hpp"

// attention_mma_forward.cpp's kernel by warps of different tasks: tiles come from shared memory, the rows of p from the
// registers that they were computed in. The sum of one tile's values is computed while the next one's scores become
// weights (Shah et al. 2024, FlashAttention-3, section 3.2). No dropout, whose draws take registers.

namespace forge {

bool specialized_takes(const AttentionShape& shape, View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
                       View<const bf16, 3> d_o) {
  const auto fits = [](const View<const bf16, 3>& x, std::int64_t most) {
    return x.extent(2) <= most && x.extent(2) % 8 == 0 && x.pitch % 8 == 0 &&
           reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
  };
  return fits(q, 192) && fits(k, 192) && fits(v, 128) && (d_o.empty() || fits(d_o, 128)) && shape.dropout == 0 &&
         std::max(shape.query_rows, shape.key_rows) <= specialized_rows && device_has_warpgroups();
}

}  // namespace forge

namespace forge::attention_mma {

namespace {

// 128 queries of one head against tiles of `tile` keys.
template <int head_, int value_head_, int tile_>
struct SpecializedForward {
  static constexpr int head = head_, value_head = value_head_, tile = tile_, rows = group_rows * consumer_groups;
  using Own = Panels<rows, head>;
  using Keys = Panels<tile, head>;
  using Values = Panels<tile, value_head>;
  struct Control {
    alignas(16) float unread[4];  // device/warpgroup.hpp's compute_before_wait
    BlockRows rows;
    TileBits bits;
    Mbarrier own;
    Ring<2> keys, values;
  };
  static constexpr std::size_t bytes =
      sizeof(bf16) * (Own::values_all + 2 * Keys::values_all + 2 * Values::values_all) + sizeof(Control);
};

// The block's shared memory.
template <class S>
struct ForwardMemory {
  bf16* panels = aligned_panels();

  __device__ typename S::Own q() const { return {panels}; }
  __device__ typename S::Keys keys(int place) const {
    return {panels + S::Own::values_all + place * S::Keys::values_all};
  }
  __device__ typename S::Values values(int place) const { return {keys(2).values + place * S::Values::values_all}; }
  __device__ typename S::Control* control() const { return reinterpret_cast<typename S::Control*>(values(2).values); }
};

template <class S>
__device__ void produce(const Problem<bf16>& p, int task) {
  const ForwardMemory<S> memory;
  typename S::Control* control = memory.control();
  const BlockRows& rows = control->rows;
  load_by_warp<producer_warps>(p.q, rows.row_q, rows.head, rows.count, memory.q(), task);
  announce(&control->own);
  produce_keys<S>(p, memory, task);
}

template <class S>
__device__ void consume(const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                        const View<float, 2>& peak, const Factors& factors) {
  const ForwardMemory<S> memory;
  constexpr int j = S::tile / 8;
  typename S::Control* control = memory.control();
  const BlockRows& rows = control->rows;
  const int row = 16 * warp(), group_row = row / group_rows * group_rows, keys = static_cast<int>(p.n.Tk);
  float s[1][j][4], sum[1][S::value_head / 8][4], keep[1][2];
  std::uint32_t weights[j / 2][4];
  Softmax<1, j> softmax(factors.exponent);
  clear(sum);
  const auto start_scores = [&](int place) {
    start_product_of_rows<S::head>(s[0], memory.q().row(group_row), S::Own::panel_bytes, memory.keys(place).values,
                                   S::Keys::panel_bytes);
  };
  const auto start_sum = [&](int place) {
    start_product(sum[0], weights, memory.values(place).values, S::Values::panel_bytes);
  };
  const auto weigh = [&](const Visit& at) {
    if (!at.whole() || at.first() + S::tile > keys)
      hide<true>(OwnPlaces<1>(query_places(p.mask, rows.row_q, rows.count, rows.first), row),
                 key_places(p.mask, rows.row_k, keys, 0).tile(at.first(), S::tile), farthest(p.mask.window), s);
    softmax.step(s, keep);
  };

  Turn<2> turn;
  mbarrier_wait(&control->own, 0);
  if (Visit at = wait_until_full(control->keys, turn); at.valid()) {
    begin_warpgroup_products();
    start_scores(turn.place());
    finish_products<0>(s[0]);
    mbarrier_arrive_as_warp(control->keys.empty + turn.place());
    weigh(at);
    pack_words(s[0], weights);
    turn.next();
    for (at = wait_until_full(control->keys, turn); at.valid(); at = wait_until_full(control->keys, turn)) {
      begin_warpgroup_products();
      start_scores(turn.place());
      const Turn<2> before = turn.before();
      wait_until_full(control->values, before);
      begin_warpgroup_products();
      start_sum(before.place());
      finish_products<1>(s[0]);
      mbarrier_arrive_as_warp(control->keys.empty + turn.place());
      weigh(at);
      compute_before_wait(softmax.total[0][0] + softmax.total[0][1], control->unread);
      finish_products<0>(sum[0]);
      mbarrier_arrive_as_warp(control->values.empty + before.place());
      if (risen(keep)) scale_rows(keep, sum);
      pack_words(s[0], weights);
      turn.next();
    }
    wait_until_full(control->values, turn.before());
    begin_warpgroup_products();
    start_sum(turn.before().place());
    finish_products<0>(sum[0]);
  }

  // The result goes through this warp's rows of q, which no other warp reads.
  __syncwarp();
  float factor[1][2];
  softmax.finish(Statistics{lse, peak, rows.row_q, rows.head, row, rows.count}, factor);
  store_rows(sum, factor, memory.q(), row, head_rows(View<const bf16, 3>(o), rows.row_q, rows.head), 0, rows.count);
}

template <class S>
__global__ void __launch_bounds__(specialized_threads, 1)
    specialized_forward_kernel(Problem<bf16> p, View<bf16, 3> o, View<float, 2> lse, View<float, 2> peak,
                               Factors factors) {
  prepare_queries<S>(p, factors.group, ForwardMemory<S>().control());
  if (warp() >= consumer_warps) {
    give_registers<producer_registers>();
    return produce<S>(p, warp() - consumer_warps);
  }
  take_registers<consumer_registers>();
  consume<S>(p, o, lse, peak, factors);
}

template <class S>
void launch_forward(Stream& stream, const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                    const View<float, 2>& peak) {
  if (const std::int64_t blocks = p.n.B * p.n.H * tiles_of(p.n.Tq, S::rows); blocks > 0)
    launch(stream, "attention, forward (tensor cores)", specialized_forward_kernel<S>,
           {blocks, specialized_threads, S::bytes}, p, o, lse, peak, Factors(p));
}

}  // namespace

void specialized_forward(Stream& stream, const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                         const View<float, 2>& peak) {
  with_largest<SpecializedForward<64, 64, 128>, SpecializedForward<128, 128, 128>, SpecializedForward<192, 128, 128>>(
      p.n, [&]<class S>(S) { launch_forward<S>(stream, p, o, lse, peak); });
}

}  // namespace forge::attention_mma
