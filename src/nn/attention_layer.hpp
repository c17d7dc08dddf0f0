#pragma once

#include <utility>

#include "nn/adapter.hpp"
#include "nn/attend.hpp"
#include "nn/attention_layer.plan.hpp"

namespace forge {

// The first half of a block: h = x + attention(norm1(x)), with queries, keys and values from one product of norm1(x).
template <class T>
struct AttentionLayer {
  const BlockPass<T>& p;
  const AttentionBuffers<T>& b;
  const AttentionParameters<const T>& w;   // none in W
  const AttentionParameters<acc_t<T>>& g;  // none in forward

  // x → n1, q, k, v, o, h; `branch` (S, C) is workspace.
  void forward(View<T, 2> branch, const RowScratch<T>& rows) const;
  // Recomputes what selective recomputation drops.
  void recompute() const;
  // B: d_h → dx(S,C); leaves d_qkv.
  void backward_input(View<T, 2> dx) const { backward(dx, nullptr); }
  void backward_weight(const RowScratch<T>& rows) const;
  // Both; W has a workspace of its own.
  void backward(View<T, 2> dx, const RowScratch<T>& weights) const { backward(dx, &weights); }

 private:
  Adapter<T> adapter() const {
    return {p.ctx, BlockProduct::qkv, w.qkv_adapter, g.qkv_adapter, b.qkv_low, p.layer, p.batch};
  }
  Adapter<T> out_adapter() const {
    return {p.ctx, BlockProduct::attention_out, w.out_adapter, g.out_adapter, b.out_low, p.layer, p.batch};
  }
  struct Angles {
    View<const std::int32_t, 1> positions;
    View<const acc_t<T>, 2> cosine, sine;
  };
  Angles angles(bool queries = false) const;
  void turn(const View<T, 3>& heads, bool inverse) const;
  AttentionHeads<T> split_heads(View<T, 2> qkv) const;
  AttentionHeads<T> inputs() const;
  HeadWeights<T> head_weights() const { return {w.q_norm, w.k_norm, p.spec().H()}; }
  View<T, 3> queries_and_keys(View<T, 2> x) const;
  void project(const RowScratch<T>& rows) const;
  const View<T, 2>& projected_gradient() const { return b.d_projected.empty() ? b.d_qkv : b.d_projected; }
  // Of queries and of keys in the model, and the sums of this rank's parts over tp.
  std::pair<std::int64_t, std::int64_t> widths() const;
  void add_up(View<acc_t<T>, 2> sums) const;
  void sum_copies() const;
  void backward(View<T, 2> dx, const RowScratch<T>* weights) const;
  void add_weights(View<const T, 2> n, const RowScratch<T>& rows) const;
  void backward_positions(const AttentionScratch<T>& s) const;
};

}  // namespace forge
