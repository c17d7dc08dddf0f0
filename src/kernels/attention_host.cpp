#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/array.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_mask.hpp"
#include "kernels/attention_sizes.hpp"
#include "kernels/attention_tiles.hpp"

// Host attention (FlashAttention: Dao et al. 2022, tiles and order of the loops). Forward: one work item per sequence, head
// and tile of queries. Backward: one per sequence and head of keys, which owns d_k, d_v and the d_q of its queries, so
// that the five products are computed once and nothing is shared between threads.

namespace forge {

namespace {

constexpr std::int64_t tile = attention_tile, half = tile / 2;
constexpr double log2_e = 1.4426950408889634074;
constexpr double ln_2 = 0.69314718055994530942;

// Lanes are processed in multiples of the widest vector of any type.
constexpr std::int64_t round_up(std::int64_t n) { return (n + 15) / 16 * 16; }
constexpr std::int64_t tiles_of(std::int64_t n) { return (n + tile - 1) / tile; }

// Runs f(0) … f(items − 1), in any order, on the threads of the stream.
template <class F>
void run_items(Stream& stream, std::int64_t items, F f) {
  auto run = [=, threads = stream.threads()] {
    if (threads == 1 || items < 2) {
      for (std::int64_t i = 0; i < items; ++i) f(i);
      return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (std::int64_t i = 0; i < items; ++i) f(i);
  };
  if (stream.runs_inline())
    run();
  else
    stream.submit(run);
}

// Hands out parts of one block of the stack. Pages that no tile reaches are never touched.
template <class A, std::int64_t elements>
struct Scratch {
  alignas(64) A data[elements];
  std::int64_t used = 0;

  A* take(std::int64_t n) {
    A* p = data + used;
    used += round_up(n);
    return p;
  }
};

// A range of one side of a tile.
struct Range {
  std::int64_t begin, end;

  std::int64_t size() const { return end - begin; }
};

// The quarters of a tile of scores in which somebody sees somebody: [half of the rows][half of the lanes]. A causal mask
// leaves out one of them in each tile on the diagonal.
struct Quarters {
  bool seen[2][2] = {{true, true}, {true, true}};

  static Range covering(bool first, bool second, std::int64_t count) {
    if (!first && !second) return {0, 0};
    return {first ? 0 : std::min(half, count), second ? count : std::min(half, count)};
  }
  Range lanes(int half_of_rows, std::int64_t count) const {
    return covering(seen[half_of_rows][0], seen[half_of_rows][1], count);
  }
  Range rows(int half_of_lanes, std::int64_t count) const {
    return covering(seen[0][half_of_lanes], seen[1][half_of_lanes], count);
  }
  bool whole() const { return seen[0][0] && seen[0][1] && seen[1][0] && seen[1][1]; }
};

// The places of rows [begin, begin + count) of the queries or of the keys.
struct Places {
  View<const std::int32_t, 1> positions, documents;

  std::int32_t document(std::int64_t row) const { return documents.empty() ? 0 : documents[row]; }

  AttentionSpan span(std::int64_t begin, std::int64_t count) const {
    AttentionSpan s;
    for (std::int64_t r = begin; r < begin + count; ++r) {
      s.first_position = std::min(s.first_position, positions[r]);
      s.last_position = std::max(s.last_position, positions[r]);
    }
    if (documents.empty()) {
      s.first_document = s.last_document = 0;
      return s;
    }
    for (std::int64_t r = begin; r < begin + count; ++r) {
      s.first_document = std::min(s.first_document, documents[r]);
      s.last_document = std::max(s.last_document, documents[r]);
    }
    return s;
  }

  // Of each half of a tile.
  Array<AttentionSpan, 2> half_spans(std::int64_t begin, std::int64_t count) const {
    const std::int64_t first = std::min(half, count);
    return {{span(begin, first), span(begin + first, count - first)}};
  }

  template <class A>
  void copy(std::int64_t begin, std::int64_t count, TilePlaces<A>& to) const {
    for (std::int64_t i = 0; i < tile; ++i) {
      to.positions[i] = i < count ? positions[begin + i] : 0;
      to.documents[i] = i < count ? document(begin + i) : 0;
    }
  }
};

// What both passes know of a call.
template <class T>
struct Call {
  using A = acc_t<T>;

  AttentionSizes n;
  AttentionShape shape;
  Places queries, keys;
  std::int64_t window;
  View<const T, 3> q, k, v;
  TileFunctions<T> run;

  Call(const AttentionShape& s, const AttentionMask& mask, const View<const T, 3>& q_, const View<const T, 3>& k_,
       const View<const T, 3>& v_)
      : n(attention_sizes(s, mask, q_, k_, v_)),
        shape(s),
        queries{mask.position_q, mask.document_q},
        keys{mask.position_k, mask.document_k},
        window(mask.window),
        q(q_),
        k(k_),
        v(v_),
        run(tile_functions<T>()) {}

  std::int64_t limit() const { return window > 0 ? std::min<std::int64_t>(window - 1, INT32_MAX) : INT32_MAX; }

  // Which quarters of a tile are seen, `row` and `lane` being its first row and lane.
  template <bool queries_in_lanes>
  Quarters quarters(std::int64_t row, std::int64_t rows, std::int64_t lane, std::int64_t lanes) const {
    const auto of_rows = (queries_in_lanes ? keys : queries).half_spans(row, rows);
    const auto of_lanes = (queries_in_lanes ? queries : keys).half_spans(lane, lanes);
    Quarters q;
    for (int r : {0, 1})
      for (int l : {0, 1})
        q.seen[r][l] = attention_visibility(queries_in_lanes ? of_lanes[l] : of_rows[r],
                                            queries_in_lanes ? of_rows[r] : of_lanes[l], window) != Visibility::none;
    return q;
  }

  // The three kinds of products, of which only the seen quarters are computed. c is a tile of scores:
  void product_to_scores(const Quarters& q, const TileProduct<A>& all) const {
    if (q.whole()) return run.product_rows(&all);
    for (int h : {0, 1}) {
      const std::int64_t row = h * half;
      const Range lanes = q.lanes(h, all.lanes);
      if (row >= all.m || lanes.size() == 0) continue;
      TileProduct<A> part = all;
      part.m = h == 0 ? std::min(half, all.m) : all.m - half;
      part.lanes = lanes.size();
      part.a += row * all.lda;
      part.b += lanes.begin;
      part.c += row * all.ldc + lanes.begin;
      run.product_rows(&part);
    }
  }
  // b is a tile of scores:
  void product_from_scores(const Quarters& q, const TileProduct<A>& all) const {
    if (q.whole()) return run.product_columns(&all);
    for (int h : {0, 1}) {
      const std::int64_t lane = h * half;
      const Range rows = q.rows(h, all.k);
      if (lane >= all.lanes || rows.size() == 0) continue;
      TileProduct<A> part = all;
      part.lanes = h == 0 ? std::min(half, all.lanes) : all.lanes - half;
      part.k = rows.size();
      part.a += rows.begin * all.lda;
      part.b += rows.begin * all.ldb + lane;
      part.c += lane;
      part.keep += lane;
      run.product_columns(&part);
    }
  }
  // a is a tile of scores:
  void product_by_scores(const Quarters& q, const TileProduct<A>& all) const {
    if (q.whole()) return run.product_rows(&all);
    for (int h : {0, 1}) {
      const std::int64_t row = h * half;
      const Range lanes = q.lanes(h, all.k);
      if (row >= all.m) continue;
      TileProduct<A> part = all;
      part.m = h == 0 ? std::min(half, all.m) : all.m - half;
      part.k = lanes.size();
      part.a += row * all.lda + lanes.begin;
      part.b += lanes.begin * all.ldb;
      part.c += row * all.ldc;
      run.product_rows(&part);
    }
  }

  // What a probability is multiplied by, for row i of a tile and lane j.
  template <bool queries_in_lanes>
  void draw_dropout(std::int64_t head, std::int64_t first_q, std::int64_t first_k, std::int64_t rows,
                    std::int64_t lanes, A* to) const {
    const std::uint64_t key = attention_dropout_key(shape.dropout_key, shape.first_head + head);
    const A factor = static_cast<A>(1 / (1 - shape.dropout));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < lanes; ++j) {
        const std::int64_t row_q = first_q + (queries_in_lanes ? j : i), row_k = first_k + (queries_in_lanes ? i : j);
        const bool kept = attention_kept(key, shape.samples[row_q], queries.positions[row_q], keys.positions[row_k],
                                         shape.dropout);
        to[i * tile + j] = kept ? factor : A(0);
      }
    }
  }
};

// ---- forward ----------------------------------------------------------------------------------------------------------

template <class T>
void forward_item(const Call<T>& call, std::int64_t item, const View<T, 3>& o, const View<acc_t<T>, 2>& lse) {
  using A = acc_t<T>;
  const AttentionSizes& n = call.n;
  const std::int64_t q_tiles = tiles_of(n.Tq);
  const std::int64_t first = (q_tiles - 1 - item % q_tiles) * tile;  // late queries see the most keys: start with them
  const std::int64_t h = item / q_tiles % n.H, b = item / q_tiles / n.H;
  const std::int64_t kv_head = h / n.group();
  const std::int64_t row_q = b * n.Tq + first, rows = std::min(tile, n.Tq - first), lanes = round_up(rows);
  const auto& run = call.run;

  Scratch<A, tile * (4 * attention_largest_head + 2 * tile + 4)> scratch;
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

  run.pack_transposed(call.q.row(row_q) + h * n.D, call.q.pitch, rows, n.D, static_cast<A>(call.shape.scale * log2_e), q_t);
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
    if (dropout) call.template draw_dropout<true>(h, row_q, row_k, keys, rows, dropout);
    run.softmax(scores, keys, lanes, largest, total, keep, dropout);
    run.pack(call.v.row(row_k) + kv_head * n.Dv, call.v.pitch, keys, n.Dv, A(1), v, n.Dv);
    const TileProduct<A> pv{n.Dv, lanes, keys, v, n.Dv, scores, tile, o_t, tile, keep};
    call.product_from_scores(q, pv);
  }

