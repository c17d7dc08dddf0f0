#include "nn/attention_layer.hpp"

#include "kernels/attention.hpp"
#include "nn/branch.hpp"
#include "nn/context_attention.hpp"
#include "nn/norm.hpp"

namespace forge {

namespace {

constexpr NormBuffers norm1{Buf::x, Buf::mean1, Buf::rstd1, Buf::n1};

// The heads of q, k and v inside the fused (R, (H + 2K) D) buffer; with QK-norm, q and k are in the (R, (H + K) D) one.
template <class T>
using Heads = AttentionHeads<T>;

template <class T>
View<T, 3> heads_of(View<T, 2> fused, std::int64_t first, std::int64_t count, std::int64_t head_dim) {
  return View<T, 3>(fused.data + first * head_dim, {{fused.rows(), count, head_dim}}, fused.pitch);
}

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

template <class T>
AttentionShape attention_shape(const Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  const Microbatch& mb = ctx.buffers.microbatch;
  AttentionShape shape{mb.sequences, mb.sequence_tokens, mb.sequence_tokens, ctx.spec().softmax_scale(), 0, 0, {}};
  if (ctx.dropout_rate() > 0) {
    shape.dropout = ctx.dropout_rate();
    shape.dropout_key = ctx.dropout_key(layer, DropoutPlace::attention);
    shape.samples = s.vector<std::int64_t>(Buf::samples);
  }
  return shape;
}

template <class T>
AttentionMask attention_mask(const Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  const View<const std::int32_t, 1> positions = s.vector<std::int32_t>(Buf::positions);
  const View<const std::int32_t, 1> documents = s.vector<std::int32_t>(Buf::documents);
  return {positions, positions, documents, documents, ctx.spec().window(layer)};
}

template <class T>
View<T, 3> as_heads(const ModelSpec& m, View<T, 2> x) {
  return heads_of(x, 0, m.H(), m.D());
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

// The rows before, and the current ones, which join them.
template <class T>
void attend_cached(Context<T>& ctx, std::int64_t layer, const BufferSet& s, const Heads<T>& in) {
  const ModelSpec& m = ctx.spec();
  const KvCache<T>& cache = *ctx.cache;
  const std::int64_t rows = in.q.rows(), length = cache.length + rows;
  const auto l = static_cast<std::size_t>(layer);
  auto flat = [&](const View<T, 3>& x) { return View<const T, 2>(x.data, {{rows, x.columns()}}, x.pitch); };
  copy_rows<T>(ctx.stream, flat(in.k), cache.k[l].slice(cache.length, length));
  copy_rows<T>(ctx.stream, flat(in.v), cache.v[l].slice(cache.length, length));
  AttentionShape shape = attention_shape(ctx, layer, s);
  shape.key_rows = length;
  AttentionMask mask = attention_mask(ctx, layer, s);
  mask.position_k = cache.positions.slice(0, length);
  mask.document_k = cache.documents.slice(0, length);
  attention_forward<T>(ctx.stream, shape, mask, in.q, heads_of(cache.k[l].slice(0, length), 0, m.K(), m.D()),
                       heads_of(cache.v[l].slice(0, length), 0, m.K(), m.D()), as_heads(m, s.matrix<T>(Buf::o)),
                       s.matrix<acc_t<T>>(Buf::lse));
}

template <class T>
void attend(Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  const Heads<T> in = attention_inputs(ctx, s);
  if (ctx.cache) return attend_cached(ctx, layer, s, in);
  context_attention_forward<T>(ctx, layer, s, in, as_heads(ctx.spec(), s.matrix<T>(Buf::o)),
                               s.matrix<acc_t<T>>(Buf::lse));
}

// h = x + dropout(o Woᵀ)
template <class T>
void join_attention(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  const auto branch = s.matrix<T>(Buf::branch);
  row_parallel_forward<T>(ctx, s.matrix<T>(Buf::o), w.attention_out, w.attention_out_bias, branch, s);
  residual_add<T>(ctx.stream, s.matrix<T>(Buf::x), branch, s.matrix<T>(Buf::h),
                  dropout_of(ctx, layer, DropoutPlace::attention_out, s));
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
  attend(ctx, layer, s);
  join_attention(ctx, layer, w, s);
}

template <class T>
void attention_layer_rebuild(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  norm_forward<T>(ctx, norm1, w.norm1, w.norm1_bias, s);
}

template <class T>
void attention_layer_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                                    const BlockTensors<acc_t<T>>& g, const BufferSet& kept, View<T, 2> dx) {
  using A = acc_t<T>;
  Frame frame(ctx.arena);
  BufferSet s = kept;
  s.add(scratch_backward_attention(ctx.buffers), ctx.arena, Category::workspace);
  const ModelSpec& m = ctx.spec();
  const auto d_h = s.matrix<T>(Buf::d_h);
  const auto d_o = s.matrix<T>(Buf::d_o);
  const auto delta = s.matrix<A>(Buf::delta);
  const auto d_qkv = s.matrix<T>(Buf::d_qkv);
  const auto d_branch = output_rows<T>(ctx, layer, DropoutPlace::attention_out, s, d_h, Buf::d_attention_out);
  linear_backward_input<T>(ctx, d_branch, w.attention_out, d_o);
  attention_delta<T>(ctx.stream, as_heads(m, d_o), as_heads(m, s.matrix<T>(Buf::o)), delta);
  const Heads<T> in = attention_inputs(ctx, s);
  const Heads<T> d = split_heads(m, d_qkv);
  context_attention_backward<T>(ctx, layer, s, as_heads(m, d_o), in, s.matrix<A>(Buf::lse), delta, d);
  backward_positions(ctx, w, g, s, d);
  const auto d_n1 = s.matrix<T>(Buf::d_norm);
  column_parallel_backward_input<T>(ctx, d_qkv, w.qkv, d_n1, s);
  norm_backward<T>(ctx, norm1, w.norm1, g.norm1, g.norm1_bias, d_n1, d_h, dx, s);
}

template <class T>
void attention_layer_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s) {
  const View<const T, 2> d_branch = s.matrix<T>(s.has(Buf::d_attention_out) ? Buf::d_attention_out : Buf::d_h);
  const View<const T, 2> d_qkv = s.matrix<T>(Buf::d_qkv);
  linear_backward_weight<T>(ctx, d_branch, s.matrix<T>(Buf::o), g.attention_out);
  linear_backward_weight<T>(ctx, d_qkv, gather_rows<T>(ctx, s.matrix<T>(Buf::n1), s), g.qkv);
  // The output's bias was added to this rank's rows only.
  bias_backward<T>(ctx, own_rows(ctx.groups, d_branch), g.attention_out_bias, s);
  bias_backward<T>(ctx, d_qkv, g.qkv_bias, s);
}

#define FORGE_INSTANTIATE(T)                                                                                           \
  template void attention_layer_forward<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&, const BufferSet&); \
  template void attention_layer_rebuild<T>(Context<T>&, const BlockTensors<const T>&, const BufferSet&);               \
  template void attention_layer_backward_input<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&,             \
                                                  const BlockTensors<acc_t<T>>&, const BufferSet&, View<T, 2>);        \
  template void attention_layer_backward_weight<T>(Context<T>&, const BlockTensors<acc_t<T>>&, const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
