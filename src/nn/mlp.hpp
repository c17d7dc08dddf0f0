#pragma once

#include "nn/mlp.plan.hpp"
#include "nn/rows.hpp"

namespace forge {

// The feed-forward network of a dense block, or the experts that every token goes to:
//   y(S,C) = act(x Wupᵀ + b) Wdownᵀ + b,  act(g, u) = silu(g) u, or another function of u alone
// W of it reads what B leaves in the place of `up`.
template <class T>
struct Mlp {
  Context<T>& ctx;
  const MlpBuffers<T>& b;
  MlpParameters<const T> w{};
  MlpParameters<acc_t<T>> g{};

  // x(S,C) → up, act; amax: measured_rows() of x, or empty
  void forward_to_activation(View<const T, 2> x, const RowScratch<T>& scratch, View<const float, 1> amax = {}) const;
  // up → act, recomputed.
  void activate() const { activate({}); }
  // act → y(S,C), right behind forward_to_activation
  void forward_output(View<T, 2> y, const RowScratch<T>& scratch) const;
  // B: dx(S,C) from dy(R,C), the gradient of y on all tp ranks; d_act(R,F) is workspace.
  void backward_input(View<const T, 2> dy, View<T, 2> d_act, View<T, 2> dx, const RowScratch<T>& scratch) const;
  void backward_weight(View<const T, 2> x, View<const T, 2> dy, const RowScratch<T>& scratch) const;

 private:
  void activate(View<float, 1> amax) const;
  MatrixSplit up_split() const { return mlp_up_split(ctx.spec(), b.act.columns()); }
  MatrixSplit down_split() const { return mlp_down_split(ctx.spec(), b.act.columns()); }
};

}  // namespace forge
