#include "nn/context_parts.hpp"

// Heads for positions among the inner ranks: all_to_all, two_level.

namespace forge::context_detail {

namespace {

// Rows of heads in two buffers, one of which is free. By blocks: block p, of R rows, is of this rank's rows and rank
// p's heads before an exchange, and of rank p's rows and this rank's heads after it. By sequences: all rows of this
// rank's heads, ordered [sequence][inner rank][T/cp], as attention needs them.
template <class T>
class Turned {
 public:
  template <class U>
  Turned(const Context<U>& ctx, const View<T, 2>& a, const View<T, 2>& b)
      : stream_(ctx.stream),
        ranks_(head_ranks_of(ctx)),
        sequences_(ctx.buffers.microbatch.sequences),
        rows_(ContextRows(ctx.buffers).count),
        now_(a.data),
        free_(b.data) {}

  View<T, 2> now(std::int64_t columns) const { return {now_, {{rows_, columns}}}; }
  View<T, 2> free(std::int64_t columns) const { return {free_, {{rows_, columns}}}; }
  void flip() { std::swap(now_, free_); }

  // This rank's rows, by blocks → all rows, by sequences.
  void to_rows(std::int64_t columns) {
    exchange(columns);
    transpose(columns, ranks_.size(), sequences_);
  }
  // All rows, by sequences → this rank's rows, by blocks.
  void to_heads(std::int64_t columns) {
    transpose(columns, sequences_, ranks_.size());
    exchange(columns);
  }

 private:
  void exchange(std::int64_t columns) {
    ranks_.all_to_all(stream_, now_, free_, rows_ / ranks_.size() * columns, dtype_of<T>);
    flip();
  }
  void transpose(std::int64_t columns, std::int64_t outer, std::int64_t inner) {
    if (sequences_ == 1) return;
    transpose_blocks<T>(stream_, outer, inner, now(columns), free(columns));
    flip();
  }

  Stream& stream_;
  Communicator& ranks_;
  std::int64_t sequences_, rows_;
  T *now_, *free_;
};

// Columns of a row of this rank's heads: q, k, v, and in backward's way out d_o behind them.
struct Columns {
  ContextHeads heads;
  std::int64_t D, Dv;

  explicit Columns(const BufferContext& c) : heads(context_heads(c)), D(c.spec.D()), Dv(c.spec.value_dim()) {}
  std::int64_t q() const { return heads.q * D; }
  std::int64_t k() const { return heads.kv * D; }
  std::int64_t v() const { return heads.kv * Dv; }
  std::int64_t qkv() const { return q() + k() + v(); }
  std::int64_t o() const { return heads.q * Dv; }

  template <class T>
  AttentionHeads<T> split(const View<T, 2>& x) const {
    return {heads_at(x, 0, heads.q, D), heads_at(x, q(), heads.kv, D), heads_at(x, q() + k(), heads.kv, Dv)};
  }
};

// x(R, heads) as columns [first, first + count) of the blocks.
template <class T>
void pack(const Context<T>& ctx, const View<const T, 3>& x, const View<T, 2>& blocks, std::int64_t first,
          std::int64_t count) {
  columns_to_blocks<T>(ctx.stream, flat(x), head_ranks_of(ctx).size(), x.extent(2), columns_of(blocks, first, count));
}
template <class T>
void unpack(const Context<T>& ctx, const View<T, 2>& blocks, std::int64_t first, std::int64_t count,
            const View<T, 3>& x) {
  blocks_to_columns<T>(ctx.stream, columns_of(blocks, first, count), head_ranks_of(ctx).size(), x.extent(2), flat(x));
}

template <class T>
void pack_inputs(const Context<T>& ctx, const AttentionHeads<const T>& in, const Columns& n, const View<T, 2>& blocks) {
  pack<T>(ctx, in.q, blocks, 0, n.q());
  pack<T>(ctx, in.k, blocks, n.q(), n.k());
  pack<T>(ctx, in.v, blocks, n.q() + n.k(), n.v());
}

// The lse, or the largest logits, of the inner ranks' rows and this rank's heads, in the place of those of this rank's
// rows and all heads.
template <class A>
View<A, 2> lse_of_rows(const View<A, 2>& lse, const Columns& n) {
  require(lse.dense(), "attention that exchanges heads keeps lse dense");
  return {lse.data, {{lse.size() / n.heads.q, n.heads.q}}};
}

// Those of this rank's heads.
template <class T, class P>
View<P, 1> own_heads(const Context<T>& ctx, const Columns& n, const View<P, 1>& all) {
  const std::int64_t first = head_ranks_of(ctx).rank() * n.heads.q;
  return all.slice(first, first + n.heads.q);
}

// Attention of the inner ranks' rows and this rank's heads: to all keys, or to those of one outer rank after the other.
template <class T>
void rows_forward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, const ContextForward<T>& s,
                  const AttentionHeads<const T>& all, View<T, 3> o, View<acc_t<T>, 2> lse, View<acc_t<T>, 2> peak) {
  const ContextBlocks<T> blocks(ctx, layer, batch);
  if (blocks.n.outer > 1) return key_forward<T>(ctx, layer, batch, s.keys, all, o, lse, peak);
  const AttentionMask mask = blocks.mask(ctx, layer, batch, 0);
  note_attention<T>(ctx, false, blocks.shape, mask, all);
  attention_with_peaks<T>(ctx, layer, blocks.shape, mask, all, o, lse, peak);
}

template <class T>
void rows_backward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, const ContextBackward<T>& s,
                   View<const T, 3> d_o, const AttentionHeads<const T>& all, View<const acc_t<T>, 2> lse,
                   View<const acc_t<T>, 2> delta, const AttentionHeads<T>& d_all) {
  const ContextBlocks<T> blocks(ctx, layer, batch);
  if (blocks.n.outer > 1) return key_backward<T>(ctx, layer, batch, s.keys, d_o, all, lse, delta, d_all);
  const AttentionMask mask = blocks.mask(ctx, layer, batch, 0);
  note_attention<T>(ctx, true, blocks.shape, mask, all);
  attention_backward<T>(ctx.stream, blocks.shape, mask, d_o, all.q, all.k, all.v, lse, delta, d_all.q, d_all.k, d_all.v,
                        heads_at(s.heads.d_q_sums, 0, blocks.n.heads.q, ctx.spec().D()));
}

}  // namespace

