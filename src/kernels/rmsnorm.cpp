#include "device/parallel.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/kernels.hpp"
#include "kernels/math.hpp"

namespace forge {

namespace {

// y = w ⊙ x · rstd of one vector of n values; returns rstd.
template <class A, class T>
FORGE_INLINE A normalise(Team team, std::int64_t n, A epsilon, const T* x, const T* w, T* y) {
  const A squares = team.template sum<A>(n, [=](std::int64_t j) { return A(x[j]) * A(x[j]); });
  const A rstd = A(1) / math::sqrt(squares / A(n) + epsilon);
  team.each(n, [=](std::int64_t j) { y[j] = T(A(w[j]) * (A(x[j]) * rstd)); });
  return rstd;
}

// With x̂ = x · rstd and g = w ⊙ dy:  dx = rstd · (g − x̂ · mean(g ⊙ x̂)) + residual (null: zero).
template <class A, class T>
FORGE_INLINE void normalise_backward(Team team, std::int64_t n, A rstd, const T* dy, const T* x, const T* w,
                                     const T* residual, T* dx) {
  const A dot = team.template sum<A>(n, [=](std::int64_t j) { return A(dy[j]) * A(w[j]) * A(x[j]); });
  const A slope = dot * rstd * rstd / A(n);
  if (residual)
    team.each(n, [=](std::int64_t j) { dx[j] = T(A(residual[j]) + rstd * (A(dy[j]) * A(w[j]) - A(x[j]) * slope)); });
  else
    team.each(n, [=](std::int64_t j) { dx[j] = T(rstd * (A(dy[j]) * A(w[j]) - A(x[j]) * slope)); });
}

}  // namespace

template <class T>
void rmsnorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, double epsilon, View<T, 2> y,
                     View<acc_t<T>, 1> rstd) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A scale = normalise<A>(team, n, A(epsilon), x.row(r), w.data, y.row(r));
    if (team.leads()) rstd[r] = scale;
  });
}

template <class T>
void rmsnorm_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                      View<const acc_t<T>, 1> rstd, View<const T, 2> residual, View<T, 2> dx) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* extra = residual.empty() ? nullptr : residual.row(r);
    normalise_backward<A>(team, n, rstd[r], dy.row(r), x.row(r), w.data, extra, dx.row(r));
  });
}

template <class T>
void rmsnorm_weight_gradient(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const acc_t<T>, 1> rstd,
                             View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw) {
  using A = acc_t<T>;
  add_column_sums<A>(stream, x.rows(), 1, partial, dw, [=] FORGE_LAMBDA(std::int64_t r, std::int64_t j) {
    return A(dy.row(r)[j]) * (A(x.row(r)[j]) * rstd[r]);
  });
}

// A head is a row here: task r · heads + h.
template <class T>
void head_norm_forward(Stream& stream, View<const T, 3> x, View<const T, 1> w, double epsilon, View<T, 3> y,
                       View<acc_t<T>, 2> rstd) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  parallel_rows(stream, x.rows() * heads, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t r = task / heads, h = task % heads;
    const A scale = normalise<A>(team, n, A(epsilon), x.row(r) + h * n, w.data, y.row(r) + h * n);
    if (team.leads()) rstd.row(r)[h] = scale;
  });
}

template <class T>
void head_norm_backward(Stream& stream, View<const T, 3> dy, View<const T, 3> x, View<const T, 1> w,
                        View<const acc_t<T>, 2> rstd, View<T, 3> dx) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  parallel_rows(stream, x.rows() * heads, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t r = task / heads, h = task % heads;
    const T* none = nullptr;
    normalise_backward<A>(team, n, rstd.row(r)[h], dy.row(r) + h * n, x.row(r) + h * n, w.data, none,
                          dx.row(r) + h * n);
  });
}

template <class T>
void head_norm_weight_gradient(Stream& stream, View<const T, 3> dy, View<const T, 3> x, View<const acc_t<T>, 2> rstd,
                               View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  add_column_sums<A>(stream, x.rows(), heads, partial, dw, [=] FORGE_LAMBDA(std::int64_t q, std::int64_t j) {
    const std::int64_t r = q / heads, h = q % heads;
    return A((dy.row(r) + h * n)[j]) * (A((x.row(r) + h * n)[j]) * rstd.row(r)[h]);
  });
}

#define FORGE_RMSNORM(T)                                                                                           \
  template void rmsnorm_forward<T>(Stream&, View<const T, 2>, View<const T, 1>, double, View<T, 2>,                \
                                   View<acc_t<T>, 1>);                                                             \
  template void rmsnorm_backward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const T, 1>,                 \
                                    View<const acc_t<T>, 1>, View<const T, 2>, View<T, 2>);                        \
  template void rmsnorm_weight_gradient<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const acc_t<T>, 1>,   \
                                           View<acc_t<T>, 2>, View<acc_t<T>, 1>);                                  \
  template void head_norm_forward<T>(Stream&, View<const T, 3>, View<const T, 1>, double, View<T, 3>,              \
                                     View<acc_t<T>, 2>);                                                           \
  template void head_norm_backward<T>(Stream&, View<const T, 3>, View<const T, 3>, View<const T, 1>,               \
                                      View<const acc_t<T>, 2>, View<T, 3>);                                        \
  template void head_norm_weight_gradient<T>(Stream&, View<const T, 3>, View<const T, 3>, View<const acc_t<T>, 2>, \
                                             View<acc_t<T>, 2>, View<acc_t<T>, 1>);
FORGE_COMPUTE_TYPES(FORGE_RMSNORM)

}  // namespace forge
