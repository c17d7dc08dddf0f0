#pragma once

#include "nn/attend.hpp"
#include "nn/delta_layer.plan.hpp"
#include "nn/delta_rule.hpp"

namespace forge {

// The first half of a block with gated DeltaNet: with n = norm1(x) and q, k, v = silu(conv(n W_qkvᵀ)),
//   h = x + (w ⊙ rule(q, k, v, β, g) / rms ⊙ silu(n W_zᵀ)) W_outᵀ,   β = σ(n W_bᵀ),  g = −e^{log_decay} softplus(n W_aᵀ
//   + time_bias)
template <class T>
struct DeltaLayer {
  const BlockPass<T>& p;
  const DeltaBuffers<T>& b;
  const DeltaParameters<const T>& w;   // none in W
  const DeltaParameters<acc_t<T>>& g;  // none in forward

  // As AttentionLayer's.
  void forward(View<T, 2> branch, const RowScratch<T>& rows) const;
  void recompute() const;
  void backward_input(View<T, 2> dx) const { backward(dx, nullptr); }
  void backward_weight(const RowScratch<T>& rows) const;
  void backward(View<T, 2> dx, const RowScratch<T>& weights) const { backward(dx, &weights); }

 private:
  // The parts of the projections or their gradients.
  struct Parts {
    View<T, 2> qkv, z, b, a;
  };
  Parts parts(View<T, 2> in) const;
  DeltaGates<T> gates() const;
  void backward(View<T, 2> dx, const RowScratch<T>* weights) const;
  void backward_rule(const DeltaScratch<T>& s) const;
  void add_weights(View<const T, 2> n, const RowScratch<T>& rows) const;
};

}  // namespace forge
