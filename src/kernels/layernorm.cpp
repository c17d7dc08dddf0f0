#include "device/parallel.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/kernels.hpp"
#include "kernels/math.hpp"

namespace forge {

namespace {

// Of a row in the gradients of w, dy · (x − mean) · rstd, and of b.
template <class A>
struct Statistics {
  A mean, rstd;
};
template <class A>
struct WeightTerm {
  template <class T>
  FORGE_INLINE A operator()(const Statistics<A>& row, const T& dy, const T& x) const {
    return A(dy) * ((A(x) - row.mean) * row.rstd);
  }
};
template <class A>
struct BiasTerm {
  template <class T>
  FORGE_INLINE A operator()(NoScale, const T& dy) const {
    return A(dy);
  }
};

}  // namespace

template <class T>
void layernorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, View<const T, 1> b, double epsilon,
                       View<T, 2> y, View<acc_t<T>, 1> mean, View<acc_t<T>, 1> rstd) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  const T *weight = w.data, *bias = b.data;
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto in = team.row(n, x.row(r));
    const A mu = team.template sum<A>(
                     n, [=](const T& x_j) { return A(x_j); }, in) /
                 A(n);
    const A squares = team.template sum<A>(
        n, [=](const T& x_j) { return (A(x_j) - mu) * (A(x_j) - mu); }, in);
    const A scale = A(1) / math::sqrt(squares / A(n) + A(epsilon));
    team.map(
        n,
        [=](const T& w_j, const T& x_j, const T& b_j, T& out) { out = T(A(w_j) * ((A(x_j) - mu) * scale) + A(b_j)); },
        weight, in, bias, y.row(r));
    if (team.leads()) {
      mean[r] = mu;
      rstd[r] = scale;
    }
  });
}

// With x̂ = (x − mean) · rstd and g = w ⊙ dy:  dx = rstd · (g − mean(g) − x̂ · mean(g ⊙ x̂)) + residual.
template <class T>
void layernorm_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                        View<const acc_t<T>, 1> mean, View<const acc_t<T>, 1> rstd, View<const T, 2> residual,
                        View<T, 2> dx) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  const T* weight = w.data;
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* extra = residual.empty() ? nullptr : residual.row(r);
    const auto d = team.row(n, dy.row(r)), in = team.row(n, x.row(r));
    const A mu = mean[r], scale = rstd[r];
    const A g_mean = team.template sum<A>(
                         n, [=](const T& dy_j, const T& w_j) { return A(dy_j) * A(w_j); }, d, weight) /
                     A(n);
    const A dot = team.template sum<A>(
        n, [=](const T& dy_j, const T& w_j, const T& x_j) { return A(dy_j) * A(w_j) * (A(x_j) - mu); }, d, weight, in);
    const A slope = dot * scale * scale / A(n);
    if (extra)
      team.map(
          n,
          [=](const T& more, const T& dy_j, const T& w_j, const T& x_j, T& out) {
            out = T(A(more) + scale * (A(dy_j) * A(w_j) - g_mean - (A(x_j) - mu) * slope));
          },
          extra, d, weight, in, dx.row(r));
    else
      team.map(
          n,
          [=](const T& dy_j, const T& w_j, const T& x_j, T& out) {
            out = T(scale * (A(dy_j) * A(w_j) - g_mean - (A(x_j) - mu) * slope));
          },
          d, weight, in, dx.row(r));
  });
}

template <class T>
void layernorm_weight_gradient(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const acc_t<T>, 1> mean,
                               View<const acc_t<T>, 1> rstd, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw,
                               View<acc_t<T>, 1> db) {
  using A = acc_t<T>;
  add_column_sums<A, T>(
      stream, x.rows(), 1, aligned_rows(dy) && aligned_rows(x), partial, dw,
      [=] FORGE_LAMBDA(std::int64_t r, std::int64_t first) {
        return column_line(dy.row(r) + first, x.row(r) + first, Statistics<A>{mean[r], rstd[r]});
      },
      WeightTerm<A>{});
  column_sum<T>(stream, dy, partial, db);
}

template <class T>
void column_sum(Stream& stream, View<const T, 2> dy, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> db) {
  using A = acc_t<T>;
  add_column_sums<A, T>(
      stream, dy.rows(), 1, aligned_rows(dy), partial, db,
      [=] FORGE_LAMBDA(std::int64_t r, std::int64_t first) { return column_line(dy.row(r) + first); }, BiasTerm<A>{});
}

#define FORGE_LAYERNORM(T)                                                                                             \
  template void layernorm_forward<T>(Stream&, View<const T, 2>, View<const T, 1>, View<const T, 1>, double,            \
                                     View<T, 2>, View<acc_t<T>, 1>, View<acc_t<T>, 1>);                                \
  template void layernorm_backward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const T, 1>,                   \
                                      View<const acc_t<T>, 1>, View<const acc_t<T>, 1>, View<const T, 2>, View<T, 2>); \
  template void layernorm_weight_gradient<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const acc_t<T>, 1>,     \
                                             View<const acc_t<T>, 1>, View<acc_t<T>, 2>, View<acc_t<T>, 1>,            \
                                             View<acc_t<T>, 1>);                                                       \
  template void column_sum<T>(Stream&, View<const T, 2>, View<acc_t<T>, 2>, View<acc_t<T>, 1>);
FORGE_COMPUTE_TYPES(FORGE_LAYERNORM)

}  // namespace forge
