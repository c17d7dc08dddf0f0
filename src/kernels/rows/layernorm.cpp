#include "device/parallel.hpp"
#include "device/rows_ahead.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/largest.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

template <class A>
struct Statistics {
  A mean, rstd;
};

// Of a row in the gradient of b.
template <class A>
struct BiasTerm {
  template <class T>
  FORGE_INLINE A operator()(NoScale, const T& dy) const {
    return A(dy);
  }
};

// y = w ⊙ (x − mean) · rstd + b of one vector of n values; returns the statistics.
template <class A, class T, class Row>
FORGE_INLINE Statistics<A> normalise(Team team, std::int64_t n, A epsilon, const Row& x, const T* w, const T* b, T* y,
                                     const RowAmaxes& amax, std::int64_t r) {
  const A mean = team.template sum<A>(
                     n, [=](const T& x_j) { return A(x_j); }, x) /
                 A(n);
  const A squares = team.template sum<A>(
      n, [=](const T& x_j) { return (A(x_j) - mean) * (A(x_j) - mean); }, x);
  const A rstd = A(1) / math::sqrt(squares / A(n) + epsilon);
  map_and_measure(
      team, n, amax, r,
      [=](const T& w_j, const T& x_j, const T& b_j, T& y_j) {
        y_j = T(A(w_j) * ((A(x_j) - mean) * rstd) + A(b_j));
        return magnitude(y_j);
      },
      w, x, b, y);
  return {mean, rstd};
}

template <int packs, class T, class A>
void layernorm_forward_of(Stream& stream, View<const T, 2> x, View<const T, 1> w, View<const T, 1> b, A epsilon,
                          View<T, 2> y, View<A, 1> mean, View<A, 1> rstd, const RowAmaxes& amax) {
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto row = team.template row<packs>(n, x.row(r));
    const Statistics<A> of = normalise<A>(team, n, epsilon, row, w.data, b.data, y.row(r), amax, r);
    if (team.leads()) {
      mean[r] = of.mean;
      rstd[r] = of.rstd;
    }
  });
}

template <int packs, class T, class A>
void residual_layernorm_forward_of(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                                   View<const T, 1> b, A epsilon, View<T, 2> h, View<T, 2> y, View<A, 1> mean,
                                   View<A, 1> rstd, const RowAmaxes& amax) {
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto p = team.template row<packs>(n, residual.row(r)), q = team.template row<packs>(n, x.row(r));
    const auto sum = team.template made<packs>(
        n, [=](const T& p_j, const T& q_j) { return T(A(p_j) + A(q_j)); }, h.row(r), p, q);
    const Statistics<A> of = normalise<A>(team, n, epsilon, sum, w.data, b.data, y.row(r), amax, r);
    if (team.leads()) {
      mean[r] = of.mean;
      rstd[r] = of.rstd;
    }
  });
}

}  // namespace

template <class T>
void layernorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, View<const T, 1> b, double epsilon,
                       View<T, 2> y, View<acc_t<T>, 1> mean, View<acc_t<T>, 1> rstd, const RowAmaxes& amax) {
  note_rows(stream, "norm_forward", bytes_in(x), bytes_in(y));
  with_kept_packs<T>(x.columns(), aligned_rows(x, w, b, y), [&](auto packs) {
    layernorm_forward_of<packs()>(stream, x, w, b, static_cast<acc_t<T>>(epsilon), y, mean, rstd, amax);
  });
}

// h = T(residual + x), y = w ⊙ (h − mean) · rstd + b, as in kernels/rows/rmsnorm.cpp.
template <class T>
void residual_layernorm_forward(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                                View<const T, 1> b, double epsilon, View<T, 2> h, View<T, 2> y, View<acc_t<T>, 1> mean,
                                View<acc_t<T>, 1> rstd, const RowAmaxes& amax) {
  note_rows(stream, "residual_norm_forward", bytes_in(residual, x), bytes_in(h, y));
  with_kept_packs<T>(x.columns(), aligned_rows(residual, x, w, b, h, y), [&](auto packs) {
    residual_layernorm_forward_of<packs()>(stream, residual, x, w, b, static_cast<acc_t<T>>(epsilon), h, y, mean, rstd,
                                           amax);
  });
}

