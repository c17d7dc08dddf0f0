#pragma once

#include <array>

#include "nn/adapter.hpp"
#include "nn/attend.hpp"
#include "nn/delta_exchange.hpp"
#include "nn/delta_layer.plan.hpp"
#include "nn/delta_rule.hpp"

namespace forge {

// The first half of a block with gated DeltaNet: with n = norm1(x) and q, k, v = silu(conv(n W_qkvᵀ)),
//   h = x + (w ⊙ rule(q, k, v, β, g) / rms ⊙ silu(n W_zᵀ)) W_outᵀ,   β = σ(n W_bᵀ),  g = −e^{log_decay} softplus(n W_aᵀ
//   + time_bias)
// Of several cp ranks each has its rows of the projections, the norm and the gate, and of convolution and rule all rows
// of its heads, with gradients of these heads' numbers alone.
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
  Adapter<T> adapter() const { return {p.ctx, delta_in, w.in_adapter, g.in_adapter, b.in_low, p.layer, p.batch}; }
  Adapter<T> out_adapter() const {
    return {p.ctx, delta_out, w.out_adapter, g.out_adapter, b.out_low, p.layer, p.batch};
  }
  // The parts of the projections or their gradients; z is none of those that the rule works on, with several cp ranks.
  struct Parts {
    View<T, 2> qkv, z, b, a;
  };
  Parts parts(View<T, 2> in) const;
  Parts rule_parts(View<T, 2> heads) const;
  std::array<HeadColumns<T>, 5> kinds(const Parts& rows) const;
  std::array<HeadColumns<T>, 1> values(View<T, 2> rows) const { return {{{rows, p.spec().options.linear_value_dim}}}; }
  bool alone() const { return p.ctx.buffers.microbatch.cp == 1; }
  // The input of convolution and rule, and the gate.
  Parts inputs() const { return alone() ? parts(b.in) : rule_parts(b.heads); }
  View<T, 2> z() const { return alone() ? parts(b.in).z : b.z; }
  Documents documents() const { return alone() ? p.batch.documents : p.batch.whole_documents; }
  DeltaGates<T> gates() const;
  template <class A>
  View<A, 1> own_heads(const View<A, 1>& of_heads) const;
  MatrixSplit split() const { return delta_in_split(p.spec(), p.ctx.rounding.block); }
  void project_to(const RowOperand<T>& n, View<T, 2> in) const;
  void project(const RowOperand<T>& n) const;
  void forward_rule() const;
  void forward_next() const;
  void backward(View<T, 2> dx, const RowScratch<T>* weights) const;
  void backward_norm(const DeltaScratch<T>& s) const;
  void backward_rule(const DeltaScratch<T>& s, View<const T, 2> d_rule, const Parts& d) const;
  void add_weights(View<const T, 2> n, const RowScratch<T>& rows) const;
};

}  // namespace forge
