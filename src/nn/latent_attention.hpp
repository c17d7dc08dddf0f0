#pragma once

#include "nn/adapter.hpp"
#include "nn/attend.hpp"
#include "nn/latent_attention.plan.hpp"

namespace forge {

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), the first half of a block as attention_layer.hpp is:
// h = x + attention(norm1(x)). With n = norm1(x), N = nope_dim and r = rope_dim:
//   c_q = rmsnorm(n W_q_downᵀ);  q(H, N + r) = c_q W_q_upᵀ, each head's last r entries rotated
//   [c, key] = n W_kv_downᵀ;  c_kv = rmsnorm(c);  [k(H, N), v(H, Dv)] = c_kv W_kv_upᵀ;  every head's key ends in the
//   rotated `key`
// Without q_lora, n is c_q. What stands left of an up-projection is replicated over tp and computed for this rank's S
// rows; one gather of the latents [c_q, c_kv, rotated key] serves both up-projections, whose rows tp splits by heads,
// and one reduce-scatter brings their gradients back. That holds without q_lora too: n travels beside the kv latent.
// The gradients of the down-projections and norms are sums over own rows: parallel/ adds those of the tp ranks.
template <class T>
struct LatentAttention {
  const BlockPass<T>& p;
  const LatentBuffers<T>& b;
  const LatentParameters<const T>& w;   // none in W
  const LatentParameters<acc_t<T>>& g;  // none in forward

  // x → latents, q, k, v, o, h; `branch` (S, C) is workspace.
  void forward(View<T, 2> branch, const RowScratch<T>& rows) const;
  // Recomputes what selective or latent recomputation drops.
  void recompute() const;
  // B: d_h → dx(S,C); leaves d_q, d_kv_up, d_latents.
  void backward_input(View<T, 2> dx) const;
  void backward_weight(const RowScratch<T>& rows) const;
  // Both; W has a workspace of its own.
  void backward(View<T, 2> dx, const RowScratch<T>& weights) const;

 private:
  // The parts of a matrix of latent_columns() columns.
  template <class P>
  struct Latents {
    View<P, 2> q, kv, key;
    View<P, 2> down;  // kv and key: what kv_down makes
  };
  template <class P>
  Latents<P> split(View<P, 2> x) const;
  AttentionHeads<T> heads(View<T, 2> q, View<T, 2> k, View<T, 2> v) const;
  View<T, 3> up_heads(View<T, 2> x) const;
  LatentSplits splits() const { return latent_splits(p.spec()); }
  Adapter<T> q_down_adapter() const {
    return {p.ctx, BlockProduct::q_down, w.q_down_adapter, g.q_down_adapter, b.q_down_low, p.layer, p.batch};
  }
  Adapter<T> kv_down_adapter() const {
    return {p.ctx, BlockProduct::kv_down, w.kv_down_adapter, g.kv_down_adapter, b.kv_down_low, p.layer, p.batch};
  }
  Adapter<T> q_up_adapter() const {
    return {p.ctx, BlockProduct::q_up, w.q_up_adapter, g.q_up_adapter, b.q_up_low, p.layer, p.batch};
  }
  Adapter<T> kv_up_adapter() const {
    return {p.ctx, BlockProduct::kv_up, w.kv_up_adapter, g.kv_up_adapter, b.kv_up_low, p.layer, p.batch};
  }
  Adapter<T> out_adapter() const {
    return {p.ctx, BlockProduct::attention_out, w.out_adapter, g.out_adapter, b.out_low, p.layer, p.batch};
  }
  View<T, 2> normalised() const;
  void rotate(View<T, 3> x, View<const std::int32_t, 1> positions, bool inverse) const;
  void rotate_key(View<T, 2> key, bool inverse) const;
  void make_latents() const;
  void project_down() const;
  void project_up() const;
  View<T, 2> partial_latents(const AllLatents<T>& all) const;
  void backward_up(const AttentionHeads<T>& d, View<T, 2> partial) const;
  void add_up_weights(View<const T, 2> latents, const RowScratch<T>& rows) const;
  void add_down_weights() const;
  void backward_norm(View<const T, 2> x, View<const T, 1> weight, View<const acc_t<T>, 1> rstd, View<acc_t<T>, 1> dw,
                     View<T, 2> d, const RowScratch<T>& rows) const;
  View<const T, 2> backward_down(const LatentBackward<T>& s) const;
};

}  // namespace forge
