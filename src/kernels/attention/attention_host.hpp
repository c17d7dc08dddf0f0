#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/array.hpp"
#include "core/to_size.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_mask.hpp"
#include "kernels/attention/attention_sizes.hpp"
#include "kernels/attention/attention_tiles.hpp"
#include "kernels/rows/math.hpp"

// Common parts of host attention's passes (FlashAttention: Dao et al. 2022, tiles and order of the loops).

namespace forge::attention_detail {

constexpr std::int64_t tile = attention_tile, half = tile / 2;
constexpr double log2_e = 1.4426950408889634074;
constexpr double ln_2 = 0.69314718055994530942;

// Lanes are processed in multiples of the widest vector of any type.
constexpr std::int64_t round_up(std::int64_t n) {
  return (n + 15) / 16 * 16;
}
constexpr std::int64_t tiles_of(std::int64_t n) {
  return (n + tile - 1) / tile;
}

// Hands out parts of a thread's memory.
template <class A>
struct Scratch {
  A* next;

  A* take(std::int64_t n) { return std::exchange(next, next + round_up(n)); }
};

// Runs f(0, thread) … f(items − 1, thread), in any order, on so many threads.
template <class F>
void run_items(Stream& stream, int threads, std::int64_t items, F f) {
  auto run = [=] {
    if (threads == 1 || items < 2) {
      for (std::int64_t i = 0; i < items; ++i) f(i, 0);
      return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (std::int64_t i = 0; i < items; ++i) f(i, omp_get_thread_num());
  };
  if (stream.runs_inline())
    run();
  else
    stream.submit(run);
}

// A range of one side of a tile.
struct Range {
  std::int64_t begin, end;

  std::int64_t size() const { return end - begin; }
};

// The quarters of a tile of scores in which some query sees some key: [half of the rows][half of the lanes]. A causal
// mask leaves out one of them in each tile on the diagonal.
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

  // The spans of each half of a tile.
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

// The arguments of a call, for both passes.
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

  // The stream's threads, or as many as have room for their tiles.
  int threads(const Stream& stream) const {
    const std::size_t room = shape.workspace_bytes / attention_thread_bytes<A>(n.D, n.Dv);
    require(room >= 1, "attention: its workspace is smaller than the tiles of one thread");
    return static_cast<int>(std::min<std::size_t>(room, to_size(stream.threads())));
  }
  Scratch<A> scratch(int thread) const {
    return {reinterpret_cast<A*>(shape.workspace + to_size(thread) * attention_thread_bytes<A>(n.D, n.Dv))};
  }

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

  // c tanh(s / c) of scores in units of log 2, behind the mask: hidden scores stay −Inf. Where slopes are wanted: 1 −
  // tanh²(s / c), 0 of hidden scores.
  void cap(A* scores, std::int64_t rows, std::int64_t lanes, A* slopes) const {
    const A most = static_cast<A>(shape.soft_cap * log2_e);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = i * tile; j < i * tile + lanes; ++j) {
        const bool hidden = scores[j] == -std::numeric_limits<A>::infinity();
        const A fraction = hidden ? A(1) : math::tanh(scores[j] / most);
        if (!hidden) scores[j] = most * fraction;
        if (slopes) slopes[j] = A(1) - fraction * fraction;
      }
    }
  }
  static void multiply(const A* by, std::int64_t rows, std::int64_t lanes, A* scores) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = i * tile; j < i * tile + lanes; ++j) scores[j] *= by[j];
  }

  // The factors of probabilities, for row i of a tile and lane j.
  template <bool queries_in_lanes>
  void draw_dropout(std::int64_t head, std::int64_t first_q, std::int64_t first_k, std::int64_t rows,
                    std::int64_t lanes, A* to) const {
    const std::uint64_t key = attention_dropout_key(shape.dropout_key, shape.first_head + head);
    const A factor = static_cast<A>(1 / (1 - shape.dropout));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < lanes; ++j) {
        const std::int64_t row_q = first_q + (queries_in_lanes ? j : i), row_k = first_k + (queries_in_lanes ? i : j);
        const bool kept =
            attention_kept(key, shape.samples[row_q], queries.positions[row_q], keys.positions[row_k], shape.dropout);
        to[i * tile + j] = kept ? factor : A(0);
      }
    }
  }
};

}  // namespace forge::attention_detail
