#include <limits>

#include "kernels/attention/attention_host.hpp"

// Attention backward on the host. One work item per sequence and head of keys owns d_k, d_v and the d_q of its queries,
// so that the five products are computed once and nothing is shared between threads. Where there are fewer of these
// items than threads, d_k and d_v have one item per tile of keys and d_q one per tile of queries; the scores are then
// computed twice. Both ways add the same numbers in the same order.

namespace forge {

namespace {

using namespace attention_detail;

template <class T>
struct BackwardCall {
  using A = acc_t<T>;

  Call<T> call;
  View<const T, 3> d_o;
  View<const A, 2> lse, delta;
  View<T, 3> d_q, d_k, d_v;
  View<A, 3> sums;
};

// The tiles of one item.
template <class T>
struct BackwardTiles {
  using A = acc_t<T>;

  A *k_t, *v_t, *k, *q, *d_o, *d_k_t, *d_v_t, *d_q, *scores, *d_scores, *dropout, *slopes, *lse, *delta, *ones;
  std::int64_t k_columns;
  TilePlaces<A> places_q, places_k;

  BackwardTiles(const BackwardTiles&) = delete;
  BackwardTiles(const Call<T>& call, int thread) : k_columns(round_up(call.n.D)) {
    Scratch<A> scratch = call.scratch(thread);
    const std::int64_t D = call.n.D, Dv = call.n.Dv;
    k_t = scratch.take(D * tile);
    v_t = scratch.take(Dv * tile);
    k = scratch.take(tile * k_columns);
    q = scratch.take(tile * D);
    d_o = scratch.take(tile * Dv);
    d_k_t = scratch.take(D * tile);
    d_v_t = scratch.take(Dv * tile);
    d_q = scratch.take(tile * k_columns);
    scores = scratch.take(tile * tile);
    d_scores = scratch.take(tile * tile);
    dropout = call.shape.dropout > 0 ? scratch.take(tile * tile) : nullptr;
    slopes = call.shape.soft_cap > 0 ? scratch.take(tile * tile) : nullptr;
    lse = scratch.take(tile);
    delta = scratch.take(tile);
    ones = scratch.take(tile);
    std::fill_n(ones, tile, A(1));
  }
};

// A pair of tiles: rows of queries from row_q, keys from row_k.
struct Pair {
  std::int64_t head = 0, row_q = 0, rows = 0, row_k = 0, keys = 0;
  Visibility seen = Visibility::none;
  Quarters quarters;
};

// The gradients of the queries, of the keys and values, or both.
enum class Wanted { queries, keys, all };

// Adds a pair to d_k and d_v of its tile of keys, and to the sums of d_q. The tile holds k and v.
template <class T>
void backward_pair(const BackwardCall<T>& b, const Pair& at, Wanted want, BackwardTiles<T>& t) {
  using A = acc_t<T>;
  const Call<T>& call = b.call;
  const AttentionSizes& n = call.n;
  const auto& run = call.run;
  const std::int64_t lanes = round_up(at.keys);
  for (std::int64_t i = 0; i < at.rows; ++i) {
    // A query that sees no key has lse −Inf; with +Inf its probabilities become 0 instead of NaN.
    const A lse = b.lse.row(at.row_q + i)[at.head];
    const A none = -std::numeric_limits<A>::infinity();
    t.lse[i] = lse == none ? -none : lse * static_cast<A>(log2_e);
    t.delta[i] = b.delta.row(at.row_q + i)[at.head];
  }
  run.pack(call.q.row(at.row_q) + at.head * n.D, call.q.pitch, at.rows, n.D, A(1), t.q, n.D);
  run.pack(b.d_o.row(at.row_q) + at.head * n.Dv, b.d_o.pitch, at.rows, n.Dv, A(1), t.d_o, n.Dv);
  const TileProduct<A> qk{at.rows, lanes, n.D, t.q, n.D, t.k_t, tile, t.scores, tile, nullptr};
  call.product_to_scores(at.quarters, qk);
  if (at.seen == Visibility::some) {
    call.queries.copy(at.row_q, at.rows, t.places_q);
    run.mask_keys_in_lanes(t.scores, at.rows, lanes, &t.places_q, &t.places_k, call.limit());
  }
  if (t.slopes) call.cap(t.scores, at.rows, lanes, t.slopes);
  const TileProduct<A> d_p{at.rows, lanes, n.Dv, t.d_o, n.Dv, t.v_t, tile, t.d_scores, tile, nullptr};
  call.product_to_scores(at.quarters, d_p);
  if (t.dropout) call.template draw_dropout<false>(at.head, at.row_q, at.row_k, at.rows, at.keys, t.dropout);
  run.softmax_backward(t.scores, t.d_scores, at.rows, lanes, t.lse, t.delta, t.dropout);
  if (t.slopes) Call<T>::multiply(t.slopes, at.rows, lanes, t.d_scores);
  if (want != Wanted::queries) {
    const TileProduct<A> d_v{n.Dv, lanes, at.rows, t.d_o, n.Dv, t.scores, tile, t.d_v_t, tile, t.ones};
    call.product_from_scores(at.quarters, d_v);
    const TileProduct<A> d_k{n.D, lanes, at.rows, t.q, n.D, t.d_scores, tile, t.d_k_t, tile, t.ones};
    call.product_from_scores(at.quarters, d_k);
  }
  if (want == Wanted::keys) return;
  const TileProduct<A> d_q{at.rows, t.k_columns, at.keys, t.d_scores,  tile,
                           t.k,     t.k_columns, t.d_q,   t.k_columns, nullptr};
  call.product_by_scores(at.quarters, d_q);
  run.add(t.d_q, t.k_columns, at.rows, n.D, b.sums.row(at.row_q) + at.head * n.D, b.sums.pitch);
}

// What products over a tile of keys need of k and v.
template <class T>
void load_keys(const BackwardCall<T>& b, std::int64_t kv_head, std::int64_t row_k, std::int64_t keys,
               BackwardTiles<T>& t) {
  using A = acc_t<T>;
  const Call<T>& call = b.call;
  const AttentionSizes& n = call.n;
  const T* k = call.k.row(row_k) + kv_head * n.D;
  call.keys.copy(row_k, keys, t.places_k);
  call.run.pack_transposed(k, call.k.pitch, keys, n.D, static_cast<A>(call.shape.scale * log2_e), t.k_t);
  call.run.pack(k, call.k.pitch, keys, n.D, static_cast<A>(call.shape.scale), t.k, t.k_columns);
  call.run.pack_transposed(call.v.row(row_k) + kv_head * n.Dv, call.v.pitch, keys, n.Dv, A(1), t.v_t);
}

// The tiles of queries from `first_q` and of keys from `first_k`; false where no query sees a key.
template <class T>
bool find_pair(const Call<T>& call, std::int64_t sequence, std::int64_t first_q, std::int64_t first_k, Pair& at) {
  const AttentionSizes& n = call.n;
  at.row_q = sequence * n.Tq + first_q;
  at.rows = std::min(tile, n.Tq - first_q);
  at.row_k = sequence * n.Tk + first_k;
  at.keys = std::min(tile, n.Tk - first_k);
  at.seen = attention_visibility(call.queries.span(at.row_q, at.rows), call.keys.span(at.row_k, at.keys), call.window);
  at.quarters = {};
  if (at.seen == Visibility::some) at.quarters = call.template quarters<false>(at.row_q, at.rows, at.row_k, at.keys);
  return at.seen != Visibility::none;
}

// One tile of keys: all queries of the heads that read it.
template <class T>
void backward_keys(const BackwardCall<T>& b, std::int64_t sequence, std::int64_t kv_head, std::int64_t first,
                   Wanted want, BackwardTiles<T>& t) {
  using A = acc_t<T>;
  const Call<T>& call = b.call;
  const AttentionSizes& n = call.n;
  const std::int64_t row_k = sequence * n.Tk + first, keys = std::min(tile, n.Tk - first);
  load_keys(b, kv_head, row_k, keys, t);
  std::fill_n(t.d_k_t, n.D * tile, A(0));
  std::fill_n(t.d_v_t, n.Dv * tile, A(0));
  Pair at;
  for (std::int64_t i = 0; i < n.Tq; i += tile) {
    if (!find_pair(call, sequence, i, first, at)) continue;
    for (at.head = kv_head * n.group(); at.head < (kv_head + 1) * n.group(); ++at.head) backward_pair(b, at, want, t);
  }
  std::fill_n(t.lse, tile, static_cast<A>(call.shape.scale));
  call.run.unpack_transposed(t.d_k_t, keys, n.D, t.lse, b.d_k.row(row_k) + kv_head * n.D, b.d_k.pitch);
  call.run.unpack_transposed(t.d_v_t, keys, n.Dv, t.ones, b.d_v.row(row_k) + kv_head * n.Dv, b.d_v.pitch);
}

// Sets the sums of a block of d_q to 0, and rounds them to d_q when they are complete.
template <class T>
void clear_sums(const BackwardCall<T>& b, Range rows, Range heads) {
  for (std::int64_t r = rows.begin; r < rows.end; ++r)
    std::fill_n(b.sums.row(r) + heads.begin * b.call.n.D, heads.size() * b.call.n.D, acc_t<T>(0));
}
template <class T>
void finish_sums(const BackwardCall<T>& b, Range rows, Range heads) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    if (b.sums.data == b.d_q.data) return;
  }
  const std::int64_t first = heads.begin * b.call.n.D, columns = heads.size() * b.call.n.D;
  for (std::int64_t r = rows.begin; r < rows.end; ++r)
    b.call.run.convert_row(b.sums.row(r) + first, columns, b.d_q.row(r) + first);
}

