#include "device/parallel.hpp"
#include "device/rows_ahead.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/largest.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

template <class A>
FORGE_INLINE A rstd_of(A squares, std::int64_t n, A epsilon) {
  return A(1) / math::sqrt(squares / A(n) + epsilon);
}

// rstd of one vector of n values.
template <class A, class Row>
FORGE_INLINE A inverse_rms(Team team, std::int64_t n, A epsilon, const Row& x) {
  const A squares = team.template sum<A>(
      n, [=](const auto& x_j) { return A(x_j) * A(x_j); }, x);
  return rstd_of(squares, n, epsilon);
}

// Of columns j and j + n/2, which are added at a time: n is even.
template <class A>
struct SquaresOfPair {
  template <class T>
  FORGE_INLINE A operator()(const T& x_1, const T& x_2) const {
    return A(x_1) * A(x_1) + A(x_2) * A(x_2);
  }
};

// y = w ⊙ x · rstd of one vector of n values; returns rstd.
template <class A, class T, class Row>
FORGE_INLINE A normalise(Team team, std::int64_t n, A epsilon, const Row& x, const T* w, T* y, const RowAmaxes& amax,
                         std::int64_t r) {
  const A rstd = inverse_rms<A>(team, n, epsilon, x);
  map_and_measure(
      team, n, amax, r,
      [=](const T& w_j, const T& x_j, T& y_j) {
        y_j = T(A(w_j) * (A(x_j) * rstd));
        return magnitude(y_j);
      },
      w, x, y);
  return rstd;
}

// A term of g · x, g = w ⊙ dy.
template <class A>
struct SlopeTerm {
  template <class T>
  FORGE_INLINE A operator()(const T& dy_j, const T& w_j, const T& x_j) const {
    return A(dy_j) * A(w_j) * A(x_j);
  }
};

// With x̂ = x · rstd, g = w ⊙ dy and dot = g · x:  dx = rstd · (g − x̂ · mean(g ⊙ x̂)) + residual, if `adds`;
// sums += dy ⊙ x̂, if there are any.
template <class A, class T, class Row, class Weight, class Extra, class... S>
FORGE_INLINE void normalise_backward(Team team, std::int64_t n, A rstd, A dot, const Row& dy, const Row& x,
                                     const Weight& w, bool adds, const Extra& residual, T* dx, const S&... sums) {
  const A slope = dot * rstd * rstd / A(n);
  if (adds)
    team.map(
        n,
        [=](const T& extra, const T& dy_j, const T& w_j, const T& x_j, T& dx_j, auto&... sum) {
          ((sum += A(dy_j) * (A(x_j) * rstd)), ...);
          dx_j = T(A(extra) + rstd * (A(dy_j) * A(w_j) - A(x_j) * slope));
        },
        residual, dy, w, x, dx, sums...);
  else
    team.map(
        n,
        [=](const T& dy_j, const T& w_j, const T& x_j, T& dx_j, auto&... sum) {
          ((sum += A(dy_j) * (A(x_j) * rstd)), ...);
          dx_j = T(rstd * (A(dy_j) * A(w_j) - A(x_j) * slope));
        },
        dy, w, x, dx, sums...);
}

template <int packs, class T, class A>
void rmsnorm_forward_of(Stream& stream, View<const T, 2> x, View<const T, 1> w, A epsilon, View<T, 2> y,
                        View<A, 1> rstd, const RowAmaxes& amax) {
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto row = team.template row<packs>(n, x.row(r));
    const A scale = normalise<A>(team, n, epsilon, row, w.data, y.row(r), amax, r);
    if (team.leads()) rstd[r] = scale;
  });
}

// What is added is rounded before it is normalised, as it will be read again.
template <int packs, class T, class A>
void residual_rmsnorm_forward_of(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                                 A epsilon, View<T, 2> h, View<T, 2> y, View<A, 1> rstd, const RowAmaxes& amax) {
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto p = team.template row<packs>(n, residual.row(r)), q = team.template row<packs>(n, x.row(r));
    const auto sum = team.template made<packs>(
        n, [=](const T& p_j, const T& q_j) { return T(A(p_j) + A(q_j)); }, h.row(r), p, q);
    const A scale = normalise<A>(team, n, epsilon, sum, w.data, y.row(r), amax, r);
    if (team.leads()) rstd[r] = scale;
  });
}

}  // namespace

