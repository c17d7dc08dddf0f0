#include "nn/attention_layer.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/attention/output_gate.hpp"
#include "kernels/rows/width_norm.hpp"

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

// q's heads, then k's, of a buffer that begins with them.
template <class T>
View<T, 3> AttentionLayer<T>::queries_and_keys(View<T, 2> x) const {
  const ModelSpec& m = p.spec();
  return heads_of(x, 0, m.H() + m.K(), m.D());
}

// What the rows' queries and keys turn by; no angles where the layer has no positions, or the model has a table of
// them. `queries`: theirs, where they have a table of their own.
template <class T>
typename AttentionLayer<T>::Angles AttentionLayer<T>::angles(bool queries) const {
  const auto& s = p.ctx.services;
  if (!p.spec().rotates(p.layer)) return {p.batch.table_positions(), {}, {}};
  const std::int64_t rows = s.cosine.rows() / p.spec().rotary_tables(),
                     first = rows * p.spec().rotary_table_of(p.layer, queries);
  return {p.batch.table_positions(), s.cosine.slice(first, first + rows), s.sine.slice(first, first + rows)};
}

// Rotates the heads of queries, then of keys, and multiplies those of queries by the scale of their positions, which
// their table has; `inverse`: their gradients.
template <class T>
void AttentionLayer<T>::turn(const View<T, 3>& heads, bool inverse) const {
  const ModelSpec& m = p.spec();
  if (!m.rotates(p.layer)) return;
  const auto turn_by = [&](const View<T, 3>& x, const Angles& by) {
    rotary<T>(p.ctx.stream, x, by.positions, by.cosine, by.sine, inverse, RotaryPairs::halves, RotaryPart::first);
  };
  if (!m.scales_queries()) return turn_by(heads, angles());
  const View<T, 2> flat(heads.data, {{heads.rows(), heads.columns()}}, heads.pitch);
  turn_by(heads_of(flat, 0, m.H(), m.D()), angles(true));
  turn_by(heads_of(flat, m.H(), m.K(), m.D()), angles());
}

template <class T>
std::pair<std::int64_t, std::int64_t> AttentionLayer<T>::widths() const {
  const ModelSpec& m = p.spec();
  const std::int64_t ranks = p.ctx.groups.tp_size(), copies = p.ctx.buffers.rounding.kv_copies;
  return {m.q_columns() * ranks, m.kv_columns() * ranks / copies};
}
template <class T>
void AttentionLayer<T>::add_up(View<acc_t<T>, 2> sums) const {
  if (p.ctx.groups.tp) p.ctx.groups.tp->all_reduce(p.ctx.stream, sums);
}

// x → n1 → q, k, v
template <class T>
void AttentionLayer<T>::project(const RowScratch<T>& rows) const {
  const MatrixSplit split = qkv_split(p.ctx.buffers);
  const RowOperand<T> n =
      gather_operand<T>(p.ctx, norm1_of(p, w, b, split, b.n1), b.all_n1.empty() ? rows.all_rows : b.all_n1);
  {
    Frame frame(p.ctx.arena);
    const bool gated = p.spec().output_gate();
    const auto s = workspace<GatedProjection<T>>(p.ctx);
    const View<T, 2>& made = gated ? s.projected : b.qkv;
    block_linear_forward<T>(p.ctx, split, n, w.qkv, w.qkv_bias, made);
    adapter().forward(n.values(), made);
    if (gated) split_gates<T>(p.ctx.stream, made, p.spec().D(), b.qkv, b.gate);
  }
  const View<T, 3> raw = queries_and_keys(b.qkv);
  const double epsilon = p.spec().options.norm_epsilon;
  if (p.spec().options.qk_norm_whole) {
    const auto [queries, keys] = widths();
    // Of ranks with the same key heads the first one counts them.
    const bool counts = p.ctx.groups.tp_rank() % p.ctx.buffers.rounding.kv_copies == 0;
    width_squares<T>(p.ctx.stream, raw, p.spec().H(), counts, b.qk_rstd);
    add_up(b.qk_rstd);
    width_rstd<T>(p.ctx.stream, queries, keys, epsilon, b.qk_rstd);
    width_norm_forward<T>(p.ctx.stream, raw, head_weights(), b.qk_rstd, queries_and_keys(b.qk));
    turn(queries_and_keys(b.qk), false);
  } else if (p.spec().options.qk_norm) {
    const auto [positions, cosine, sine] = angles();
    head_norm_forward<T>(p.ctx.stream, raw, head_weights(), epsilon, positions, cosine, sine, queries_and_keys(b.qk),
                         b.qk_rstd);
  } else {
    turn(raw, false);
  }
}

// d(rotated, normalised q and k) → d(projected q and k), in place, and the gradients of QK-norm.
template <class T>
void AttentionLayer<T>::backward_positions(const AttentionScratch<T>& s) const {
  const View<T, 3> d = queries_and_keys(b.d_qkv), raw = queries_and_keys(b.qkv);
  const ModelSpec& m = p.spec();
  if (m.options.qk_norm && !m.options.qk_norm_whole) {
    const auto [positions, cosine, sine] = angles();
    return head_norm_backward<T>(p.ctx.stream, d, raw, head_weights(), b.qk_rstd, positions, cosine, sine,
                                 norm_sums(s.rows, d.rows(), m.D()), g.q_norm, g.k_norm);
  }
  turn(d, true);
  if (!m.options.qk_norm) return;
  const auto [queries, keys] = widths();
  width_slopes<T>(p.ctx.stream, d, raw, head_weights(), s.qk_slopes);
  add_up(s.qk_slopes);
  // Ranks with the same key heads have a part of their gradient each.
  width_norm_backward<T>(p.ctx.stream, d, raw, head_weights(), b.qk_rstd, s.qk_slopes, queries,
                         keys * p.ctx.buffers.rounding.kv_copies, norm_sums(s.rows, d.rows(), d.extent(1) * m.D()),
                         g.q_norm, g.k_norm);
}

