#include "nn/attention_layer.hpp"

namespace forge {

// The heads of q, k and v inside the fused (R, (H + 2K) D).
template <class T>
AttentionHeads<T> AttentionLayer<T>::split_heads(View<T, 2> qkv) const {
  const ModelSpec& m = p.spec();
  return {heads_of(qkv, 0, m.H(), m.D()), heads_of(qkv, m.H(), m.K(), m.D()),
          heads_of(qkv, m.H() + m.K(), m.K(), m.D())};
}

// What attention reads: rotated and, where the model says, normalised: q and k in the (R, (H + K) D) buffer.
template <class T>
AttentionHeads<T> AttentionLayer<T>::inputs() const {
  const ModelSpec& m = p.spec();
  AttentionHeads<T> heads = split_heads(b.qkv);
  if (m.options.qk_norm) {
    heads.q = heads_of(b.qk, 0, m.H(), m.D());
    heads.k = heads_of(b.qk, m.H(), m.K(), m.D());
  }
  return heads;
}

template <class T>
void AttentionLayer<T>::rotate(const AttentionHeads<T>& heads, bool inverse) const {
  if (!p.spec().rope()) return;
  rotary<T>(p.ctx.stream, heads.q, p.batch.table_positions(), p.ctx.cosine, p.ctx.sine, inverse);
  rotary<T>(p.ctx.stream, heads.k, p.batch.table_positions(), p.ctx.cosine, p.ctx.sine, inverse);
}

// n1 → q, k, v
template <class T>
void AttentionLayer<T>::project(const RowScratch<T>& rows) const {
  linear_forward<T>(p.ctx, gather_rows<T>(p.ctx, b.n1, rows), w.qkv, w.qkv_bias, b.qkv);
  const AttentionHeads<T> to = inputs();
  if (p.spec().options.qk_norm) {
    const AttentionHeads<T> raw = split_heads(b.qkv);
    const double epsilon = p.spec().options.norm_epsilon;
    head_norm_forward<T>(p.ctx.stream, raw.q, w.q_norm, epsilon, to.q, q_rstd());
    head_norm_forward<T>(p.ctx.stream, raw.k, w.k_norm, epsilon, to.k, k_rstd());
  }
  rotate(to, false);
}

// d(rotated, normalised q and k) → d(projected q and k), in place, and the gradients of QK-norm.
template <class T>
void AttentionLayer<T>::backward_positions(const AttentionHeads<T>& d, const RowScratch<T>& rows) const {
  rotate(d, true);
  if (!p.spec().options.qk_norm) return;
  const AttentionHeads<T> raw = split_heads(b.qkv);
  const auto partial = partial_sums(rows, raw.q.rows(), p.spec().D());
  head_norm_weight_gradient<T>(p.ctx.stream, d.q, raw.q, q_rstd(), partial, g.q_norm);
  head_norm_weight_gradient<T>(p.ctx.stream, d.k, raw.k, k_rstd(), partial, g.k_norm);
  head_norm_backward<T>(p.ctx.stream, d.q, raw.q, w.q_norm, q_rstd(), d.q);
  head_norm_backward<T>(p.ctx.stream, d.k, raw.k, w.k_norm, k_rstd(), d.k);
}

template <class T>
void AttentionLayer<T>::forward(View<T, 2> branch, const RowScratch<T>& rows) const {
  norm1_forward<T>(p, w, b, b.n1);
  project(rows);
  attend(p, b, inputs());
  join_attention<T>(p, w, b, branch, rows);
}

template <class T>
void AttentionLayer<T>::recompute() const {
  norm1_forward<T>(p, w, b, b.n1);
}

template <class T>
void AttentionLayer<T>::backward_input(View<T, 2> dx) const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<AttentionScratch<T>>(p.ctx);
  const AttentionHeads<T> d = split_heads(b.d_qkv);
  attend_backward<T>(p, w, b, s, inputs(), d);
  backward_positions(d, s.rows);
  column_parallel_backward_input<T>(p.ctx, b.d_qkv, w.qkv, s.d_n1, s.rows);
  norm1_backward<T>(p, w, g, b, s.d_n1, dx, s.rows);
}

template <class T>
void AttentionLayer<T>::backward_weight(const RowScratch<T>& rows) const {
  join_attention_backward_weight<T>(p, g, b, rows);
  linear_backward_weight<T>(p.ctx, b.d_qkv, gather_rows<T>(p.ctx, b.n1, rows), g.qkv);
  bias_backward<T>(p.ctx, b.d_qkv, g.qkv_bias, rows);
}

FORGE_INSTANTIATE_CLASS(AttentionLayer);

}  // namespace forge