template <class T>
void rmsnorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, double epsilon, View<T, 2> y,
                     View<acc_t<T>, 1> rstd, const RowAmaxes& amax) {
  note_rows(stream, "norm_forward", bytes_in(x), bytes_in(y));
  with_kept_packs<T>(x.columns(), aligned_rows(x, w, y), [&](auto packs) {
    rmsnorm_forward_of<packs()>(stream, x, w, static_cast<acc_t<T>>(epsilon), y, rstd, amax);
  });
}

// h = T(residual + x), y = w ⊙ h · rstd of h.
template <class T>
void residual_rmsnorm_forward(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                              double epsilon, View<T, 2> h, View<T, 2> y, View<acc_t<T>, 1> rstd,
                              const RowAmaxes& amax) {
  note_rows(stream, "residual_norm_forward", bytes_in(residual, x), bytes_in(h, y));
  with_kept_packs<T>(x.columns(), aligned_rows(residual, x, w, h, y), [&](auto packs) {
    residual_rmsnorm_forward_of<packs()>(stream, residual, x, w, static_cast<acc_t<T>>(epsilon), h, y, rstd, amax);
  });
}

namespace {

// One walk through the rows of each chunk, which have dx and the chunk's part of dw.
template <int packs, class T, class A>
void rmsnorm_backward_of(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                         View<const A, 1> rstd, View<const T, 2> residual, View<T, 2> dx, View<A, 2> partial,
                         const RowChunks& chunks) {
  const std::int64_t n = x.columns();
  const bool adds = !residual.empty();
  parallel_rows_ahead<T, 3, packs, 1>(stream, chunks.count, n, [=] FORGE_LAMBDA(std::int64_t c, Team team) {
    const auto sums = team.template sums<A, T, packs>(n, partial.row(c));
    const std::int64_t begin = chunks.begin(c), end = chunks.begin(c + 1);
    const auto weight = row_beside<packs>(team, n, w.data);
    const auto ahead = rows_ahead<T, 3, packs>(team, n, begin, end, [=](std::int64_t r) {
      return Array<const T*, 3>{{dy.row(r), x.row(r), adds ? residual.row(r) : nullptr}};
    });
    for (std::int64_t r = begin; r < end; ++r) {
      const auto rows = ahead.at(r);
      const A scale = rstd[r], dot = team.template sum<A>(n, SlopeTerm<A>{}, rows[0], weight, rows[1]);
      normalise_backward(team, n, scale, dot, rows[0], rows[1], weight, adds, rows[2], dx.row(r), sums);
    }
    team.store(n, sums);
  });
}

}  // namespace

template <class T>
void rmsnorm_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                      View<const acc_t<T>, 1> rstd, View<const T, 2> residual, View<T, 2> dx, View<acc_t<T>, 2> partial,
                      View<acc_t<T>, 1> dw) {
  note_rows(stream, "norm_backward", bytes_in(dy, x, residual), bytes_in(dx));
  const RowChunks chunks = norm_backward_rows(x.rows());
  with_packs<T>(x.columns(), aligned_rows(dy, x, w, residual, dx, partial), [&](auto packs) {
    rmsnorm_backward_of<packs()>(stream, dy, x, w, rstd, residual, dx, partial, chunks);
  });
  add_partial_sums<acc_t<T>>(stream, partial.slice(0, chunks.count), dw);
}

namespace {

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

// n = w ⊙ x · rstd of each head, rounded as a norm of its own would be; then, of its last 2h entries,
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
        whole, [=](const T& w_j, const T& x_j, T& y_j) { y_j = T(normed(w_j, x_j, scale)); }, weight, in, out);
    if (h > 0) {
      const T *w1 = weight + whole, *x1 = in + whole;
      team.map(
          h,
          [=](const T& w_low, const T& w_high, const T& x_low, const T& x_high, const A& cos, const A& sin, T& low,
              T& high) { rotate(normed(w_low, x_low, scale), normed(w_high, x_high, scale), cos, sin, low, high); },
          w1, w1 + h, x1, x1 + h, cosine.row(positions[r]), sine.row(positions[r]), out + whole, out + whole + h);
    }
    if (team.leads()) rstd.row(r)[head] = scale;
  };
  parallel_rows(stream, x.rows(), heads, row_width<T>(halves ? n / 2 : n), body);
}

