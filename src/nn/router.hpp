#pragma once

#include "kernels/experts/expert_kernels.hpp"
#include "nn/context.hpp"
#include "nn/router.plan.hpp"

namespace forge {

// The router of a layer with experts, on the rows x(S,C) of this rank's residual stream, normalised:
//   logits(S,E) = x Wᵀ + b;  scores = softmax or sigmoid of them;  choices(S,k): the k largest of scores + bias, with
//   their weights. Filler (samples of the batch: −1) has choices −1, and no losses, loads or gradients have a part of
//   it.
template <class T>
struct Router {
  using A = acc_t<T>;
  const Context<T>& ctx;
  std::int64_t layer;
  const Batch& batch;
  const RouterBuffers<T>& b;

  // x → choices and their weights. `counts`: adds the layer's losses to the step's sums, and counts dropped
  // assignments; not when a forward pass is recomputed. `uncounted` (1): where the number of dropped ones goes then.
  void forward(View<const T, 2> w, View<const T, 1> bias, View<const T, 2> x, const RouterForward<T>& s,
               View<std::int64_t, 1> uncounted, bool counts) const;
  // B: dx(S,C) += from s.d_weights(S,k) and the losses; leaves d_logits.
  void backward_input(View<const T, 2> w, const RouterBackward<T>& s, View<T, 2> dx) const;
  // dW += d_logitsᵀ x, db += Σ_r d_logits; either may be empty.
  void backward_weight(View<const T, 2> x, const JitterScratch<T>& s, const RowScratch<T>& rows, View<A, 2> g,
                       View<A, 1> g_bias) const;

 private:
  RouterOptions options() const;
  bool jitters() const { return ctx.training && ctx.spec().options.router_jitter > 0; }
  Jitter jitter_of() const;
  View<const T, 2> input(View<const T, 2> x, const JitterScratch<T>& s) const;
  View<const std::int32_t, 1> scopes() const;
  View<double, 1> sum_of(std::int64_t index) const;
  void choose() const;
  bool show(RoutingTape& tape) const;
  void balance(View<double, 2> partial, bool counts) const;
  void drop(const CapacityScratch<T>& s, View<std::int64_t, 1> uncounted, bool counts) const;
  template <class P>
  void gather_choices(View<const P, 2> own, View<P, 2> of_tp, View<P, 2> all) const;
};

}  // namespace forge