  for (std::int64_t i = 0; i < rows; ++i) {
    const bool none = total[i] == A(0);
    lse.row(row_q + i)[h] = none ? -std::numeric_limits<A>::infinity()
                                 : static_cast<A>(largest[i] * A(ln_2) + std::log(total[i]));
    keep[i] = none ? A(0) : A(1) / total[i];
  }
  run.unpack_transposed(o_t, rows, n.Dv, keep, o.row(row_q) + h * n.Dv, o.pitch);
}

// ---- backward ---------------------------------------------------------------------------------------------------------

template <class T>
struct BackwardCall {
  using A = acc_t<T>;

  Call<T> call;
  View<const T, 3> d_o;
  View<const A, 2> lse, delta;
  View<T, 3> d_q, d_k, d_v;
  View<A, 3> sums;
};

// The stack of one item.
template <class T>
struct BackwardTiles {
  using A = acc_t<T>;

  Scratch<A, tile*(8 * attention_largest_head + 3 * tile + 3)> scratch;
  A *k_t, *v_t, *k, *q, *d_o, *d_k_t, *d_v_t, *d_q, *scores, *d_scores, *dropout, *lse, *delta, *ones;
  std::int64_t k_columns;
  TilePlaces<A> places_q, places_k;

  explicit BackwardTiles(const Call<T>& call) : k_columns(round_up(call.n.D)) {
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
    lse = scratch.take(tile);
    delta = scratch.take(tile);
    ones = scratch.take(tile);
    std::fill_n(ones, tile, A(1));
  }
};

