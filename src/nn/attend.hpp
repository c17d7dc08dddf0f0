#pragma once

#include "kernels/attention.hpp"
#include "nn/branch.hpp"
#include "nn/context_attention.hpp"

namespace forge {

// What the two kinds of attention layer share: from rotated q, k, v to the residual stream, and back.

// `count` heads of `head_dim` columns, from head `first` of that size on.
template <class T>
View<T, 3> heads_of(View<T, 2> x, std::int64_t first, std::int64_t count, std::int64_t head_dim) {
  return View<T, 3>(x.data + first * head_dim, {{x.rows(), count, head_dim}}, x.pitch);
}

// o or its gradient (R, H Dv) by heads.
template <class T>
View<T, 3> output_heads(const ModelSpec& m, View<T, 2> x) {
  return heads_of(x, 0, m.H(), m.value_dim());
}

// The rows before, and the current ones, which join them.
template <class T>
void attend_cached(Context<T>& ctx, std::int64_t layer, const BufferSet& s, const AttentionHeads<T>& in) {
  const ModelSpec& m = ctx.spec();
  const KvCache<T>& cache = *ctx.cache;
  const std::int64_t rows = in.q.rows(), length = cache.length + rows;
  const auto l = static_cast<std::size_t>(layer);
  auto flat = [&](const View<T, 3>& x) { return View<const T, 2>(x.data, {{rows, x.columns()}}, x.pitch); };
  copy_rows<T>(ctx.stream, flat(in.k), cache.k[l].slice(cache.length, length));
  copy_rows<T>(ctx.stream, flat(in.v), cache.v[l].slice(cache.length, length));
  const Microbatch& mb = ctx.buffers.microbatch;
  const AttentionShape shape{mb.sequences, mb.sequence_tokens, length, m.softmax_scale(), 0, 0, {}};
  const AttentionMask mask{s.vector<std::int32_t>(Buf::positions), cache.positions.slice(0, length),
                           s.vector<std::int32_t>(Buf::documents), cache.documents.slice(0, length), m.window(layer)};
  attention_forward<T>(ctx.stream, shape, mask, in.q, heads_of(cache.k[l].slice(0, length), 0, m.K(), m.D()),
                       heads_of(cache.v[l].slice(0, length), 0, m.K(), m.value_dim()),
                       output_heads(m, s.matrix<T>(Buf::o)), s.matrix<acc_t<T>>(Buf::lse));
}

// q, k, v → o, lse
template <class T>
void attend(Context<T>& ctx, std::int64_t layer, const BufferSet& s, const AttentionHeads<T>& in) {
  require(!ctx.cache || ctx.dropout_rate() == 0, "generation has no dropout");
  if (ctx.cache) return attend_cached(ctx, layer, s, in);
  context_attention_forward<T>(ctx, layer, s, in, output_heads(ctx.spec(), s.matrix<T>(Buf::o)),
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

// d_h → d_q, d_k, d_v, with scratch_backward_attention in `s`.
template <class T>
void attend_backward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s,
                     const AttentionHeads<T>& in, const AttentionHeads<T>& d) {
  using A = acc_t<T>;
  const ModelSpec& m = ctx.spec();
  const auto d_o = s.matrix<T>(Buf::d_o);
  const auto delta = s.matrix<A>(Buf::delta);
  const View<const T, 2> d_h = s.matrix<T>(Buf::d_h);
  const auto d_branch = output_rows<T>(ctx, layer, DropoutPlace::attention_out, s, d_h, Buf::d_attention_out);
  linear_backward_input<T>(ctx, d_branch, w.attention_out, d_o);
  attention_delta<T>(ctx.stream, output_heads(m, d_o), output_heads(m, s.matrix<T>(Buf::o)), delta);
  context_attention_backward<T>(ctx, layer, s, output_heads(m, d_o), in, s.matrix<A>(Buf::lse), delta, d);
}

// Gradients of the output projection.
template <class T>
void join_attention_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s) {
  const View<const T, 2> d_branch = s.matrix<T>(s.has(Buf::d_attention_out) ? Buf::d_attention_out : Buf::d_h);
  linear_backward_weight<T>(ctx, d_branch, s.matrix<T>(Buf::o), g.attention_out);
  // The output's bias was added to this rank's rows only.
  bias_backward<T>(ctx, own_rows(ctx.groups, d_branch), g.attention_out_bias, s);
}

}  // namespace forge
