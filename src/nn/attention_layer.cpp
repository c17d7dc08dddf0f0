#include "nn/attention_layer.hpp"

#include "nn/attend.hpp"
#include "nn/norm.hpp"

namespace forge {

namespace {

constexpr NormBuffers norm1{Buf::x, Buf::mean1, Buf::rstd1, Buf::n1};

// The heads of q, k and v inside the fused (R, (H + 2K) D) buffer; with QK-norm, q and k are in the (R, (H + K) D) one.
template <class T>
using Heads = AttentionHeads<T>;

template <class T>
Heads<T> split_heads(const ModelSpec& m, View<T, 2> qkv) {
  return {heads_of(qkv, 0, m.H(), m.D()), heads_of(qkv, m.H(), m.K(), m.D()),
          heads_of(qkv, m.H() + m.K(), m.K(), m.D())};
}

// What attention reads: rotated and, where the model says, normalised.
template <class T>
Heads<T> attention_inputs(const Context<T>& ctx, const BufferSet& s) {
  const ModelSpec& m = ctx.spec();
  Heads<T> heads = split_heads(m, s.matrix<T>(Buf::qkv));
  if (m.options.qk_norm) {
    const auto qk = s.matrix<T>(Buf::qk);
    heads.q = heads_of(qk, 0, m.H(), m.D());
    heads.k = heads_of(qk, m.H(), m.K(), m.D());
  }
  return heads;
}

// rstd(R, H + K) of QK-norm: the columns of q's or of k's heads.
template <class T>
View<acc_t<T>, 2> head_rstd(const Context<T>& ctx, const BufferSet& s, bool of_k) {
  const ModelSpec& m = ctx.spec();
  const auto all = s.matrix<acc_t<T>>(Buf::qk_rstd);
  return of_k ? columns_of(all, m.H(), m.K()) : columns_of(all, 0, m.H());
}

// n1 → q, k, v
template <class T>
void project_qkv(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  const ModelSpec& m = ctx.spec();
  const auto qkv = s.matrix<T>(Buf::qkv);
  linear_forward<T>(ctx, gather_rows<T>(ctx, s.matrix<T>(Buf::n1), s), w.qkv, w.qkv_bias, qkv);
  const Heads<T> to = attention_inputs(ctx, s);
  if (m.options.qk_norm) {
    const Heads<T> raw = split_heads(m, qkv);
    const double epsilon = m.options.norm_epsilon;
    head_norm_forward<T>(ctx.stream, raw.q, w.q_norm, epsilon, to.q, head_rstd(ctx, s, false));
    head_norm_forward<T>(ctx.stream, raw.k, w.k_norm, epsilon, to.k, head_rstd(ctx, s, true));
  }
  if (m.rope()) {
    const auto positions = s.vector<std::int32_t>(Buf::positions);
    rotary<T>(ctx.stream, to.q, positions, ctx.cosine, ctx.sine, false);
    rotary<T>(ctx.stream, to.k, positions, ctx.cosine, ctx.sine, false);
  }
}

// d(rotated, normalised q and k) → d(projected q and k), in place, and the gradients of QK-norm.
template <class T>
void backward_positions(Context<T>& ctx, const BlockTensors<const T>& w, const BlockTensors<acc_t<T>>& g,
                        const BufferSet& s, const Heads<T>& d) {
  using A = acc_t<T>;
  const ModelSpec& m = ctx.spec();
  if (m.rope()) {
    const auto positions = s.vector<std::int32_t>(Buf::positions);
    rotary<T>(ctx.stream, d.q, positions, ctx.cosine, ctx.sine, true);
    rotary<T>(ctx.stream, d.k, positions, ctx.cosine, ctx.sine, true);
  }
  if (!m.options.qk_norm) return;
  const Heads<T> raw = split_heads(m, s.matrix<T>(Buf::qkv));
  const View<A, 2> partial(s.vector<A>(Buf::partial).data, {{norm_partial_rows(raw.q.rows()), m.D()}});
  head_norm_weight_gradient<T>(ctx.stream, d.q, raw.q, head_rstd(ctx, s, false), partial, g.q_norm);
  head_norm_weight_gradient<T>(ctx.stream, d.k, raw.k, head_rstd(ctx, s, true), partial, g.k_norm);
  head_norm_backward<T>(ctx.stream, d.q, raw.q, w.q_norm, head_rstd(ctx, s, false), d.q);
  head_norm_backward<T>(ctx.stream, d.k, raw.k, w.k_norm, head_rstd(ctx, s, true), d.k);
}

}  // namespace

template <class T>
void attention_layer_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  norm_forward<T>(ctx, norm1, w.norm1, w.norm1_bias, s);
  project_qkv(ctx, w, s);
  attend(ctx, layer, s, attention_inputs(ctx, s));
  join_attention(ctx, layer, w, s);
}

template <class T>
void attention_layer_recompute(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  norm_forward<T>(ctx, norm1, w.norm1, w.norm1_bias, s);
}

template <class T>
void attention_layer_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                                    const BlockTensors<acc_t<T>>& g, const BufferSet& kept, View<T, 2> dx) {
  Frame frame(ctx.arena);
  BufferSet s = kept;
  s.add(scratch_backward_attention(ctx.buffers), ctx.arena, Category::workspace);
  const auto d_h = s.matrix<T>(Buf::d_h);
  const auto d_qkv = s.matrix<T>(Buf::d_qkv);
  const Heads<T> d = split_heads(ctx.spec(), d_qkv);
  attend_backward(ctx, layer, w, s, attention_inputs(ctx, s), d);
  backward_positions(ctx, w, g, s, d);
  const auto d_n1 = s.matrix<T>(Buf::d_norm);
  column_parallel_backward_input<T>(ctx, d_qkv, w.qkv, d_n1, s);
  norm_backward<T>(ctx, norm1, w.norm1, g.norm1, g.norm1_bias, d_n1, d_h, dx, s);
}

template <class T>
void attention_layer_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s) {
  const View<const T, 2> d_qkv = s.matrix<T>(Buf::d_qkv);
  join_attention_backward_weight<T>(ctx, g, s);
  linear_backward_weight<T>(ctx, d_qkv, gather_rows<T>(ctx, s.matrix<T>(Buf::n1), s), g.qkv);
  bias_backward<T>(ctx, d_qkv, g.qkv_bias, s);
}

#define FORGE_INSTANTIATE(T)                                                                                           \
  template void attention_layer_forward<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&, const BufferSet&); \
  template void attention_layer_recompute<T>(Context<T>&, const BlockTensors<const T>&, const BufferSet&);             \
  template void attention_layer_backward_input<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&,             \
                                                  const BlockTensors<acc_t<T>>&, const BufferSet&, View<T, 2>);        \
  template void attention_layer_backward_weight<T>(Context<T>&, const BlockTensors<acc_t<T>>&, const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
