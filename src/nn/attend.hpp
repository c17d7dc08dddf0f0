#pragma once

#include "core/to_size.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/rows/place_rows.hpp"
#include "nn/attend.plan.hpp"
#include "nn/branch.hpp"
#include "nn/context_attention.hpp"
#include "nn/norm.hpp"

namespace forge {

// What the two kinds of attention layer share: from rotated q, k, v to the residual stream, and back.

// What a pass of a block is about.
template <class T>
struct BlockPass {
  const Context<T>& ctx;
  std::int64_t layer;
  const Batch& batch;
  View<const T, 2> x;  // (S, C) the block's input

  const ModelSpec& spec() const { return ctx.spec(); }
};

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

// n1 = norm1(x), to y(S,C), for products of which the first has a weight that is split so; x itself where no norm
// stands before.
template <class T>
RowOperand<T> norm1_of(const BlockPass<T>& p, const AttendParameters<const T>& w, const AttendBuffers<T>& b,
                       const MatrixSplit& split, View<T, 2> y) {
  if (!p.spec().norms_before()) return p.x;
  return RowOperand<T>::measured(p.ctx, ProductOf::output, split, y, [&](const RowAmaxes& amax) {
    norm_forward<T>(p.ctx, p.x, w.norm1.weight, w.norm1.bias, b.norm1, y, false, amax);
  });
}
// The same in backward.
template <class T>
View<const T, 2> attention_input(const BlockPass<T>& p, const AttendBuffers<T>& b) {
  return p.spec().norms_before() ? b.n1 : p.x;
}
// dx = d_h + ∂norm1(d_n1), or d_h + d_n1
template <class T>
void norm1_backward(const BlockPass<T>& p, const AttendParameters<const T>& w, const AttendParameters<acc_t<T>>& g,
                    const AttendBuffers<T>& b, View<const T, 2> d_n1, View<T, 2> dx, const RowScratch<T>& rows) {
  if (!p.spec().norms_before()) return residual_add<T>(p.ctx.stream, b.d_h, d_n1, dx, Dropout{});
  norm_backward<T>(p.ctx, p.x, w.norm1.weight, b.norm1, g.norm1.weight, g.norm1.bias, d_n1, b.d_h, dx, rows);
}

// The rows before, and the current ones, which join them. A key behind a query, which may be of an earlier text, has a
// later position: nothing sees it.
template <class T>
void attend_cached(const BlockPass<T>& p, const AttendBuffers<T>& b, const AttentionHeads<T>& in,
                   View<const T, 1> sinks) {
  const ModelSpec& m = p.spec();
  const KvCache<T>& cache = *p.ctx.cache;
  const Microbatch& mb = p.ctx.buffers.microbatch;
  const bool several = !cache.places.empty();
  const std::int64_t rows = in.q.rows(), keys = several ? cache.capacity : cache.length + rows;
  const std::int64_t length = several ? mb.sequences * keys : keys;
  const auto l = to_size(p.layer);
  const auto keep = [&](const View<T, 3>& x, const View<T, 2>& kept) {
    const View<const T, 2> flat(x.data, {{rows, x.columns()}}, x.pitch);
    if (several) return place_rows<T>(p.ctx.stream, flat, cache.places, kept);
    copy_rows<T>(p.ctx.stream, flat, kept.slice(cache.length, length));
  };
  keep(in.k, cache.k[l]);
  keep(in.v, cache.v[l]);
  AttentionShape shape{mb.sequences, mb.sequence_tokens, keys, m.softmax_scale(), 0, 0, {}};
  shape.soft_cap = m.options.attention_soft_cap;
  shape.workspace = p.ctx.gemm.workspace().data();
  shape.workspace_bytes = p.ctx.gemm.workspace().size();
  AttentionMask mask{p.batch.positions, cache.positions.slice(0, length), {}, {}, m.window(p.layer)};
  if (!several) mask.document_q = p.batch.documents, mask.document_k = cache.documents.slice(0, length);
  attention_forward<T>(p.ctx.stream, shape, mask, in.q, heads_of(cache.k[l].slice(0, length), 0, m.K(), m.D()),
                       heads_of(cache.v[l].slice(0, length), 0, m.K(), m.value_dim()), output_heads(m, b.o), b.lse);
  if (!sinks.empty()) attention_sinks<T>(p.ctx.stream, sinks, output_heads(m, b.o), b.lse);
}

// q, k, v → o, lse; sinks(H) may be empty.
template <class T>
void attend(const BlockPass<T>& p, const AttendBuffers<T>& b, const AttentionHeads<T>& in,
            View<const T, 1> sinks = {}) {
  require(!p.ctx.cache || p.ctx.dropout_rate() == 0, "generation has no dropout");
  if (p.ctx.cache) return attend_cached(p, b, in, sinks);
  context_attention_forward<T>(p.ctx, p.layer, p.batch, in, output_heads(p.spec(), b.o), b.lse, sinks);
}

// branch(S, C) = o Woᵀ, which joins the residual stream; adapt as of row_parallel_forward().
template <class T, class Adapt = NoAdapter>
void attention_out(const BlockPass<T>& p, const AttendParameters<const T>& w, const AttendBuffers<T>& b,
                   View<T, 2> branch, const RowScratch<T>& rows, Adapt adapt = {}) {
  row_parallel_forward<T>(p.ctx, attention_out_split(p.spec(), p.layer), b.projected_o(), w.out, w.out_bias, branch,
                          rows, adapt);
}

// d_h → d_branch(R, C), the gradient of the output projection's result on all tp ranks
template <class T>
View<const T, 2> attend_output_rows(const BlockPass<T>& p, const AttendParameters<const T>& w,
                                    const AttendParameters<acc_t<T>>& g, const AttendBuffers<T>& b,
                                    const RowScratch<T>& rows) {
  return output_rows<T>(p.ctx, p.layer, DropoutPlace::attention_out, p.batch, b.d_h, b.d_out,
                        [&](View<const T, 2> dy, View<T, 2> dx) {
                          norm_backward<T>(p.ctx, b.branch, w.norm1_behind.weight, b.norm1_behind,
                                           g.norm1_behind.weight, g.norm1_behind.bias, dy, {}, dx, rows);
                        });
}
// d_branch → d_q, d_k, d_v, and the sinks' gradient; adapt(d_o) adds an adapter's part of the gradient of attention's
// output.
template <class T, class Adapt = NoAdapter>
void attend_backward(const BlockPass<T>& p, const AttendParameters<const T>& w, const AttendBuffers<T>& b,
                     const AttendScratch<T>& s, View<const T, 2> d_branch, const AttentionHeads<T>& in,
                     const AttentionHeads<T>& d, const SinkGradient<T>& sinks, Adapt adapt = {}) {
  const ModelSpec& m = p.spec();
  block_linear_backward_input<T>(p.ctx, attention_out_split(m, p.layer), d_branch, w.out, s.d_o);
  adapt(s.d_o);
  attention_delta<T>(p.ctx.stream, output_heads(m, s.d_o), output_heads(m, b.o), s.delta);
  context_attention_backward<T>(p.ctx, p.layer, p.batch, output_heads(m, s.d_o), in, output_heads(m, b.o), b.lse,
                                s.delta, s.d_q_sums, d, sinks);
}

// Of the output projection's result, as B left it.
template <class T>
View<const T, 2> attention_out_gradient(const AttendBuffers<T>& b) {
  return b.d_out.empty() ? b.d_h : b.d_out;
}
// Gradients of the output projection.
template <class T>
void attention_out_backward_weight(const BlockPass<T>& p, const AttendParameters<acc_t<T>>& g,
                                   const AttendBuffers<T>& b, const RowOperand<T>& d_branch,
                                   const RowScratch<T>& rows) {
  block_linear_backward_weight<T>(p.ctx, attention_out_split(p.spec(), p.layer), d_branch, b.projected_o(), g.out);
  // The output's bias was added to this rank's rows only.
  bias_backward<T>(p.ctx, own_rows(p.ctx.groups, d_branch.values()), g.out_bias, rows);
}

}  // namespace forge