// A pair of tiles: rows of queries from row_q, keys from row_k.
struct Pair {
  std::int64_t head, row_q, rows, row_k, keys;
  Visibility seen;
  Quarters quarters;
};

// Adds one tile of queries to the gradients of one tile of keys, and its d_q to the sums.
template <class T>
void backward_pair(const BackwardCall<T>& b, const Pair& at, BackwardTiles<T>& t) {
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
  const TileProduct<A> d_p{at.rows, lanes, n.Dv, t.d_o, n.Dv, t.v_t, tile, t.d_scores, tile, nullptr};
  call.product_to_scores(at.quarters, d_p);
  if (t.dropout)
    call.template draw_dropout<false>(at.head, at.row_q, at.row_k, at.rows, at.keys, t.dropout);
  run.softmax_backward(t.scores, t.d_scores, at.rows, lanes, t.lse, t.delta, t.dropout);
  const TileProduct<A> d_v{n.Dv, lanes, at.rows, t.d_o, n.Dv, t.scores, tile, t.d_v_t, tile, t.ones};
  call.product_from_scores(at.quarters, d_v);
  const TileProduct<A> d_k{n.D, lanes, at.rows, t.q, n.D, t.d_scores, tile, t.d_k_t, tile, t.ones};
  call.product_from_scores(at.quarters, d_k);
  const TileProduct<A> d_q{at.rows, t.k_columns, at.keys, t.d_scores, tile, t.k, t.k_columns, t.d_q, t.k_columns, nullptr};
  call.product_by_scores(at.quarters, d_q);
  run.add(t.d_q, t.k_columns, at.rows, n.D, b.sums.row(at.row_q) + at.head * n.D, b.sums.pitch);
}

