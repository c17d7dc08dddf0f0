#pragma once

#include "device/side_stream.hpp"
#include "kernels/attention/attention.hpp"
#include "nn/context_attention.hpp"

// What the methods of context-parallel attention share.

namespace forge::context_detail {

template <class T>
View<T, 2> flat(const View<T, 3>& x) {
  return View<T, 2>(x.data, {{x.rows(), x.columns()}}, x.pitch);
}

// `count` heads from column `first` on.
template <class T>
View<T, 3> heads_at(const View<T, 2>& x, std::int64_t first, std::int64_t count, std::int64_t head_dim) {
  return View<T, 3>(x.data + first, {{x.rows(), count, head_dim}}, x.pitch);
}

// Keys and values that lie side by side in (rows, heads (D + Dv)).
template <class T>
struct KeyValue {
  View<T, 3> k, v;
};
template <class T>
KeyValue<T> split_pair(const ModelSpec& m, std::int64_t heads, const View<T, 2>& pair) {
  return {heads_at(pair, 0, heads, m.D()), heads_at(pair, heads * m.D(), heads, m.value_dim())};
}

// `rows` queries and `keys` keys of each sequence.
template <class T>
AttentionShape context_shape(const Context<T>& ctx, std::int64_t layer, std::int64_t rows, std::int64_t first_head,
                             const View<const std::int64_t, 1>& samples) {
  AttentionShape shape{ctx.buffers.microbatch.sequences,
                       rows,
                       rows,
                       ctx.spec().softmax_scale(),
                       0,
                       0,
                       {},
                       ctx.groups.tp_rank() * ctx.spec().H() + first_head};
  shape.kernel = ctx.services.attention;
  shape.workspace = ctx.gemm.workspace().data();
  shape.workspace_bytes = ctx.gemm.workspace().size();
  shape.soft_cap = ctx.spec().options.attention_soft_cap;
  shape.samples = samples;
  if (ctx.dropout_rate() > 0) {
    shape.dropout = ctx.dropout_rate();
    shape.dropout_key = ctx.dropout_key(layer, DropoutPlace::attention);
  }
  return shape;
}

// Attention, and the largest logits of its heads in a training step but for filler, with `peak` as workspace, where
// that is not empty.
template <class T>
void attention_with_peaks(const Context<T>& ctx, std::int64_t layer, const AttentionShape& shape,
                          const AttentionMask& mask, const AttentionHeads<const T>& in, View<T, 3> o,
                          View<acc_t<T>, 2> lse, const View<acc_t<T>, 2>& peak) {
  using A = acc_t<T>;
  const bool wanted = ctx.training && !peak.empty() && !ctx.services.peaks.empty();
  attention_forward<T>(ctx.stream, shape, mask, in.q, in.k, in.v, o, lse, wanted ? peak : View<A, 2>());
  if (wanted)
    add_peaks<A>(ctx.stream, View<const A, 2>(peak), shape.samples,
                 View<A, 1>(ctx.services.peaks.row(layer) + shape.first_head, {{in.q.extent(1)}}));
}

// d_sinks(H) += Σ_r −e^(sink − lse) · delta over rows, (R, H) both, in their order.
template <class T>
void add_sink_gradient(Stream& stream, const SinkGradient<T>& sinks, View<const acc_t<T>, 2> lse,
                       View<const acc_t<T>, 2> delta) {
  using A = acc_t<T>;
  if (sinks.gradient.empty()) return;
  const std::int64_t rows = lse.rows(), heads = lse.columns();
  const View<A, 2> terms(sinks.terms.data, {{rows, heads}}), sums(sinks.sums.data, {{norm_partial_rows(rows), heads}});
  attention_sink_terms<T>(stream, sinks.values, lse, delta, terms);
  column_sum<A>(stream, terms, sums, sinks.gradient);
}

// The documents that a mask has to look at: none where the host knows that a sequence is one.
template <class T>
View<const std::int32_t, 1> known_documents(const Context<T>& ctx, const View<std::int32_t, 1>& documents) {
  if (ctx.services.one_document) return {};
  return documents;
}

// The ranks that exchange heads, and those whose keys this one reads; cp > 1.
template <class T>
Communicator& head_ranks_of(const Context<T>& ctx) {
  return ctx.groups.cp_inner ? *ctx.groups.cp_inner : *ctx.groups.cp;
}
template <class T>
Communicator& key_ranks_of(const Context<T>& ctx) {
  return ctx.groups.cp_outer ? *ctx.groups.cp_outer : *ctx.groups.cp;
}

// The rows and heads that this rank works on, cp > 1: as block `own` of the keys, which `outer` blocks make up.
template <class T>
struct ContextBlocks {
  ContextRows n;
  int own, inner_rank;
  AttentionShape shape;

