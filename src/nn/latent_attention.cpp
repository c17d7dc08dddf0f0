#include "nn/latent_attention.hpp"

namespace forge {

template <class T>
template <class P>
auto LatentAttention<T>::split(View<P, 2> x) const -> Latents<P> {
  const ModelSpec& m = p.spec();
  const std::int64_t q = m.q_up_inputs(), kv = m.kv_lora();
  return {columns_of(x, 0, q), columns_of(x, q, kv), columns_of(x, q + kv, m.rotary_dim()),
          columns_of(x, q, m.kv_down_columns())};
}

// norm 1's output: without q_lora the first part of the latents.
template <class T>
View<T, 2> LatentAttention<T>::normalised() const {
  return p.spec().q_lora() > 0 ? b.n1 : split(b.latents).q;
}

template <class T>
AttentionHeads<T> LatentAttention<T>::heads(View<T, 2> q, View<T, 2> k, View<T, 2> v) const {
  const ModelSpec& m = p.spec();
  return {heads_of(q, 0, m.H(), m.D()), heads_of(k, 0, m.K(), m.D()), heads_of(v, 0, m.K(), m.value_dim())};
}

// Heads of keys without rotation and of values, as kv_up makes them.
template <class T>
View<T, 3> LatentAttention<T>::up_heads(View<T, 2> x) const {
  const ModelSpec& m = p.spec();
  return heads_of(x, 0, m.H(), m.options.nope_dim + m.value_dim());
}

template <class T>
void LatentAttention<T>::rotate(View<T, 3> x, View<const std::int32_t, 1> positions, bool inverse) const {
  const RotaryPairs pairs = p.spec().options.rope_interleave ? RotaryPairs::neighbours : RotaryPairs::halves;
  rotary<T>(p.ctx.stream, x, positions, p.ctx.services.cosine, p.ctx.services.sine, inverse, pairs);
}
// The rope key of this rank's rows: one head.
template <class T>
void LatentAttention<T>::rotate_key(View<T, 2> key, bool inverse) const {
  rotate(heads_of(key, 0, 1, key.columns()), own_rows(p.ctx.groups, p.batch.table_positions()), inverse);
}

// q_down, kv_down → latents
template <class T>
void LatentAttention<T>::make_latents() const {
  const ModelSpec& m = p.spec();
  const double epsilon = m.options.latent_norm_epsilon;
  const Latents<T> to = split(b.latents);
  if (m.q_lora() > 0) rmsnorm_forward<T>(p.ctx.stream, b.q_down, w.q_down_norm, epsilon, to.q, b.q_down_rstd);
  rmsnorm_forward<T>(p.ctx.stream, columns_of(b.kv_down, 0, m.kv_lora()), w.kv_down_norm, epsilon, to.kv,
                     b.kv_down_rstd);
  copy_rows<T>(p.ctx.stream, columns_of(b.kv_down, m.kv_lora(), m.rotary_dim()), to.key);
  rotate_key(to.key, false);
}

// x → latents of this rank's rows
template <class T>
void LatentAttention<T>::project_down() const {
  const bool lora = p.spec().q_lora() > 0;
  const RowOperand<T> n = norm1_of<T>(p, w, b, lora ? splits().q_down : splits().kv_down, normalised());
  if (lora) {
    block_linear_forward<T>(p.ctx, splits().q_down, n, w.q_down, {}, b.q_down);
    q_down_adapter().forward(n.values(), b.q_down);
  }
  block_linear_forward<T>(p.ctx, splits().kv_down, n, w.kv_down, {}, b.kv_down);
  kv_down_adapter().forward(n.values(), b.kv_down);
  make_latents();
}

// latents → q, k, v
template <class T>
void LatentAttention<T>::project_up() const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<LatentForward<T>>(p.ctx);
  const Latents<const T> in =
      split(gather_rows<T>(p.ctx, b.latents, b.all_latents.empty() ? s.all.rows : b.all_latents));
  const AttentionHeads<T> to = heads(b.q, b.k, b.v);
  block_linear_forward<T>(p.ctx, splits().q_up, in.q, w.q_up, {}, b.q);
  q_up_adapter().forward(in.q, b.q);
  block_linear_forward<T>(p.ctx, splits().kv_up, in.kv, w.kv_up, {}, s.kv_up);
  kv_up_adapter().forward(in.kv, s.kv_up);
  rotate(to.q, p.batch.table_positions(), false);
  latent_keys_forward<T>(p.ctx.stream, up_heads(s.kv_up), in.key, to.k, to.v);
}

