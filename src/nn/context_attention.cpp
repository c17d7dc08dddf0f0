#include "nn/context_attention.hpp"

#include "nn/context_parts.hpp"

namespace forge {

namespace {

using namespace context_detail;

// Whole sequences, of which cuDNN has the mask.
template <class T>
AttentionShape own_shape(const Context<T>& ctx, std::int64_t layer, const Batch& batch) {
  AttentionShape shape = context_shape<T>(ctx, layer, ctx.buffers.microbatch.sequence_tokens, 0, batch.samples);
  shape.cudnn = ctx.services.cudnn;
  return shape;
}

template <class T>
AttentionMask own_mask(const Context<T>& ctx, std::int64_t layer, const Batch& batch) {
  const View<const std::int32_t, 1> documents = known_documents(ctx, batch.documents);
  return {batch.positions, batch.positions, documents, documents, ctx.spec().window(layer), ctx.services.rows_in_order};
}

// The ranks of the groups are those that the buffers were sized for.
template <class T>
bool alone(const Context<T>& ctx) {
  require(ctx.groups.cp_size() == ctx.buffers.microbatch.cp, "attention: the cp group and the microbatch's cp differ");
  if (ctx.groups.cp_size() == 1) return true;
  const ContextRows n(ctx.buffers);
  require(
      (n.inner == 1 || head_ranks_of(ctx).size() == n.inner) && (n.outer == 1 || key_ranks_of(ctx).size() == n.outer),
      "attention: the levels of cp and their groups differ");
  return false;
}

}  // namespace

template <class T>
void context_attention_forward(const Context<T>& ctx, std::int64_t layer, const Batch& batch,
                               const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse,
                               View<const T, 1> sinks) {
  Frame frame(ctx.arena);
  const auto s = workspace<ContextForward<T>>(ctx);
  if (alone(ctx)) {
    const AttentionShape shape = own_shape(ctx, layer, batch);
    const AttentionMask mask = own_mask(ctx, layer, batch);
    note_attention<T>(ctx, false, shape, mask, in);
    attention_with_peaks<T>(ctx, layer, shape, mask, in, o, lse, s.peak);
  } else if (ctx.buffers.cp_inner > 1) {
    return head_parallel_forward<T>(ctx, layer, batch, s, in, o, lse, sinks);
  } else {
    key_forward<T>(ctx, layer, batch, s.keys, in, o, lse, s.peak);
  }
  if (!sinks.empty()) attention_sinks<T>(ctx.stream, sinks, o, lse);
}

template <class T>
void context_attention_backward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, View<const T, 3> d_o,
                                const AttentionHeads<const T>& in, View<const T, 3> o, View<const acc_t<T>, 2> lse,
                                View<const acc_t<T>, 2> delta, View<acc_t<T>, 2> d_q_sums, const AttentionHeads<T>& d,
                                const SinkGradient<T>& sinks) {
  if (alone(ctx)) {
    add_sink_gradient<T>(ctx.stream, sinks, lse, delta);
    const AttentionShape shape = own_shape(ctx, layer, batch);
    const AttentionMask mask = own_mask(ctx, layer, batch);
    note_attention<T>(ctx, true, shape, mask, in);
    return attention_backward<T>(ctx.stream, shape, mask, d_o, in.q, in.k, in.v, lse, delta, d.q, d.k, d.v,
                                 heads_at(d_q_sums, 0, ctx.spec().H(), ctx.spec().D()), o);
  }
  Frame frame(ctx.arena);
  const auto s = workspace<ContextBackward<T>>(ctx);
  if (ctx.buffers.cp_inner > 1) return head_parallel_backward<T>(ctx, layer, batch, s, d_o, in, lse, delta, d, sinks);
  add_sink_gradient<T>(ctx.stream, sinks, lse, delta);
  key_backward<T>(ctx, layer, batch, s.keys, d_o, in, lse, delta, d);
}

FORGE_INSTANTIATE_FUNCTION(context_attention_forward);
FORGE_INSTANTIATE_FUNCTION(context_attention_backward);

}  // namespace forge