// All gradients of one sequence and head of keys.
template <class T>
void backward_item(const BackwardCall<T>& b, std::int64_t item, int thread) {
  const AttentionSizes& n = b.call.n;
  const std::int64_t sequence = item / n.K, kv_head = item % n.K;
  const Range rows{sequence * n.Tq, (sequence + 1) * n.Tq}, heads{kv_head * n.group(), (kv_head + 1) * n.group()};
  BackwardTiles<T> tiles(b.call, thread);
  clear_sums(b, rows, heads);
  for (std::int64_t j = 0; j < n.Tk; j += tile) backward_keys(b, sequence, kv_head, j, Wanted::all, tiles);
  finish_sums(b, rows, heads);
}

// d_k and d_v of one tile of keys.
template <class T>
void keys_item(const BackwardCall<T>& b, std::int64_t item, int thread) {
  const AttentionSizes& n = b.call.n;
  const std::int64_t tiles_k = tiles_of(n.Tk), first = item % tiles_k * tile;
  BackwardTiles<T> tiles(b.call, thread);
  backward_keys(b, item / tiles_k / n.K, item / tiles_k % n.K, first, Wanted::keys, tiles);
}

// d_q of one tile of queries and one head.
template <class T>
void queries_item(const BackwardCall<T>& b, std::int64_t item, int thread) {
  const AttentionSizes& n = b.call.n;
  const std::int64_t tiles_q = tiles_of(n.Tq), first = (tiles_q - 1 - item % tiles_q) * tile;
  const std::int64_t head = item / tiles_q % n.H, sequence = item / tiles_q / n.H;
  const std::int64_t row_q = sequence * n.Tq + first;
  const Range rows{row_q, row_q + std::min(tile, n.Tq - first)}, heads{head, head + 1};
  BackwardTiles<T> tiles(b.call, thread);
  clear_sums(b, rows, heads);
  Pair at;
  at.head = head;
  for (std::int64_t j = 0; j < n.Tk; j += tile) {
    if (!find_pair(b.call, sequence, first, j, at)) continue;
    load_keys(b, head / n.group(), at.row_k, at.keys, tiles);
    backward_pair(b, at, Wanted::queries, tiles);
  }
  finish_sums(b, rows, heads);
}

}  // namespace

template <class T>
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> d_o,
                        View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, View<const acc_t<T>, 2> lse,
                        View<const acc_t<T>, 2> delta, View<T, 3> d_q, View<T, 3> d_k, View<T, 3> d_v,
                        View<acc_t<T>, 3> sums, View<const T, 3>) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    if (sums.empty()) sums = d_q;
  }
  const BackwardCall<T> b{Call<T>(shape, mask, q, k, v), d_o, lse, delta, d_q, d_k, d_v, sums};
  check_attention_gradients(b.call.n, d_o, lse, delta, d_q, d_k, d_v, sums);
  const AttentionSizes& n = b.call.n;
  const int threads = b.call.threads(stream);
  if (n.B * n.K >= threads)
    return run_items(stream, threads, n.B * n.K, [=](std::int64_t i, int thread) { backward_item(b, i, thread); });
  run_items(stream, threads, n.B * n.K * tiles_of(n.Tk), [=](std::int64_t i, int thread) { keys_item(b, i, thread); });
  run_items(stream, threads, n.B * n.H * tiles_of(n.Tq),
            [=](std::int64_t i, int thread) { queries_item(b, i, thread); });
}

FORGE_INSTANTIATE_FUNCTION(attention_backward);

}  // namespace forge