  ContextBlocks(const Context<T>& ctx, std::int64_t layer, const Batch& batch)
      : n(ctx.buffers),
        own(ctx.groups.cp_rank() / n.inner),
        inner_rank(ctx.groups.cp_rank() % n.inner),
        shape(context_shape<T>(ctx, layer, n.tokens, inner_rank * n.heads.q,
                               n.inner == 1 ? View<const std::int64_t, 1>(batch.samples)
                                            : View<const std::int64_t, 1>(of_block(batch.key_samples, own)))) {}

  // This rank's queries and the keys of block j.
  AttentionMask mask(const Context<T>& ctx, std::int64_t layer, const Batch& batch, int j) const {
    const auto documents = [&](int of) { return known_documents(ctx, of_block(batch.key_documents, of)); };
    return {of_block(batch.key_positions, own), of_block(batch.key_positions, j), documents(own), documents(j),
            ctx.spec().window(layer)};
  }

 private:
  template <class X>
  View<X, 1> of_block(const View<X, 1>& all, int j) const {
    return all.slice(j * n.count, (j + 1) * n.count);
  }
};

// Exchanges between ranks of cp, behind the computation where there is a stream for them. An exchange starts when all
// that the compute stream was given before has ended.
template <class T>
class Exchange {
 public:
  explicit Exchange(const Context<T>& ctx) : compute_(ctx.stream), side_(ctx.groups.stream), cp_(key_ranks_of(ctx)) {}

  int rank() const { return cp_.rank(); }
  int size() const { return cp_.size(); }

  // f(communicator, stream). The event: when it is done.
  template <class F>
  Event start(F f) {
    Event done;
    side_.run(compute_, done, [&](Stream& stream) { f(cp_, stream); });
    return done;
  }
  void wait(const Event& done) { cp_.wait(compute_, done); }

  // To the right neighbour and from the left one.
  template <class S>
  Event rotate(const View<S, 2>& out, const View<S, 2>& in) {
    const int n = size(), right = (rank() + 1) % n, left = (rank() + n - 1) % n;
    return start([&](Communicator& cp, Stream& stream) {
      cp.group_begin();
      cp.send(stream, View<const S, 2>(out), right);
      cp.receive(stream, in, left);
      cp.group_end(stream);
    });
  }

  // After the last wait: hands on what a worker's exchange threw.
  void finish() { side_.rethrow(); }

 private:
  Stream& compute_;
  SideStream side_;
  Communicator& cp_;
};

// To the keys of all outer ranks, and heads for positions among the inner ones; cp > 1. The rows of key_… are those of
// the inner ranks, Rn, and the heads this rank's.
template <class T>
void key_forward(const Context<T>&, std::int64_t layer, const Batch&, const KeyForward<T>&,
                 const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse, View<acc_t<T>, 2> peak);
template <class T>
void key_backward(const Context<T>&, std::int64_t layer, const Batch&, const KeyBackward<T>&, View<const T, 3> d_o,
                  const AttentionHeads<const T>& in, View<const acc_t<T>, 2> lse, View<const acc_t<T>, 2> delta,
                  const AttentionHeads<T>& d);
template <class T>
void head_parallel_forward(const Context<T>&, std::int64_t layer, const Batch&, const ContextForward<T>&,
                           const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse,
                           View<const T, 1> sinks);
template <class T>
void head_parallel_backward(const Context<T>&, std::int64_t layer, const Batch&, const ContextBackward<T>&,
                            View<const T, 3> d_o, const AttentionHeads<const T>& in, View<const acc_t<T>, 2> lse,
                            View<const acc_t<T>, 2> delta, const AttentionHeads<T>& d, const SinkGradient<T>& sinks);

}  // namespace forge::context_detail
