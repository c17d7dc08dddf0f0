#include <cmath>
#include <limits>

#include "kernels/attention/attention_host.hpp"

// Attention forward on the host: one work item per sequence, head and tile of queries.

namespace forge {

namespace {

using namespace attention_detail;

// largest(lane) ← max(largest, scores) over keys.
template <class A>
void raise(const A* scores, std::int64_t keys, std::int64_t lanes, A* largest) {
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t i = 0; i < lanes; ++i) largest[i] = std::max(largest[i], scores[j * tile + i]);
}

template <class T>
void forward_item(const Call<T>& call, std::int64_t item, int thread, const View<T, 3>& o, const View<acc_t<T>, 2>& lse,
                  const View<acc_t<T>, 2>& peak) {
  using A = acc_t<T>;
  const AttentionSizes& n = call.n;
  const std::int64_t q_tiles = tiles_of(n.Tq);
  const std::int64_t first = (q_tiles - 1 - item % q_tiles) * tile;  // late queries see the most keys: start with them
  const std::int64_t h = item / q_tiles % n.H, b = item / q_tiles / n.H;
  const std::int64_t kv_head = h / n.group();
  const std::int64_t row_q = b * n.Tq + first, rows = std::min(tile, n.Tq - first), lanes = round_up(rows);
  const auto& run = call.run;

  Scratch<A> scratch = call.scratch(thread);
  A* q_t = scratch.take(n.D * tile);
  A* o_t = scratch.take(n.Dv * tile);
  A* k = scratch.take(tile * n.D);
  A* v = scratch.take(tile * n.Dv);
  A* scores = scratch.take(tile * tile);
  A* dropout = call.shape.dropout > 0 ? scratch.take(tile * tile) : nullptr;
  A* largest = scratch.take(tile);
  A* total = scratch.take(tile);
  A* keep = scratch.take(tile);
  TilePlaces<A> places_q, places_k;
  const bool caps = call.shape.soft_cap > 0;
  A peaks[tile];  // as `largest`, of scores without their cap
  std::fill_n(peaks, tile, -std::numeric_limits<A>::infinity());

  run.pack_transposed(call.q.row(row_q) + h * n.D, call.q.pitch, rows, n.D, static_cast<A>(call.shape.scale * log2_e),
                      q_t);
  std::fill_n(o_t, n.Dv * tile, A(0));
  std::fill_n(largest, tile, -std::numeric_limits<A>::infinity());
  std::fill_n(total, tile, A(0));
  const AttentionSpan span_q = call.queries.span(row_q, rows);
  call.queries.copy(row_q, rows, places_q);

  for (std::int64_t j = 0; j < n.Tk; j += tile) {
    const std::int64_t row_k = b * n.Tk + j, keys = std::min(tile, n.Tk - j);
    const Visibility seen = attention_visibility(span_q, call.keys.span(row_k, keys), call.window);
    if (seen == Visibility::none) continue;
    const Quarters q = seen == Visibility::all ? Quarters{} : call.template quarters<true>(row_k, keys, row_q, rows);
    // Each value of k is read once: no copy is needed where it has the right type.
    TileProduct<A> qk{keys, lanes, n.D, k, n.D, q_t, tile, scores, tile, nullptr};
    const T* k_tile = call.k.row(row_k) + kv_head * n.D;
    if constexpr (std::is_same_v<T, A>) {
      qk.a = k_tile;
      qk.lda = call.k.pitch;
    } else {
      run.pack(k_tile, call.k.pitch, keys, n.D, A(1), k, n.D);
    }
    call.product_to_scores(q, qk);
    if (seen == Visibility::some) {
      call.keys.copy(row_k, keys, places_k);
      run.mask_queries_in_lanes(scores, keys, lanes, &places_k, &places_q, call.limit());
    }
    if (caps) {
      if (!peak.empty()) raise(scores, keys, rows, peaks);
      call.cap(scores, keys, lanes, nullptr);
    }
    if (dropout) call.template draw_dropout<true>(h, row_q, row_k, keys, rows, dropout);
    run.softmax(scores, keys, lanes, largest, total, keep, dropout);
    run.pack(call.v.row(row_k) + kv_head * n.Dv, call.v.pitch, keys, n.Dv, A(1), v, n.Dv);
    const TileProduct<A> pv{n.Dv, lanes, keys, v, n.Dv, scores, tile, o_t, tile, keep};
    call.product_from_scores(q, pv);
  }

  for (std::int64_t i = 0; i < rows; ++i) {
    const bool none = total[i] == A(0);
    lse.row(row_q + i)[h] =
        none ? -std::numeric_limits<A>::infinity() : static_cast<A>(largest[i] * A(ln_2) + std::log(total[i]));
    if (!peak.empty()) peak.row(row_q + i)[h] = (caps ? peaks : largest)[i] * A(ln_2);
    keep[i] = none ? A(0) : A(1) / total[i];
  }
  run.unpack_transposed(o_t, rows, n.Dv, keep, o.row(row_q) + h * n.Dv, o.pitch);
}

}  // namespace

template <class T>
void attention_forward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> q,
                       View<const T, 3> k, View<const T, 3> v, View<T, 3> o, View<acc_t<T>, 2> lse,
                       View<acc_t<T>, 2> peak) {
  const Call<T> call(shape, mask, q, k, v);
  check_attention_output(call.n, o, lse, peak);
  run_items(stream, call.threads(stream), call.n.B * call.n.H * tiles_of(call.n.Tq),
            [=](std::int64_t item, int thread) { forward_item(call, item, thread, o, lse, peak); });
}

FORGE_INSTANTIATE_FUNCTION(attention_forward);

}  // namespace forge
