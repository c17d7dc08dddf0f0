#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/rms_terms.hpp"

namespace forge {

namespace {

// Of columns j and j + n/2, which are added at a time: n is even.
template <class A>
struct SquaresOfPair {
  template <class T>
  FORGE_INLINE A operator()(const T& x_1, const T& x_2) const {
    return A(x_1) * A(x_1) + A(x_2) * A(x_2);
  }
};

template <class A, class T>
FORGE_INLINE A normed(const T& w, const T& x, A scale) {
  return A(w) * (A(x) * scale);
}

// (n1 cos − n2 sin, n2 cos + n1 sin) of two numbers of a head's norm, rounded as a norm of its own would be.
template <class A, class T>
FORGE_INLINE void rotate(A n1, A n2, A cos, A sin, T& low, T& high) {
  const A a = as_held<T>(n1), b = as_held<T>(n2);
  low = T(a * cos - b * sin);
  high = T(b * cos + a * sin);
}

// A head's norm, of which the halves have h numbers each, and its rotation.
template <bool rotates, class A, class T, class Half, class Angles>
FORGE_INLINE void put_halves(Team team, std::int64_t h, A scale, const Half& w_low, const Half& w_high, const Half& low,
                             const Half& high, const Angles& cosine, const Angles& sine, T* y) {
  if constexpr (rotates)
    team.map(
        h,
        [=](const T& w_1, const T& w_2, const T& x_1, const T& x_2, const A& cos, const A& sin, T& y_1, T& y_2) {
          rotate(normed(w_1, x_1, scale), normed(w_2, x_2, scale), cos, sin, y_1, y_2);
        },
        w_low, w_high, low, high, cosine, sine, y, y + h);
  else
    team.map(
        h,
        [=](const T& w_1, const T& w_2, const T& x_1, const T& x_2, T& y_1, T& y_2) {
          y_1 = T(normed(w_1, x_1, scale));
          y_2 = T(normed(w_2, x_2, scale));
        },
        w_low, w_high, low, high, y, y + h);
}

// On a GPU, of heads whose halves are rotated or which aren't rotated at all: a worker holds the same columns of both
// halves, so that a head is read once.
template <bool whole, bool rotates, class T, class A>
void head_norm_in_halves(Stream& stream, View<const T, 3> x, const HeadWeights<T>& w, A epsilon,
                         View<const std::int32_t, 1> positions, View<const A, 2> cosine, View<const A, 2> sine,
                         View<T, 3> y, View<A, 2> rstd) {
  constexpr int together = whole ? rows_at_a_time : 1;
  const std::int64_t heads = x.extent(1), n = x.extent(2), h = n / 2;
  const auto parts = [](std::int64_t of) { return (of + together - 1) / together; };  // of heads with one weight
  const std::int64_t of_queries = parts(w.query_heads), of_keys = parts(heads - w.query_heads);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t part, Team team) {
    using Half = decltype(team.template row<1, whole>(h, x.row(r)));
    Array<Half, together> lows, highs;
    Array<A, together> squares;
    const bool queries = part < of_queries;
    const int all = static_cast<int>(queries ? w.query_heads : heads);
    const int first = static_cast<int>(queries ? part * together : w.query_heads + (part - of_queries) * together);
    const auto width = [=](int i) { return first + i < all ? h : 0; };
    const T *const in = x.row(r) + first * n, *weight = queries ? w.queries.data : w.keys.data;
    for_each_of<together>([&](int i) {
      lows[i] = team.template row<1, whole>(width(i), in + i * n);
      highs[i] = team.template row<1, whole>(width(i), in + i * n + h);
    });
    const Half w_low = team.template row<1, whole>(h, weight), w_high = team.template row<1, whole>(h, weight + h);
    const auto cos = team.template beside<T, whole>(rotates ? h : 0, rotates ? cosine.row(positions[r]) : nullptr);
    const auto sin = team.template beside<T, whole>(rotates ? h : 0, rotates ? sine.row(positions[r]) : nullptr);
    for_each_of<together>(
        [&](int i) { squares[i] = team.template part_of_sum<A>(width(i), SquaresOfPair<A>{}, lows[i], highs[i]); });
    team.template add_parts<whole>(squares);
    T* const out = y.row(r) + first * n;
    for_each_of<together>([&](int i) {
      if (first + i >= all) return;
      const A scale = rstd_of(squares[i], n, epsilon);
      put_halves<rotates>(team, h, scale, w_low, w_high, lows[i], highs[i], cos, sin, out + i * n);
      if (team.leads()) rstd.row(r)[first + i] = scale;
    });
  };
  parallel_whole_warps<2>(stream, x.rows(), of_queries + of_keys, row_width<T>(h), body);
}

}  // namespace