template <class T>
void head_parallel_forward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, const ContextForward<T>& s,
                           const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse,
                           View<const T, 1> sinks) {
  const Columns n(ctx.buffers);
  Turned<T> packed(ctx, s.heads.packed.a, s.heads.packed.b);
  pack_inputs(ctx, in, n, packed.now(n.qkv()));
  packed.to_rows(n.qkv());
  const View<T, 3> o_all = heads_at(packed.free(n.o()), 0, n.heads.q, n.Dv);
  const View<acc_t<T>, 2> lse_all = lse_of_rows(lse, n);
  rows_forward<T>(ctx, layer, batch, s, n.split(packed.now(n.qkv())), o_all, lse_all,
                  s.peak.empty() ? s.peak : lse_of_rows(s.peak, n));
  if (!sinks.empty()) attention_sinks<T>(ctx.stream, own_heads(ctx, n, sinks), o_all, lse_all);
  packed.flip();
  packed.to_heads(n.o());
  unpack<T>(ctx, packed.now(n.o()), 0, n.o(), o);
}

template <class T>
void head_parallel_backward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, const ContextBackward<T>& s,
                            View<const T, 3> d_o, const AttentionHeads<const T>& in, View<const acc_t<T>, 2> lse,
                            View<const acc_t<T>, 2> delta, const AttentionHeads<T>& d, const SinkGradient<T>& sinks) {
  using A = acc_t<T>;
  const Columns n(ctx.buffers);
  const std::int64_t width = n.qkv() + n.o();
  Turned<T> packed(ctx, s.heads.packed.a, s.heads.packed.b);
  Turned<A> deltas(ctx, s.heads.delta_a, s.heads.delta_b);
  pack_inputs(ctx, in, n, packed.now(width));
  pack<T>(ctx, d_o, packed.now(width), n.qkv(), n.o());
  columns_to_blocks<A>(ctx.stream, delta, head_ranks_of(ctx).size(), 1, deltas.now(n.heads.q));
  packed.to_rows(width);
  deltas.to_rows(n.heads.q);

  const View<const A, 2> lse_all = lse_of_rows(lse, n);
  if (!sinks.gradient.empty())
    add_sink_gradient<T>(ctx.stream,
                         {own_heads(ctx, n, sinks.values), own_heads(ctx, n, sinks.gradient), sinks.terms, sinks.sums},
                         lse_all, deltas.now(n.heads.q));
  const View<T, 2> rows = packed.now(width);
  rows_backward<T>(ctx, layer, batch, s, heads_at(rows, n.qkv(), n.heads.q, n.Dv), n.split(rows), lse_all,
                   deltas.now(n.heads.q), n.split(packed.free(n.qkv())));
  packed.flip();
  packed.to_heads(n.qkv());
  const View<T, 2> home = packed.now(n.qkv());
  unpack<T>(ctx, home, 0, n.q(), d.q);
  unpack<T>(ctx, home, n.q(), n.k(), d.k);
  unpack<T>(ctx, home, n.q() + n.k(), n.v(), d.v);
}

FORGE_INSTANTIATE_FUNCTION(head_parallel_forward);
FORGE_INSTANTIATE_FUNCTION(head_parallel_backward);

}  // namespace forge::context_detail
