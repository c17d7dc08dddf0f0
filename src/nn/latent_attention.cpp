#include "nn/latent_attention.hpp"

#include "nn/attend.hpp"
#include "nn/norm.hpp"

namespace forge {

namespace {

constexpr NormBuffers norm1{Buf::x, Buf::mean1, Buf::rstd1, Buf::n1};

// The parts of a matrix of latent_columns() columns.
template <class P>
struct Latents {
  View<P, 2> q, kv, key;
  View<P, 2> down;  // kv and key: what kv_down makes
};
template <class P>
Latents<P> split_latents(const ModelSpec& m, View<P, 2> x) {
  const std::int64_t q = m.q_up_inputs(), kv = m.kv_lora();
  return {columns_of(x, 0, q), columns_of(x, q, kv), columns_of(x, q + kv, m.rotary_dim()),
          columns_of(x, q, m.kv_down_columns())};
}

// norm 1's output: without q_lora the first part of the latents.
template <class T>
View<T, 2> normalised(const Context<T>& ctx, const BufferSet& s) {
  if (ctx.spec().q_lora() > 0) return s.matrix<T>(Buf::n1);
  return split_latents(ctx.spec(), s.matrix<T>(Buf::latents)).q;
}

template <class T>
AttentionHeads<T> attention_inputs(const ModelSpec& m, View<T, 2> q, View<T, 2> k, View<T, 2> v) {
  return {heads_of(q, 0, m.H(), m.D()), heads_of(k, 0, m.K(), m.D()), heads_of(v, 0, m.K(), m.value_dim())};
}
template <class T>
AttentionHeads<T> attention_inputs(const ModelSpec& m, const BufferSet& s) {
  return attention_inputs(m, s.matrix<T>(Buf::q), s.matrix<T>(Buf::k), s.matrix<T>(Buf::v));
}

// Heads of keys without rotation and of values, as kv_up makes them.
template <class T>
View<T, 3> up_heads(const ModelSpec& m, View<T, 2> x) {
  return heads_of(x, 0, m.H(), m.options.nope_dim + m.value_dim());
}

template <class T>
void rotate(Context<T>& ctx, View<T, 3> x, View<const std::int32_t, 1> positions, bool inverse) {
  const RotaryPairs pairs = ctx.spec().options.rope_interleave ? RotaryPairs::neighbours : RotaryPairs::halves;
  rotary<T>(ctx.stream, x, positions, ctx.cosine, ctx.sine, inverse, pairs);
}
// The rope key of this rank's rows: one head.
template <class T>
void rotate_key(Context<T>& ctx, View<T, 2> key, const BufferSet& s, bool inverse) {
  rotate<T>(ctx, heads_of(key, 0, 1, key.columns()), own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions)),
            inverse);
}

// q_down, kv_down → latents
template <class T>
void make_latents(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  using A = acc_t<T>;
  const ModelSpec& m = ctx.spec();
  const double epsilon = m.options.latent_norm_epsilon;
  const Latents<T> to = split_latents(m, s.matrix<T>(Buf::latents));
  const auto down = s.matrix<T>(Buf::kv_down);
  if (m.q_lora() > 0)
    rmsnorm_forward<T>(ctx.stream, s.matrix<T>(Buf::q_down), w.q_down_norm, epsilon, to.q,
                       s.vector<A>(Buf::q_down_rstd));
  rmsnorm_forward<T>(ctx.stream, columns_of(down, 0, m.kv_lora()), w.kv_down_norm, epsilon, to.kv,
                     s.vector<A>(Buf::kv_down_rstd));
  copy_rows<T>(ctx.stream, columns_of(down, m.kv_lora(), m.rotary_dim()), to.key);
  rotate_key(ctx, to.key, s, false);
}

// x → latents of this rank's rows
template <class T>
void project_down(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  const auto n = normalised(ctx, s);
  norm_forward<T>(ctx, norm1, w.norm1, w.norm1_bias, n, s);
  if (ctx.spec().q_lora() > 0) linear_forward<T>(ctx, n, w.q_down, {}, s.matrix<T>(Buf::q_down));
  linear_forward<T>(ctx, n, w.kv_down, {}, s.matrix<T>(Buf::kv_down));
  make_latents(ctx, w, s);
}

// Latents of every tp rank: (R, …), in Buf::all_latents, or this rank's own.
template <class T>
Latents<const T> gather_latents(Context<T>& ctx, const BufferSet& s) {
  View<const T, 2> all = s.matrix<T>(Buf::latents);
  if (ctx.groups.tp_size() > 1) {
    const View<T, 2> gathered = s.matrix<T>(Buf::all_latents);
    ctx.groups.tp->all_gather(ctx.stream, all, gathered);
    all = gathered;
  }
  return split_latents(ctx.spec(), all);
}

// latents → q, k, v
template <class T>
void project_up(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& kept) {
  Frame frame(ctx.arena);
  BufferSet s = kept;
  s.add(scratch_forward_latents(ctx.buffers), ctx.arena, Category::workspace);
  const ModelSpec& m = ctx.spec();
  const Latents<const T> in = gather_latents(ctx, s);
  const auto kv_up = s.matrix<T>(Buf::kv_up);
  const AttentionHeads<T> to = attention_inputs<T>(m, s);
  linear_forward<T>(ctx, in.q, w.q_up, {}, s.matrix<T>(Buf::q));
  linear_forward<T>(ctx, in.kv, w.kv_up, {}, kv_up);
  rotate<T>(ctx, to.q, s.vector<std::int32_t>(Buf::positions), false);
  latent_keys_forward<T>(ctx.stream, up_heads(m, kv_up), in.key, to.k, to.v);
}

