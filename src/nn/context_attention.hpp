#pragma once

#include "nn/context.hpp"
#include "nn/context_attention.plan.hpp"

namespace forge {

// Heads of q, k and v. They may lie in fused buffers: the pitches are any.
template <class T>
struct AttentionHeads {
  View<T, 3> q, k, v;  // (R, H, D), (R, K, D), (R, K, Dv)

  operator AttentionHeads<const T>() const requires(!std::is_const_v<T>) { return {q, k, v}; }
};

// Sinks in backward: their values (H), their gradient (H), to which is added, and workspace, terms (R, H) and
// sums; without a gradient nothing.
template <class T>
struct SinkGradient {
  View<const T, 1> values;
  View<acc_t<T>, 1> gradient;
  View<acc_t<T>, 2> terms, sums;
};

// Attention of these rows runs next.
template <class T>
void note_attention(const Context<T>& ctx, bool backward, const AttentionShape& shape, const AttentionMask& mask,
                    const AttentionHeads<const T>& in) {
  if (ctx.operations)
    ctx.operations->attention(ctx.stream, shape, mask,
                              {backward,
                               shape.sequences,
                               in.q.extent(1),
                               in.k.extent(1),
                               in.q.extent(2),
                               in.v.extent(2),
                               {},
                               {},
                               mask.window});
}

// Attention of this rank's rows to the keys of all context-parallel ranks. A rank has T/cp tokens of every sequence of
// the microbatch; positions say which. The methods (mesh.cp_method):
//   ring        Keys and values go round, cp − 1 times, behind the attention to those at hand; partial results are
//               merged by their log-sum-exp (Liu et al. 2023, "Ring attention"). Backward: they go round again, and
//               each rank's d_k and d_v, which start at its right neighbour, follow them home.
//   all_gather  All keys and values at once, behind the attention to this rank's own; backward gathers them again and
//               sums d_k and d_v by one reduce-scatter.
//   all_to_all  Heads for positions (Jacobs et al. 2023, "DeepSpeed Ulysses"): rank c works on heads
//               [c H/cp, (c + 1) H/cp) of all rows, and on copies of the heads of k and v that these read.
//   two_level   cp = inner · outer (Fang and Zhao 2024, "USP"): all_to_all among each inner consecutive ranks, then
//               ring over the ranks that have the same heads, with the rows of all inner ones.
// No rank's keys are left out by host knowledge: with zigzag positions each rank sees something of every other, and
// attention itself skips the tiles that its mask excludes. What is sent, and the scratch:
// nn/context_attention.plan.hpp.
//
// With cp > 1 the batch's key_positions and key_documents (R cp) are ordered [outer rank][sequence][inner rank][T/cp];
// inner is 1 for ring and all_gather, cp for all_to_all. Where inner > 1, attention also reads key_samples.
//
//   o(R, H, Dv) = attention;  lse(R, H) for backward alone: of these rows and heads, or where inner > 1 the same number
//   of values for the inner ranks' rows and this rank's share of heads, ordered [sequence][inner rank][T/cp][H/inner].
// Where sinks(H) aren't empty, o and lse are those with them (attention_sinks): once a row, behind the last merge, and
// where inner > 1 by the rank that works on the head.
template <class T>
void context_attention_forward(const Context<T>& ctx, std::int64_t layer, const Batch& batch,
                               const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse,
                               View<const T, 1> sinks = {});

// d_q, d_k, d_v from d_o(R, H, Dv), forward's o and lse, and delta(R, H) of these rows and heads (attention_delta). d
// may not alias in. The sinks' gradient is of these rows, where inner > 1 of the inner ranks' rows and this rank's
// heads. On one rank, where T isn't acc_t<T>, d_q is summed in d_q_sums(R, H D).
template <class T>
void context_attention_backward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, View<const T, 3> d_o,
                                const AttentionHeads<const T>& in, View<const T, 3> o, View<const acc_t<T>, 2> lse,
                                View<const acc_t<T>, 2> delta, View<acc_t<T>, 2> d_q_sums, const AttentionHeads<T>& d,
                                const SinkGradient<T>& sinks = {});

}  // namespace forge