// One tile of keys: all queries of the heads that read it.
template <class T>
void backward_keys(const BackwardCall<T>& b, std::int64_t sequence, std::int64_t kv_head, std::int64_t first,
                   BackwardTiles<T>& t) {
  using A = acc_t<T>;
  const Call<T>& call = b.call;
  const AttentionSizes& n = call.n;
  const A scale = static_cast<A>(call.shape.scale);
  const std::int64_t row_k = sequence * n.Tk + first, keys = std::min(tile, n.Tk - first);
  const AttentionSpan span_k = call.keys.span(row_k, keys);
  const T* k = call.k.row(row_k) + kv_head * n.D;
  call.keys.copy(row_k, keys, t.places_k);
  call.run.pack_transposed(k, call.k.pitch, keys, n.D, static_cast<A>(call.shape.scale * log2_e), t.k_t);
  call.run.pack(k, call.k.pitch, keys, n.D, scale, t.k, t.k_columns);
  call.run.pack_transposed(call.v.row(row_k) + kv_head * n.Dv, call.v.pitch, keys, n.Dv, A(1), t.v_t);
  std::fill_n(t.d_k_t, n.D * tile, A(0));
  std::fill_n(t.d_v_t, n.Dv * tile, A(0));
  for (std::int64_t i = 0; i < n.Tq; i += tile) {
    Pair at{0, sequence * n.Tq + i, std::min(tile, n.Tq - i), row_k, keys, Visibility::none, {}};
    at.seen = attention_visibility(call.queries.span(at.row_q, at.rows), span_k, call.window);
    if (at.seen == Visibility::none) continue;
    if (at.seen == Visibility::some) at.quarters = call.template quarters<false>(at.row_q, at.rows, row_k, keys);
    for (std::int64_t g = 0; g < n.group(); ++g) {
      at.head = kv_head * n.group() + g;
      backward_pair(b, at, t);
    }
  }
  std::fill_n(t.lse, tile, scale);
  call.run.unpack_transposed(t.d_k_t, keys, n.D, t.lse, b.d_k.row(row_k) + kv_head * n.D, b.d_k.pitch);
  call.run.unpack_transposed(t.d_v_t, keys, n.Dv, t.ones, b.d_v.row(row_k) + kv_head * n.Dv, b.d_v.pitch);
}

template <class T>
void backward_item(const BackwardCall<T>& b, std::int64_t item) {
  using A = acc_t<T>;
  const AttentionSizes& n = b.call.n;
  const std::int64_t sequence = item / n.K, kv_head = item % n.K;
  const std::int64_t columns = n.group() * n.D, column = kv_head * columns;
  for (std::int64_t r = sequence * n.Tq; r < (sequence + 1) * n.Tq; ++r)
    std::fill_n(b.sums.row(r) + column, columns, A(0));
  BackwardTiles<T> tiles(b.call);
  for (std::int64_t j = 0; j < n.Tk; j += tile) backward_keys(b, sequence, kv_head, j, tiles);
  if constexpr (std::is_same_v<T, A>) {
    if (b.sums.data == b.d_q.data) return;
  }
  for (std::int64_t r = sequence * n.Tq; r < (sequence + 1) * n.Tq; ++r)
    b.call.run.convert_row(b.sums.row(r) + column, columns, b.d_q.row(r) + column);
}

}  // namespace

template <class T>
void attention_forward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> q,
                       View<const T, 3> k, View<const T, 3> v, View<T, 3> o, View<acc_t<T>, 2> lse) {
  const Call<T> call(shape, mask, q, k, v);
  check_attention_output(call.n, o, lse);
  run_items(stream, call.n.B * call.n.H * tiles_of(call.n.Tq),
            [=](std::int64_t item) { forward_item(call, item, o, lse); });
}

template <class T>
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionMask& mask, View<const T, 3> d_o,
                        View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, View<const acc_t<T>, 2> lse,
                        View<const acc_t<T>, 2> delta, View<T, 3> d_q, View<T, 3> d_k, View<T, 3> d_v,
                        View<acc_t<T>, 3> sums) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    if (sums.empty()) sums = d_q;
  }
  const BackwardCall<T> b{Call<T>(shape, mask, q, k, v), d_o, lse, delta, d_q, d_k, d_v, sums};
  check_attention_gradients(b.call.n, d_o, lse, delta, d_q, d_k, d_v, sums);
  run_items(stream, b.call.n.B * b.call.n.K, [=](std::int64_t item) { backward_item(b, item); });
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
