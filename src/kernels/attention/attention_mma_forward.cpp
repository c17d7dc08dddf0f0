#include <cmath>

#include "core/to_size.hpp"
#include "device/warpgroup.hpp"
#include "kernels/attention/attention_mma.hpp"
#include "kernels/attention/attention_mma_forward.hpp"
#include "kernels/attention/attention_specialized_calls.hpp"

namespace forge::attention_mma {

namespace {

// A block of 64 or 128 queries of one head: `fragments` times 16 of them a warp, against tiles of `keys` keys, of which
// the next one comes while one is computed, `width` keys at once. Heads up to `head` and `value_head` columns.
template <int head_, int value_head_, int fragments_, int keys_, int width_ = keys_>
struct ForwardShape {
  static constexpr int head = head_, value_head = value_head_, fragments = fragments_, keys = keys_, width = width_;
  static constexpr int rows = 16 * warps * fragments;
  static constexpr std::size_t bytes =
      sizeof(bf16) * (rows * head + 2 * keys * (head + value_head)) + sizeof(ListMemory);
};

template <class S, bool dropout>
__global__ void __launch_bounds__(block_threads, 2)
    forward_kernel(Problem<bf16> p, View<bf16, 3> o, View<float, 2> lse, View<float, 2> peak, Factors factors) {
  constexpr int m = S::fragments, j = S::width / 8, d = S::value_head / 8;
  const AttentionSizes& n = p.n;
  const unsigned q_tiles = tiles_of(n.Tq, S::rows), heads = static_cast<unsigned>(n.H);
  const int first = static_cast<int>(q_tiles - 1 - blockIdx.x % q_tiles) * S::rows;  // the longest blocks first
  const int h = static_cast<int>(blockIdx.x / q_tiles % heads), kv = h / factors.group;
  const std::int64_t b = blockIdx.x / q_tiles / heads, row_q = b * n.Tq + first, row_k = b * n.Tk;

  bf16* memory = reinterpret_cast<bf16*>(dynamic_shared());
  const Tile<S::head> q{memory};
  const Stages<S::keys, S::head> k{memory + S::rows * S::head};
  bf16* values = memory + (S::rows + 2 * S::keys) * S::head;
  const Stages<S::keys, S::value_head> v{values};
  auto* list = reinterpret_cast<ListMemory*>(values + 2 * S::keys * S::value_head);

  const int count = min(static_cast<int>(n.Tq) - first, S::rows);
  const int row = 16 * m * warp();

  TileList<S::keys, true> tiles(query_places(p.mask, row_q, count, first), key_places(p.mask, row_k, n.Tk, 0),
                                head_rows(p.k, row_k, kv), head_rows(p.v, row_k, kv), p.mask.window, list);
  load_rows<S::rows>(head_rows(p.q, row_q, h), count, q);
  const auto load_keys = [&](int at, int stage) {
    load_rows<S::keys>(tiles.rows(0, at), static_cast<int>(n.Tk) - at, k[stage]);
    load_rows<S::keys>(tiles.rows(1, at), static_cast<int>(n.Tk) - at, v[stage]);
  };
  Visit tile = tiles.next();
  if (tile.valid()) load_keys(tile.first(), 0);
  copy_async_commit();

  float sum[m][d][4];
  clear(sum);
  Softmax<m, j> softmax(factors.exponent);
  for (int stage = 0; tile.valid(); stage ^= 1) {
    const Visit next = tiles.step(stage, load_keys);
#pragma unroll 1
    for (int at = 0; at < S::keys; at += S::width) {
      float s[m][j][4];
      clear(s);
      add_product_of_rows(q, row, rows_from(k[stage], at), s);
      const Places columns = tiles.tile(tile.first() + at, S::width);
      if (!tile.whole() || columns.count < S::width)
        hide<true>(OwnPlaces<m>(tiles.own(), row), columns, farthest(p.mask.window), s);
      float keep[m][2];
      softmax.step(s, keep);
      if constexpr (dropout)
        each_draw<true, m, j>(Draws(p.shape, factors.kept, h, row_q, count), OwnPlaces<m>(tiles.own(), row), row,
                              columns, [&](int i, int c, int e, float factor) { s[i][c][e] *= factor; });
      if (risen(keep)) scale_rows(keep, sum);
      add_product(as_weights(s), rows_from(v[stage], at), 0, sum);
    }
    tile = next;
  }
  copy_async_wait<0>();
  __syncthreads();  // q's memory, which the result goes through, has landed even where no tile was visited

  float factor[m][2];
  softmax.finish(Statistics{lse, peak, row_q, h, row, count}, factor);
  store_rows(sum, factor, q, row, head_rows(View<const bf16, 3>(o), row_q, h), 0, count);
}

template <class S, bool dropout>
void launch_forward(Stream& stream, const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                    const View<float, 2>& peak) {
  if (const std::int64_t blocks = p.n.B * p.n.H * tiles_of(p.n.Tq, S::rows); blocks > 0)
    launch(stream, "attention, forward (tensor cores)", forward_kernel<S, dropout>, {blocks, block_threads, S::bytes},
           p, o, lse, peak, Factors(p));
}

}  // namespace

void forward(Stream& stream, const Problem<bf16>& p, View<bf16, 3> o, View<float, 2> lse, View<float, 2> peak) {
  check_scale(p);
  if (p.shape.dropout > 0)  // draws take registers
    return with_largest<ForwardShape<64, 64, 1, 64>, ForwardShape<128, 128, 1, 64>, ForwardShape<192, 128, 1, 32>,
                        ForwardShape<256, 256, 1, 32, 16>>(
        p.n, [&]<class S>(S) { launch_forward<S, true>(stream, p, o, lse, peak); });
  if (specialized_takes(p.shape, p.q, p.k, p.v)) return specialized_forward(stream, p, o, lse, peak);
  with_largest<ForwardShape<64, 64, 2, 64>, ForwardShape<128, 128, 2, 64, 32>, ForwardShape<192, 128, 1, 64>,
               ForwardShape<192, 128, 1, 32>, ForwardShape<256, 256, 1, 64>, ForwardShape<256, 256, 1, 32, 16>>(
      p.n, [&]<class S>(S) { launch_forward<S, false>(stream, p, o, lse, peak); });
}

}  // namespace forge::attention_mma