// n = w ⊙ x · rstd of each head, rounded as a norm of its own would be; then, of its first 2h entries,
// y = (n1 cos − n2 sin, n2 cos + n1 sin). A head is read once from memory: the second time the caches have it.
template <class T>
void head_norm_forward(Stream& stream, View<const T, 3> x, const HeadWeights<T>& w, double epsilon,
                       View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
                       View<const acc_t<T>, 2> sine, View<T, 3> y, View<acc_t<T>, 2> rstd) {
  note_rows(stream, "head_norm_forward", bytes_in(x), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2), h = cosine.columns(), whole = n - 2 * h;
  require(whole >= 0, "head_norm_forward: more angles than pairs of a head");
  const bool halves = rows_at_a_time > 1 && n % 2 == 0 && row_width<T>(n / 2).accesses <= 32;
  if (halves && (whole == 0 || h == 0)) {
    const bool packs = aligned_rows(x, y, w.queries, w.keys) && (h == 0 || aligned_rows(cosine, sine)) &&
                       n / 2 * static_cast<int>(sizeof(T)) % 16 == 0;
    const auto run = h == 0 ? packs ? &head_norm_in_halves<true, false, T, A> : &head_norm_in_halves<false, false, T, A>
                     : packs ? &head_norm_in_halves<true, true, T, A>
                             : &head_norm_in_halves<false, true, T, A>;
    return run(stream, x, w, A(epsilon), positions, cosine, sine, y, rstd);
  }
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
    const T *in = x.row(r) + head * n, *weight = w.of(head);
    T* out = y.row(r) + head * n;
    const A scale = halves ? rstd_of(team.template sum<A>(n / 2, SquaresOfPair<A>{}, in, in + n / 2), n, A(epsilon))
                           : inverse_rms<A>(team, n, A(epsilon), in);
    team.map(
        whole, [=](const T& w_j, const T& x_j, T& y_j) { y_j = T(normed(w_j, x_j, scale)); }, weight + 2 * h,
        in + 2 * h, out + 2 * h);
    if (h > 0)
      team.map(
          h,
          [=](const T& w_low, const T& w_high, const T& x_low, const T& x_high, const A& cos, const A& sin, T& low,
              T& high) { rotate(normed(w_low, x_low, scale), normed(w_high, x_high, scale), cos, sin, low, high); },
          weight, weight + h, in, in + h, cosine.row(positions[r]), sine.row(positions[r]), out, out + h);
    if (team.leads()) rstd.row(r)[head] = scale;
  };
  parallel_rows(stream, x.rows(), heads, row_width<T>(halves ? n / 2 : n), body);
}

namespace {

// Heads [first, first + count) of each row, which have the same weight w, and where the sums of dw's terms in each
// chunk of rows go.
template <class T>
struct HeadsOfWeight {
  std::int64_t first, count;
  View<const T, 1> w;
  View<acc_t<T>, 2> sums;
};

// By which the first 2h entries of a head were rotated.
template <class A>
struct HeadAngles {
  View<const std::int32_t, 1> positions;
  View<const A, 2> cosine, sine;