// tp neighbours with the same key heads have their own query heads' parts of the gradient. Rounding takes the sum: the
// first of them gets it, the others nothing.
template <class T>
void AttentionLayer<T>::sum_copies() const {
  const Context<T>& ctx = p.ctx;
  const std::int64_t copies = ctx.buffers.rounding.kv_copies, columns = 2 * p.spec().kv_columns();
  if (!ctx.rounding.block || copies == 1) return;
  const View<T, 2> d = columns_of(b.d_qkv, p.spec().q_columns(), columns);
  const std::int64_t count = d.rows() * columns, rank = ctx.groups.tp_rank();
  const View<T, 1> own = ctx.scratch.rounding.a.slice(0, count),
                   all = ctx.scratch.rounding.a.slice(count, count * (1 + ctx.groups.tp_size()));
  const View<T, 2> sum(own.data, {{d.rows(), columns}});
  copy_rows<T>(ctx.stream, d, sum);
  ctx.groups.tp->all_gather(ctx.stream, View<const T, 1>(own), all);
  if (rank % copies > 0) fill_zero(ctx.stream, own.data, to_size(count) * sizeof(T));
  for (std::int64_t other = rank + 1; rank % copies == 0 && other < rank + copies; ++other)
    add<T>(ctx.stream, all.slice(other * count, (other + 1) * count), own);
  copy_rows<T>(ctx.stream, sum, d);
}

template <class T>
void AttentionLayer<T>::forward(View<T, 2> branch, const RowScratch<T>& rows) const {
  project(rows);
  attend<T>(p, b, inputs(), w.sinks);
  if (p.spec().output_gate()) gate_output<T>(p.ctx.stream, b.o, b.gate, b.gated_o);
  attention_out<T>(p, w, b, branch, rows, [&](View<T, 2> partial) { out_adapter().forward(b.projected_o(), partial); });
}

template <class T>
void AttentionLayer<T>::recompute() const {
  if (p.spec().norms_before() && p.ctx.buffers.recompute.has(Recompute::norms))
    norm_forward<T>(p.ctx, p.x, w.norm1.weight, w.norm1.bias, b.norm1, b.n1);
}

template <class T>
void AttentionLayer<T>::backward(View<T, 2> dx, const RowScratch<T>* weights) const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<AttentionScratch<T>>(p.ctx);
  const AttentionHeads<T> d = split_heads(b.d_qkv);
  const View<const T, 2> d_branch = attend_output_rows(p, w, g, b, s.rows);
  RowsBehind<T> behind(p.ctx);
  const View<const T, 2> n =
      weights ? behind.gather(attention_input(p, b), b.all_n1, weights->all_rows) : View<const T, 2>();
  attend_backward<T>(p, w, b, s, d_branch, inputs(), d, {w.sinks, g.sinks, s.sink_terms, s.sink_sums},
                     [&](View<T, 2> d_o) {
                       out_adapter().backward_input(d_branch, d_o);
                       if (p.spec().output_gate()) gate_output_backward<T>(p.ctx.stream, b.o, b.gate, d_o, s.d_gate);
                     });
  backward_positions(s);
  sum_copies();
  if (p.spec().output_gate()) join_gates<T>(p.ctx.stream, b.d_qkv, s.d_gate, p.spec().D(), b.d_projected);
  const View<T, 2> partial = partial_rows(p.ctx, s.rows, s.d_n1);
  block_linear_backward_input<T>(p.ctx, qkv_split(p.ctx.buffers), projected_gradient(), w.qkv, partial);
  adapter().backward_input(projected_gradient(), partial);
  if (weights)
    behind.reduce_beside(partial, s.d_n1, [&] { add_weights(n, *weights); });
  else
    reduce_rows(p.ctx, partial, s.d_n1);
  norm1_backward<T>(p, w, g, b, s.d_n1, dx, s.rows);
}

template <class T>
void AttentionLayer<T>::add_weights(View<const T, 2> n, const RowScratch<T>& rows) const {
  const MatrixSplit split = qkv_split(p.ctx.buffers);
  Array<RowOperand<T>, 2> of{{attention_out_gradient<T>(b), projected_gradient()}};
  if (!g.qkv.empty())
    of = code_together<T>(p.ctx, ProductOf::weight_gradient,
                          {attention_out_split(p.spec(), p.layer), of[0], b.projected_o()}, {split, of[1], n});
  attention_out_backward_weight<T>(p, g, b, of[0], rows);
  out_adapter().backward_weight(attention_out_gradient<T>(b), b.projected_o());
  block_linear_backward_weight<T>(p.ctx, split, of[1], n, g.qkv);
  adapter().backward_weight(projected_gradient(), n);
  bias_backward<T>(p.ctx, projected_gradient(), g.qkv_bias, rows);
}

template <class T>
void AttentionLayer<T>::backward_weight(const RowScratch<T>& rows) const {
  add_weights(gather_rows<T>(p.ctx, attention_input(p, b), rows), rows);
}

FORGE_INSTANTIATE_CLASS(AttentionLayer);

}  // namespace forge