// d_q, d_k, d_v → this rank's rows of the sum over tp of the latents' gradient, in d_latents; leaves d_q, d_kv_up.
template <class T>
void LatentAttention<T>::backward_up(const AttentionHeads<T>& d, View<T, 2> partial) const {
  const Latents<T> to = split(partial);
  rotate(d.q, p.batch.table_positions(), true);
  latent_keys_backward<T>(p.ctx.stream, d.k, d.v, up_heads(b.d_kv_up), to.key);
  block_linear_backward_input<T>(p.ctx, splits().q_up, b.d_q, w.q_up, to.q);
  q_up_adapter().backward_input(b.d_q, to.q);
  block_linear_backward_input<T>(p.ctx, splits().kv_up, b.d_kv_up, w.kv_up, to.kv);
  kv_up_adapter().backward_input(b.d_kv_up, to.kv);
}

// Where this tp rank's part of the latents' gradient stands.
template <class T>
View<T, 2> LatentAttention<T>::partial_latents(const AllLatents<T>& all) const {
  return p.ctx.groups.tp_size() == 1 ? b.d_latents : all.rows;
}

// The gradient of a latent → that of what its norm read, in place, and of the norm's weight.
template <class T>
void LatentAttention<T>::backward_norm(View<const T, 2> x, View<const T, 1> weight, View<const acc_t<T>, 1> rstd,
                                       View<acc_t<T>, 1> dw, View<T, 2> d, const RowScratch<T>& rows) const {
  rmsnorm_backward<T>(p.ctx.stream, d, x, weight, rstd, {}, d, norm_sums(rows, d.rows(), d.columns()), dw);
}

// d_latents: from the latents' gradient to that of the down-projections' outputs; returns d(norm 1's output).
template <class T>
View<const T, 2> LatentAttention<T>::backward_down(const LatentBackward<T>& s) const {
  const ModelSpec& m = p.spec();
  const Latents<T> d = split(b.d_latents);
  rotate_key(d.key, true);
  backward_norm(columns_of(b.kv_down, 0, m.kv_lora()), w.kv_down_norm, b.kv_down_rstd, g.kv_down_norm, d.kv, s.rows);
  View<T, 2> d_n1 = d.q;
  if (m.q_lora() > 0) {
    backward_norm(b.q_down, w.q_down_norm, b.q_down_rstd, g.q_down_norm, d.q, s.rows);
    d_n1 = s.d_n1;
    block_linear_backward_input<T>(p.ctx, splits().q_down, d.q, w.q_down, d_n1);
    q_down_adapter().backward_input(d.q, d_n1);
  }
  block_linear_backward_input<T>(p.ctx, splits().kv_down, d.down, w.kv_down, d_n1, true);
  kv_down_adapter().backward_input(d.down, d_n1);
  return d_n1;
}

template <class T>
void LatentAttention<T>::forward(View<T, 2> branch, const RowScratch<T>& rows) const {
  project_down();
  project_up();
  attend(p, b, heads(b.q, b.k, b.v));
  attention_out<T>(p, w, b, branch, rows, [&](View<T, 2> partial) { out_adapter().forward(b.o, partial); });
}

