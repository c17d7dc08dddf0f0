#include "device/parallel.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/kernels.hpp"
#include "kernels/math.hpp"

namespace forge {

template <class T>
void layernorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, View<const T, 1> b, double epsilon,
                       View<T, 2> y, View<acc_t<T>, 1> mean, View<acc_t<T>, 1> rstd) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  const T *weight = w.data, *bias = b.data;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* in = x.row(r);
    T* out = y.row(r);
    const A mu = team.template sum<A>(n, [=](std::int64_t j) { return A(in[j]); }) / A(n);
    const A squares = team.template sum<A>(n, [=](std::int64_t j) { return (A(in[j]) - mu) * (A(in[j]) - mu); });
    const A scale = A(1) / math::sqrt(squares / A(n) + A(epsilon));
    team.each(n, [=](std::int64_t j) { out[j] = T(A(weight[j]) * ((A(in[j]) - mu) * scale) + A(bias[j])); });
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
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T *d = dy.row(r), *in = x.row(r), *extra = residual.empty() ? nullptr : residual.row(r);
    T* out = dx.row(r);
    const A mu = mean[r], scale = rstd[r];
    const A g_mean = team.template sum<A>(n, [=](std::int64_t j) { return A(d[j]) * A(weight[j]); }) / A(n);
    const A dot = team.template sum<A>(n, [=](std::int64_t j) { return A(d[j]) * A(weight[j]) * (A(in[j]) - mu); });
    const A slope = dot * scale * scale / A(n);
    if (extra)
      team.each(n, [=](std::int64_t j) {
        out[j] = T(A(extra[j]) + scale * (A(d[j]) * A(weight[j]) - g_mean - (A(in[j]) - mu) * slope));
      });
    else
      team.each(
          n, [=](std::int64_t j) { out[j] = T(scale * (A(d[j]) * A(weight[j]) - g_mean - (A(in[j]) - mu) * slope)); });
  });
}

template <class T>
void layernorm_weight_gradient(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const acc_t<T>, 1> mean,
                               View<const acc_t<T>, 1> rstd, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw,
                               View<acc_t<T>, 1> db) {
  using A = acc_t<T>;
  add_column_sums<A>(stream, x.rows(), 1, partial, dw, [=] FORGE_LAMBDA(std::int64_t r, std::int64_t j) {
    return A(dy.row(r)[j]) * ((A(x.row(r)[j]) - mean[r]) * rstd[r]);
  });
  column_sum<T>(stream, dy, partial, db);
}

template <class T>
void column_sum(Stream& stream, View<const T, 2> dy, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> db) {
  using A = acc_t<T>;
  add_column_sums<A>(stream, dy.rows(), 1, partial, db,
                     [=] FORGE_LAMBDA(std::int64_t r, std::int64_t j) { return A(dy.row(r)[j]); });
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