namespace {

// With x̂ = (x − mean) · rstd and g = w ⊙ dy:  dx = rstd · (g − mean(g) − x̂ · mean(g ⊙ x̂)) + residual, if `adds`;
// dw += dy ⊙ x̂, db += dy.
template <class A, class T, class Row, class Weight, class S>
FORGE_INLINE void layernorm_row_backward(Team team, std::int64_t n, A mu, A scale, const Row& d, const Row& in,
                                         const Weight& weight, bool adds, const Row& residual, T* dx, const S& dw,
                                         const S& db) {
  const Array<A, 2> sums = team.template two_sums<A>(
      n, [=](const T& dy_j, const T& w_j, const T&) { return A(dy_j) * A(w_j); },
      [=](const T& dy_j, const T& w_j, const T& x_j) { return A(dy_j) * A(w_j) * (A(x_j) - mu); }, d, weight, in);
  const A g_mean = sums[0] / A(n), slope = sums[1] * scale * scale / A(n);
  const auto add_and_find = [=](const T& dy_j, const T& w_j, const T& x_j, A& dw_j, A& db_j) {
    dw_j += A(dy_j) * ((A(x_j) - mu) * scale);
    db_j += A(dy_j);
    return scale * (A(dy_j) * A(w_j) - g_mean - (A(x_j) - mu) * slope);
  };
  if (adds)
    team.map(
        n,
        [=](const T& more, const T& dy_j, const T& w_j, const T& x_j, T& out, A& dw_j, A& db_j) {
          out = T(A(more) + add_and_find(dy_j, w_j, x_j, dw_j, db_j));
        },
        residual, d, weight, in, dx, dw, db);
  else
    team.map(
        n,
        [=](const T& dy_j, const T& w_j, const T& x_j, T& out, A& dw_j, A& db_j) {
          out = T(add_and_find(dy_j, w_j, x_j, dw_j, db_j));
        },
        d, weight, in, dx, dw, db);
}

template <int packs, class T, class A>
void layernorm_backward_of(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                           View<const A, 1> mean, View<const A, 1> rstd, View<const T, 2> residual, View<T, 2> dx,
                           View<A, 2> of_w, View<A, 2> of_b, const RowChunks& chunks) {
  const std::int64_t n = x.columns();
  const bool adds = !residual.empty();
  parallel_rows_ahead<T, 3, packs, 2>(stream, chunks.count, n, [=] FORGE_LAMBDA(std::int64_t c, Team team) {
    const auto w_sums = team.template sums<A, T, packs>(n, of_w.row(c)),
               b_sums = team.template sums<A, T, packs>(n, of_b.row(c));
    const std::int64_t begin = chunks.begin(c), end = chunks.begin(c + 1);
    const auto weight = row_beside<packs>(team, n, w.data);
    const auto ahead = rows_ahead<T, 3, packs>(team, n, begin, end, [=](std::int64_t r) {
      return Array<const T*, 3>{{dy.row(r), x.row(r), adds ? residual.row(r) : nullptr}};
    });
    for (std::int64_t r = begin; r < end; ++r) {
      const auto rows = ahead.at(r);
      layernorm_row_backward<A>(team, n, mean[r], rstd[r], rows[0], rows[1], weight, adds, rows[2], dx.row(r), w_sums,
                                b_sums);
    }
    team.store(n, w_sums);
    team.store(n, b_sums);
  });
}

}  // namespace

template <class T>
void layernorm_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                        View<const acc_t<T>, 1> mean, View<const acc_t<T>, 1> rstd, View<const T, 2> residual,
                        View<T, 2> dx, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw, View<acc_t<T>, 1> db) {
  note_rows(stream, "norm_backward", bytes_in(dy, x, residual), bytes_in(dx));
  using A = acc_t<T>;
  const RowChunks chunks = norm_backward_rows(x.rows());
  const View<A, 2> of_w = partial.slice(0, chunks.count), of_b = partial.slice(chunks.count, 2 * chunks.count);
  with_packs<T>(x.columns(), aligned_rows(dy, x, w, residual, dx, partial), [&](auto packs) {
    layernorm_backward_of<packs()>(stream, dy, x, w, mean, rstd, residual, dx, of_w, of_b, chunks);
  });
  add_partial_sums<A>(stream, of_w, dw);
  add_partial_sums<A>(stream, of_b, db);
}

template <class T>
void column_sum(Stream& stream, View<const T, 2> dy, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> db) {
  note_rows(stream, "column_sum", bytes_in(dy), 0);
  using A = acc_t<T>;
  add_column_sums<A, T>(
      stream, dy.rows(), 1, aligned_rows(dy), partial, db,
      [=] FORGE_LAMBDA(std::int64_t r, std::int64_t first) { return column_line(dy.row(r) + first); }, BiasTerm<A>{});
}

FORGE_INSTANTIATE_FUNCTION(layernorm_forward);
FORGE_INSTANTIATE_FUNCTION(residual_layernorm_forward);
FORGE_INSTANTIATE_FUNCTION(layernorm_backward);
FORGE_INSTANTIATE_FUNCTION(column_sum);

}  // namespace forge