namespace {

// Of the heads [first, first + count) of each row, which have the same weight; the sums of dw's terms in each chunk of
// rows go to `sums`.
template <bool whole, class T, class A>
void head_norm_backward_of(Stream& stream, std::int64_t first, std::int64_t count, View<const T, 3> dy,
                           View<const T, 3> x, View<const T, 1> w, View<const A, 2> rstd, View<T, 3> dx,
                           View<A, 2> sums) {
  constexpr int together = whole ? rows_at_a_time : 1;
  const std::int64_t n = x.extent(2), rows = x.rows(), chunks = sums.rows();
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
          dys[i] = team.template row<1, whole>(width, dy.row(row) + head * n);
          xs[i] = team.template row<1, whole>(width, x.row(row) + head * n);
          scales[i] = rstd.row(row)[head];
          to[i] = dx.row(row) + head * n;
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

}  // namespace

template <class T>
void head_norm_backward(Stream& stream, View<const T, 3> dy, View<const T, 3> x, const HeadWeights<T>& w,
                        View<const acc_t<T>, 2> rstd, View<T, 3> dx, View<acc_t<T>, 2> partial,
                        View<acc_t<T>, 1> d_queries, View<acc_t<T>, 1> d_keys) {
  note_rows(stream, "head_norm_backward", bytes_in(dy, x), bytes_in(dx));
  require(x.rows() < std::int64_t{1} << 23 && x.rows() * x.extent(1) < std::int64_t{1} << 31,
          "head_norm_backward: more than 2^23 rows or 2^31 heads");
  const View<acc_t<T>, 2> sums = partial.slice(0, head_chunks(x.rows()));
  const std::int64_t queries = w.query_heads, keys = x.extent(1) - queries;
  const std::int64_t n = x.extent(2);
  const bool whole = rows_at_a_time > 1 && aligned_rows(dy, x, w.queries, w.keys, dx) &&
                     n * static_cast<int>(sizeof(T)) % 16 == 0 && row_width<T>(n).accesses <= 32;
  const auto run = whole ? &head_norm_backward_of<true, T, acc_t<T>> : &head_norm_backward_of<false, T, acc_t<T>>;
  run(stream, 0, queries, dy, x, w.queries, rstd, dx, sums);
  add_partial_sums<acc_t<T>>(stream, sums, d_queries);
  run(stream, queries, keys, dy, x, w.keys, rstd, dx, sums);
  add_partial_sums<acc_t<T>>(stream, sums, d_keys);
}

#define FORGE_RMSNORM(T)                                                                                               \
  template void rmsnorm_forward<T>(Stream&, View<const T, 2>, View<const T, 1>, double, View<T, 2>, View<acc_t<T>, 1>, \
                                   const RowAmaxes&);                                                                  \
  template void residual_rmsnorm_forward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const T, 1>, double,     \
                                            View<T, 2>, View<T, 2>, View<acc_t<T>, 1>, const RowAmaxes&);              \
  template void rmsnorm_backward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const T, 1>,                     \
                                    View<const acc_t<T>, 1>, View<const T, 2>, View<T, 2>, View<acc_t<T>, 2>,          \
                                    View<acc_t<T>, 1>);                                                                \
  template void head_norm_forward<T>(Stream&, View<const T, 3>, const HeadWeights<T>&, double,                         \
                                     View<const std::int32_t, 1>, View<const acc_t<T>, 2>, View<const acc_t<T>, 2>,    \
                                     View<T, 3>, View<acc_t<T>, 2>);                                                   \
  template void head_norm_backward<T>(Stream&, View<const T, 3>, View<const T, 3>, const HeadWeights<T>&,              \
                                      View<const acc_t<T>, 2>, View<T, 3>, View<acc_t<T>, 2>, View<acc_t<T>, 1>,       \
                                      View<acc_t<T>, 1>);
FORGE_COMPUTE_TYPES(FORGE_RMSNORM)

}  // namespace forge
