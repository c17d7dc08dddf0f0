#pragma once

#include "nn/mlp.plan.hpp"
#include "nn/rows.hpp"
#include "nn/tensors.hpp"

namespace forge {

template <class P>
struct MlpTensors {
  View<P, 2> up, down;
  View<P, 1> up_bias, down_bias;
};
template <class P>
MlpTensors<P> mlp_of(const BlockTensors<P>& t) {
  return {t.up, t.down, t.up_bias, t.down_bias};
}

// The feed-forward network of a dense block, or the experts that every token goes to:
//   y(S,C) = act(x Wupᵀ + b) Wdownᵀ + b,  act(g, u) = silu(g) u, or another function of u alone
// W of it reads what B leaves in the place of `up`.
template <class T>
struct Mlp {
  Context<T>& ctx;
  const MlpBuffers<T>& b;
  MlpTensors<const T> w{};
  MlpTensors<acc_t<T>> g{};

  // x(S,C) → up, act
  void forward_to_activation(View<const T, 2> x, const RowScratch<T>& scratch) const;
  // up → act, recomputed.
  void activate() const;
  // act → y(S,C)
  void forward_output(View<T, 2> y, const RowScratch<T>& scratch) const;
  // B: dx(S,C) from dy(R,C), the gradient of y on all tp ranks; d_act(R,F) is workspace.
  void backward_input(View<const T, 2> dy, View<T, 2> d_act, View<T, 2> dx, const RowScratch<T>& scratch) const;
  void backward_weight(View<const T, 2> x, View<const T, 2> dy, const RowScratch<T>& scratch) const;
};

}  // namespace forge
