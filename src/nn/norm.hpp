#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"

namespace forge {

// The buffers of one norm: RMSNorm has no mean.
struct NormBuffers {
  Buf x, mean, rstd, y;
  bool rms = false;  // RMSNorm, whatever the model's norms are
};

// y = norm(x), RMSNorm or LayerNorm as the model says; y in its buffer or elsewhere.
template <class T>
void norm_forward(Context<T>& ctx, const NormBuffers& n, View<const T, 1> w, View<const T, 1> b, View<T, 2> y,
                  const BufferSet& s) {
  using A = acc_t<T>;
  const double epsilon = ctx.spec().options.norm_epsilon;
  if (ctx.spec().layernorm() && !n.rms)
    layernorm_forward<T>(ctx.stream, s.matrix<T>(n.x), w, b, epsilon, y, s.vector<A>(n.mean), s.vector<A>(n.rstd));
  else
    rmsnorm_forward<T>(ctx.stream, s.matrix<T>(n.x), w, epsilon, y, s.vector<A>(n.rstd));
}
template <class T>
void norm_forward(Context<T>& ctx, const NormBuffers& n, View<const T, 1> w, View<const T, 1> b, const BufferSet& s) {
  norm_forward<T>(ctx, n, w, b, s.matrix<T>(n.y), s);
}

// dx = residual + ∂norm; dw, db += their sums over rows. A vector's gradient needs no product of its own, so it is
// taken here, where its inputs are at hand, not in W.
template <class T>
void norm_backward(Context<T>& ctx, const NormBuffers& n, View<const T, 1> w, View<acc_t<T>, 1> dw,
                   View<acc_t<T>, 1> db, View<const T, 2> dy, View<const T, 2> residual, View<T, 2> dx,
                   const BufferSet& s) {
  using A = acc_t<T>;
  const View<A, 2> partial(s.vector<A>(Buf::partial).data, {{norm_partial_rows(dy.rows()), dy.columns()}});
  const auto x = s.matrix<T>(n.x);
  const auto rstd = s.vector<A>(n.rstd);
  if (ctx.spec().layernorm() && !n.rms) {
    const auto mean = s.vector<A>(n.mean);
    layernorm_weight_gradient<T>(ctx.stream, dy, x, mean, rstd, partial, dw, db);
    layernorm_backward<T>(ctx.stream, dy, x, w, mean, rstd, residual, dx);
  } else {
    rmsnorm_weight_gradient<T>(ctx.stream, dy, x, rstd, partial, dw);
    rmsnorm_backward<T>(ctx.stream, dy, x, w, rstd, residual, dx);
  }
}

}  // namespace forge