template <class T>
void LatentAttention<T>::recompute() const {
  const Recompute policy = p.ctx.buffers.recompute;
  if (policy.has(Recompute::norms)) {
    norm_forward<T>(p.ctx, p.x, w.norm1.weight, w.norm1.bias, b.norm1, normalised());
    make_latents();
  }
  if (policy.has(Recompute::up_projections)) project_up();
}

template <class T>
void LatentAttention<T>::backward_input(View<T, 2> dx) const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<LatentBackward<T>>(p.ctx);
  const AttentionHeads<T> d = heads(b.d_q, s.d_k, s.d_v);
  const View<const T, 2> d_branch = attend_output_rows(p, w, g, b, s.rows);
  attend_backward<T>(p, w, b, s, d_branch, heads(b.q, b.k, b.v), d, {},
                     [&](View<T, 2> d_o) { out_adapter().backward_input(d_branch, d_o); });
  const View<T, 2> partial = partial_latents(s.all);
  backward_up(d, partial);
  reduce_rows(p.ctx, partial, b.d_latents);
  norm1_backward<T>(p, w, g, b, backward_down(s), dx, s.rows);
}

template <class T>
void LatentAttention<T>::add_up_weights(View<const T, 2> latents, const RowScratch<T>& rows) const {
  attention_out_backward_weight<T>(p, g, b, attention_out_gradient<T>(b), rows);
  out_adapter().backward_weight(attention_out_gradient<T>(b), b.o);
  const Latents<const T> in = split(latents);
  block_linear_backward_weight<T>(p.ctx, splits().q_up, b.d_q, in.q, g.q_up);
  q_up_adapter().backward_weight(b.d_q, in.q);
  block_linear_backward_weight<T>(p.ctx, splits().kv_up, b.d_kv_up, in.kv, g.kv_up);
  kv_up_adapter().backward_weight(b.d_kv_up, in.kv);
}

template <class T>
void LatentAttention<T>::add_down_weights() const {
  const Latents<T> d = split(b.d_latents);
  const View<const T, 2> n = normalised();
  if (p.spec().q_lora() > 0) {
    block_linear_backward_weight<T>(p.ctx, splits().q_down, d.q, n, g.q_down);
    q_down_adapter().backward_weight(d.q, n);
  }
  block_linear_backward_weight<T>(p.ctx, splits().kv_down, d.down, n, g.kv_down);
  kv_down_adapter().backward_weight(d.down, n);
}

template <class T>
void LatentAttention<T>::backward_weight(const RowScratch<T>& rows) const {
  Frame frame(p.ctx.arena);
  const auto all = workspace<AllLatents<T>>(p.ctx);
  add_up_weights(gather_rows<T>(p.ctx, b.latents, all.rows), rows);
  add_down_weights();
}

template <class T>
void LatentAttention<T>::backward(View<T, 2> dx, const RowScratch<T>& weights) const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<LatentBackward<T>>(p.ctx);
  AllLatents<T> all;
  if (b.all_latents.empty()) all = workspace<AllLatents<T>>(p.ctx);
  const AttentionHeads<T> d = heads(b.d_q, s.d_k, s.d_v);
  const View<const T, 2> d_branch = attend_output_rows(p, w, g, b, s.rows);
  RowsBehind<T> behind(p.ctx);
  const View<const T, 2> latents = behind.gather(b.latents, b.all_latents, all.rows);
  attend_backward<T>(p, w, b, s, d_branch, heads(b.q, b.k, b.v), d, {},
                     [&](View<T, 2> d_o) { out_adapter().backward_input(d_branch, d_o); });
  const View<T, 2> partial = partial_latents(s.all);
  backward_up(d, partial);
  behind.reduce_beside(partial, b.d_latents, [&] { add_up_weights(latents, weights); });
  norm1_backward<T>(p, w, g, b, backward_down(s), dx, s.rows);
  add_down_weights();
}

FORGE_INSTANTIATE_CLASS(LatentAttention);

}  // namespace forge