  FORGE_INLINE std::int64_t h() const { return cosine.columns(); }
};

// (a cos + b sin, b cos − a sin) of a pair's gradient, rounded as `rotary` rounds it.
template <class A>
struct LowTurnedBack {
  template <class T>
  FORGE_INLINE T operator()(const T& a, const T& b, const A& cos, const A& sin) const {
    const A back = -sin;
    return T(A(a) * cos - A(b) * back);
  }
};
template <class A>
struct HighTurnedBack {
  template <class T>
  FORGE_INLINE T operator()(const T& a, const T& b, const A& cos, const A& sin) const {
    const A back = -sin;
    return T(A(b) * cos + A(a) * back);
  }
};
template <class A>
struct TurnBack {
  template <class T>
  FORGE_INLINE void operator()(T& a, T& b, const A& cos, const A& sin) const {
    const T low = LowTurnedBack<A>{}(a, b, cos, sin);
    b = HighTurnedBack<A>{}(a, b, cos, sin);
    a = low;
  }
};

// d: the gradient of y, in whose place that of x comes. Rotated heads, which aren't `whole`, are turned back first.
template <bool whole, class T, class A>
void head_norm_backward_of(Stream& stream, const HeadsOfWeight<T>& of, View<T, 3> d, View<const T, 3> x,
                           View<const A, 2> rstd, const HeadAngles<A>& angles) {
  constexpr int together = whole ? rows_at_a_time : 1;
  const View<A, 2> sums = of.sums;
  const View<const T, 1> w = of.w;
  const std::int64_t n = x.extent(2), rows = x.rows(), chunks = sums.rows(), first = of.first, count = of.count;
  parallel_rows<2>(stream, chunks, [=] FORGE_LAMBDA(std::int64_t c, Team block) {
    const int begin = static_cast<int>(quotient(rows * c, chunks) * count);
    const int end = static_cast<int>(quotient(rows * (c + 1), chunks) * count);
    block.sums_of_parts<A, T, whole>(n, sums.row(c), [&](Team team, int part, int parts, const auto& sum) {
      using Head = decltype(team.template row<1, whole>(n, x.row(0)));
      const Head weight = team.template row<1, whole>(n, w.data);
      for (int next = begin; next < end; next += parts * together) {  // as often for all parts, which add_parts needs
        const int q = next + part * together;
        Array<Head, together> dys, xs;
        Array<A, together> dots, scales;
        Array<T*, together> to;
        for_each_of<together>([&](int i) {
          const int pair = q + i < end ? q + i : begin, row = static_cast<int>(quotient(pair, count));
          const int head = static_cast<int>(first) + pair - row * static_cast<int>(count);
          const std::int64_t width = q + i < end ? n : 0;
          to[i] = d.row(row) + head * n;
          if (const std::int64_t h = whole ? 0 : angles.h(); h > 0) {
            T* const low = to[i];
            const std::int32_t position = angles.positions[row];
            team.map(width > 0 ? h : 0, TurnBack<A>{}, in_place(low), in_place(low + h), angles.cosine.row(position),
                     angles.sine.row(position));
            team.sync_parts();  // a worker reads numbers that others have turned back
          }
          dys[i] = team.template row<1, whole>(width, static_cast<const T*>(to[i]));
          xs[i] = team.template row<1, whole>(width, x.row(row) + head * n);
          scales[i] = rstd.row(row)[head];
        });
        for_each_of<together>([&](int i) {
          dots[i] = team.template part_of_sum<A>(q + i < end ? n : 0, SlopeTerm<A>{}, dys[i], weight, xs[i]);
        });
        team.template add_parts<whole>(dots);
        for_each_of<together>([&](int i) {
          if (q + i < end)
            normalise_backward(team, n, scales[i], dots[i], dys[i], xs[i], weight, false, dys[i], to[i], sum);
        });
      }
    });
  });
}

// A term of g · x in both halves of a head.
template <class A>
struct SlopeTermOfPair {
  template <class T>
  FORGE_INLINE A operator()(const T& d_1, const T& w_1, const T& x_1, const T& d_2, const T& w_2, const T& x_2) const {
    return SlopeTerm<A>{}(d_1, w_1, x_1) + SlopeTerm<A>{}(d_2, w_2, x_2);
  }
};

// On a GPU, of heads whose halves were rotated: a worker holds the same columns of both, so that a head is read once.
template <class T, class A>
void rotated_heads_backward_of(Stream& stream, const HeadsOfWeight<T>& of, View<T, 3> d, View<const T, 3> x,
                               View<const A, 2> rstd, const HeadAngles<A>& angles) {
  constexpr int together = rows_at_a_time > 1 ? rows_at_a_time / 2 : 1;
  const View<A, 2> sums = of.sums;
  const View<const T, 1> w = of.w;
  const std::int64_t n = x.extent(2), h = n / 2, rows = x.rows(), chunks = sums.rows(), first = of.first,
                     count = of.count;
  parallel_rows<2>(stream, chunks, [=] FORGE_LAMBDA(std::int64_t c, Team block) {
    const int begin = static_cast<int>(quotient(rows * c, chunks) * count);
    const int end = static_cast<int>(quotient(rows * (c + 1), chunks) * count);
    const auto heads = [&](Team team, int part, int parts, const auto& low_sums, const auto& high_sums) {
      using Half = decltype(team.template row<1, true>(h, x.row(0)));
      const Half w_low = team.template row<1, true>(h, w.data), w_high = team.template row<1, true>(h, w.data + h);
      for (int next = begin; next < end; next += parts * together) {  // as often for all parts, which add_parts needs
        const int q = next + part * together;
        Array<Half, together> d_lows, d_highs, lows, highs;
        Array<A, together> dots, scales;
        Array<T*, together> to;
        const auto width = [=](int i) { return q + i < end ? h : 0; };
        for_each_of<together>([&](int i) {
          const int pair = q + i < end ? q + i : begin, row = static_cast<int>(quotient(pair, count));
          const int head = static_cast<int>(first) + pair - row * static_cast<int>(count);
          const std::int32_t position = angles.positions[row];
          const T* const in = x.row(row) + head * n;
          to[i] = d.row(row) + head * n;
          const Half a = team.template row<1, true>(width(i), static_cast<const T*>(to[i])),
                     b = team.template row<1, true>(width(i), static_cast<const T*>(to[i] + h));
          const auto cos = team.template beside<T, true>(width(i), angles.cosine.row(position));
          const auto sin = team.template beside<T, true>(width(i), angles.sine.row(position));
          d_lows[i] = team.computed(width(i), LowTurnedBack<A>{}, to[i], a, b, cos, sin);
          d_highs[i] = team.computed(width(i), HighTurnedBack<A>{}, to[i] + h, a, b, cos, sin);
          lows[i] = team.template row<1, true>(width(i), in);
          highs[i] = team.template row<1, true>(width(i), in + h);
          scales[i] = rstd.row(row)[head];
        });
        for_each_of<together>([&](int i) {
          dots[i] = team.template part_of_sum<A>(width(i), SlopeTermOfPair<A>{}, d_lows[i], w_low, lows[i], d_highs[i],
                                                 w_high, highs[i]);
        });
        team.template add_parts<true>(dots);
        for_each_of<together>([&](int i) {
          const A slope = dots[i] * scales[i] * scales[i] / A(n);
          normalise_backward_by(team, width(i), scales[i], slope, d_lows[i], lows[i], w_low, to[i], low_sums);
          normalise_backward_by(team, width(i), scales[i], slope, d_highs[i], highs[i], w_high, to[i] + h, high_sums);
        });
      }
    };
    block.sums_of_parts<A, T, true>(h, sums.row(c), [&](Team team, int part, int parts, const auto& low_sums) {
      block.sums_of_parts<A, T, true>(h, sums.row(c) + h, [&](Team, int, int, const auto& high_sums) {
        heads(team, part, parts, low_sums, high_sums);
      });
    });
  });
}

}  // namespace

