#pragma once

#include "nn/adapter.hpp"
#include "nn/mlp.plan.hpp"
#include "nn/rows.hpp"

namespace forge {

// The gate of a model's gated feed-forward layers and experts.
Gate gate_of(const ModelSpec& spec);

// The feed-forward network of a dense block, or the experts that every token goes to:
//   y(S,C) = act(x Wupᵀ + b) Wdownᵀ + b,  act(g, u) = silu(g) u, gelu(g) u, or another function of u alone
// W of it reads what B leaves in the place of `up`.
template <class T>
struct Mlp {
  const Context<T>& ctx;
  const MlpBuffers<T>& b;
  MlpParameters<const T> w{};
  MlpParameters<acc_t<T>> g{};
  bool shared = false;  // of the shared experts
  std::int64_t layer = 0;
  const Batch& batch;

  // x(S,C) → up, and act, which forward_output() reads; without `output` act is left to B where activates_in_backward.
  RowOperand<T> forward_to_activation(const RowOperand<T>& x, const RowScratch<T>& scratch, bool output = true) const;
  // up → act, recomputed.
  void activate() const { activate(RowAmaxes{}); }
  // act → y(S,C)
  void forward_output(const RowOperand<T>& act, View<T, 2> y, const RowScratch<T>& scratch) const;
  // B: dx(S,C) from dy(R,C), the gradient of y on all tp ranks; d_act(R,F) is workspace. `activates`: makes act, too.
  void backward_input(View<const T, 2> dy, View<T, 2> d_act, View<T, 2> dx, const RowScratch<T>& scratch,
                      bool activates) const;
  void backward_weight(View<const T, 2> x, View<const T, 2> dy, const RowScratch<T>& scratch) const;
  // Both, from x(S,C); W has a workspace of its own, `weights`.
  void backward(View<const T, 2> x, View<const T, 2> dy, View<T, 2> d_act, View<T, 2> dx, const RowScratch<T>& scratch,
                const RowScratch<T>& weights, bool activates) const;

 private:
  // B up to this tp rank's part of dx, (R,C); W of an input x(R,C).
  void backward_to_partial(View<const T, 2> dy, View<T, 2> d_act, View<T, 2> partial, bool activates) const;
  void add_weights(View<const T, 2> x, View<const T, 2> dy, const RowScratch<T>& scratch) const;
  void activate(const RowAmaxes& amax) const;
  Adapter<T> up_adapter() const {
    return {ctx, {BlockProduct::gate_up, shared}, w.up_adapter, g.up_adapter, b.up_low, layer, batch};
  }
  Adapter<T> down_adapter() const {
    return {ctx, {BlockProduct::down, shared}, w.down_adapter, g.down_adapter, b.down_low, layer, batch};
  }
  MatrixSplit up_split() const { return mlp_up_split(ctx.spec(), b.act.columns()); }
  MatrixSplit down_split() const { return mlp_down_split(ctx.spec(), b.act.columns()); }
};

}  // namespace forge
