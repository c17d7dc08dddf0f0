#pragma once

#include "nn/linear.hpp"
#include "nn/norm.plan.hpp"

namespace forge {

// y = norm(x), RMSNorm or LayerNorm as the model says; `rms`: RMSNorm, whatever the model's norms are. `amax`: where
// the largest magnitudes of y's rows go.
template <class T>
void norm_forward(const Context<T>& ctx, View<const T, 2> x, View<const T, 1> w, View<const T, 1> b,
                  const NormStatistics<T>& n, View<T, 2> y, bool rms = false, const RowAmaxes& amax = {}) {
  const double epsilon = ctx.spec().options.norm_epsilon;
  if (ctx.spec().layernorm() && !rms)
    layernorm_forward<T>(ctx.stream, x, w, b, epsilon, y, n.mean, n.rstd, amax);
  else
    rmsnorm_forward<T>(ctx.stream, x, w, epsilon, y, n.rstd, amax);
}

// h = residual + dropout(x), y = norm(h).
template <class T>
void residual_norm_forward(const Context<T>& ctx, View<const T, 2> residual, View<const T, 2> x, Dropout how,
                           View<const T, 1> w, View<const T, 1> b, const NormStatistics<T>& n, View<T, 2> h,
                           View<T, 2> y, const RowAmaxes& amax = {}) {
  const double epsilon = ctx.spec().options.norm_epsilon;
  if (how.rate > 0) {
    residual_add<T>(ctx.stream, residual, x, h, how);
    return norm_forward<T>(ctx, h, w, b, n, y, false, amax);
  }
  if (ctx.spec().layernorm())
    residual_layernorm_forward<T>(ctx.stream, residual, x, w, b, epsilon, h, y, n.mean, n.rstd, amax);
  else
    residual_rmsnorm_forward<T>(ctx.stream, residual, x, w, epsilon, h, y, n.rstd, amax);
}

// dx = residual + ∂norm; dw, db += their sums over rows. A vector's gradient needs no product of its own, so it is
// taken here, where its inputs are at hand, not in W.
template <class T>
void norm_backward(const Context<T>& ctx, View<const T, 2> x, View<const T, 1> w, const NormStatistics<T>& n,
                   View<acc_t<T>, 1> dw, View<acc_t<T>, 1> db, View<const T, 2> dy, View<const T, 2> residual,
                   View<T, 2> dx, const RowScratch<T>& scratch, bool rms = false) {
  const auto sums = [&](int times) { return norm_sums(scratch, dy.rows(), dy.columns(), times); };
  if (ctx.spec().layernorm() && !rms)
    layernorm_backward<T>(ctx.stream, dy, x, w, n.mean, n.rstd, residual, dx, sums(2), dw, db);
  else
    rmsnorm_backward<T>(ctx.stream, dy, x, w, n.rstd, residual, dx, sums(1), dw);
}

}  // namespace forge