template <class T>
void head_norm_backward(Stream& stream, View<T, 3> d, View<const T, 3> x, const HeadWeights<T>& w,
                        View<const acc_t<T>, 2> rstd, View<const std::int32_t, 1> positions,
                        View<const acc_t<T>, 2> cosine, View<const acc_t<T>, 2> sine, View<acc_t<T>, 2> partial,
                        View<acc_t<T>, 1> d_queries, View<acc_t<T>, 1> d_keys) {
  note_rows(stream, "head_norm_backward", bytes_in(d, x), bytes_in(d));
  require(x.rows() < std::int64_t{1} << 23 && x.rows() * x.extent(1) < std::int64_t{1} << 31,
          "head_norm_backward: more than 2^23 rows or 2^31 heads");
  using A = acc_t<T>;
  const View<A, 2> sums = partial.slice(0, head_chunks(x.rows()));
  const std::int64_t queries = w.query_heads, keys = x.extent(1) - queries;
  const std::int64_t n = x.extent(2), h = cosine.columns(), piece = h > 0 ? h : n;
  require(2 * h <= n, "head_norm_backward: more angles than pairs of a head");
  const bool whole = rows_at_a_time > 1 && aligned_rows(d, x, w.queries, w.keys) &&
                     piece * static_cast<int>(sizeof(T)) % 16 == 0 && row_width<T>(piece).accesses <= 32;
  const bool halves = whole && 2 * h == n && aligned_rows(cosine, sine);
  const auto run = halves            ? &rotated_heads_backward_of<T, A>
                   : whole && h == 0 ? &head_norm_backward_of<true, T, A>
                                     : &head_norm_backward_of<false, T, A>;
  const HeadAngles<A> angles{positions, cosine, sine};
  run(stream, {0, queries, w.queries, sums}, d, x, rstd, angles);
  add_partial_sums<A>(stream, sums, d_queries);
  run(stream, {queries, keys, w.keys, sums}, d, x, rstd, angles);
  add_partial_sums<A>(stream, sums, d_keys);
}

FORGE_INSTANTIATE_FUNCTION(head_norm_forward);
FORGE_INSTANTIATE_FUNCTION(head_norm_backward);

}  // namespace forge