// d_q, d_k, d_v → this rank's rows of the sum over tp of the latents' gradient, in d_latents; leaves d_q, d_kv_up.
template <class T>
void backward_up(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s, const AttentionHeads<T>& d) {
  const ModelSpec& m = ctx.spec();
  const auto d_latents = s.matrix<T>(Buf::d_latents), d_kv_up = s.matrix<T>(Buf::d_kv_up);
  const View<T, 2> partial = ctx.groups.tp_size() == 1 ? d_latents : s.matrix<T>(Buf::all_latents);
  const Latents<T> to = split_latents(m, partial);
  rotate<T>(ctx, d.q, s.vector<std::int32_t>(Buf::positions), true);
  latent_keys_backward<T>(ctx.stream, d.k, d.v, up_heads(m, d_kv_up), to.key);
  linear_backward_input<T>(ctx, s.matrix<T>(Buf::d_q), w.q_up, to.q);
  linear_backward_input<T>(ctx, d_kv_up, w.kv_up, to.kv);
  reduce_rows(ctx, partial, d_latents);
}

// The gradient of a latent → that of what its norm read, in place, and of the norm's weight.
template <class T>
void backward_latent_norm(Context<T>& ctx, View<const T, 2> x, View<const T, 1> w, View<const acc_t<T>, 1> rstd,
                          View<acc_t<T>, 1> dw, View<T, 2> d, const BufferSet& s) {
  using A = acc_t<T>;
  const View<A, 2> partial(s.vector<A>(Buf::partial).data, {{norm_partial_rows(d.rows()), d.columns()}});
  rmsnorm_weight_gradient<T>(ctx.stream, d, x, rstd, partial, dw);
  rmsnorm_backward<T>(ctx.stream, d, x, w, rstd, {}, d);
}

// d_latents: from the latents' gradient to that of the down-projections' outputs; returns d(norm 1's output).
template <class T>
View<const T, 2> backward_down(Context<T>& ctx, const BlockTensors<const T>& w, const BlockTensors<acc_t<T>>& g,
                               const BufferSet& s) {
  using A = acc_t<T>;
  const ModelSpec& m = ctx.spec();
  const Latents<T> d = split_latents(m, s.matrix<T>(Buf::d_latents));
  rotate_key(ctx, d.key, s, true);
  backward_latent_norm<T>(ctx, columns_of(s.matrix<T>(Buf::kv_down), 0, m.kv_lora()), w.kv_down_norm,
                          s.vector<A>(Buf::kv_down_rstd), g.kv_down_norm, d.kv, s);
  View<T, 2> d_n1 = d.q;
  if (m.q_lora() > 0) {
    backward_latent_norm<T>(ctx, s.matrix<T>(Buf::q_down), w.q_down_norm, s.vector<A>(Buf::q_down_rstd), g.q_down_norm,
                            d.q, s);
    d_n1 = s.matrix<T>(Buf::d_norm);
    linear_backward_input<T>(ctx, d.q, w.q_down, d_n1);
  }
  linear_backward_input<T>(ctx, d.down, w.kv_down, d_n1, true);
  return d_n1;
}

}  // namespace

template <class T>
void latent_attention_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  project_down(ctx, w, s);
  project_up(ctx, w, s);
  attend(ctx, layer, s, attention_inputs<T>(ctx.spec(), s));
  join_attention(ctx, layer, w, s);
}

template <class T>
void latent_attention_recompute(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  norm_forward<T>(ctx, norm1, w.norm1, w.norm1_bias, normalised(ctx, s), s);
  make_latents(ctx, w, s);
}

template <class T>
void latent_attention_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                                     const BlockTensors<acc_t<T>>& g, const BufferSet& kept, View<T, 2> dx) {
  Frame frame(ctx.arena);
  BufferSet s = kept;
  s.add(scratch_backward_attention(ctx.buffers), ctx.arena, Category::workspace);
  const ModelSpec& m = ctx.spec();
  const AttentionHeads<T> d = attention_inputs(m, s.matrix<T>(Buf::d_q), s.matrix<T>(Buf::d_k), s.matrix<T>(Buf::d_v));
  attend_backward(ctx, layer, w, s, attention_inputs<T>(m, s), d);
  backward_up(ctx, w, s, d);
  const View<const T, 2> d_n1 = backward_down(ctx, w, g, s);
  norm_backward<T>(ctx, norm1, w.norm1, g.norm1, g.norm1_bias, d_n1, s.matrix<T>(Buf::d_h), dx, s);
}

template <class T>
void latent_attention_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s) {
  const ModelSpec& m = ctx.spec();
  join_attention_backward_weight<T>(ctx, g, s);
  const Latents<const T> in = gather_latents(ctx, s);
  linear_backward_weight<T>(ctx, s.matrix<T>(Buf::d_q), in.q, g.q_up);
  linear_backward_weight<T>(ctx, s.matrix<T>(Buf::d_kv_up), in.kv, g.kv_up);
  const Latents<T> d = split_latents(m, s.matrix<T>(Buf::d_latents));
  const View<const T, 2> n = normalised(ctx, s);
  if (m.q_lora() > 0) linear_backward_weight<T>(ctx, d.q, n, g.q_down);
  linear_backward_weight<T>(ctx, d.down, n, g.kv_down);
}

#define FORGE_INSTANTIATE(T)                                                                                     \
  template void latent_attention_forward<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&,             \
                                            const BufferSet&);                                                   \
  template void latent_attention_recompute<T>(Context<T>&, const BlockTensors<const T>&, const BufferSet&);      \
  template void latent_attention_backward_input<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&,      \
                                                   const BlockTensors<acc_t<T>>&, const BufferSet&, View<T, 2>); \
  template void latent_attention_backward_weight<T>(Context<T>&, const BlockTensors<acc_t<T>>&, const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
