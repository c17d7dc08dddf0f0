#include "nn/context_parts.hpp"

// Keys and values come to the queries: ring, all_gather, and the outer ranks of two_level. Block j is what outer rank j
// has of them, R the rows of its inner ranks.

namespace forge::context_detail {

namespace {

// This rank's queries against one block after the other.
template <class T>
struct Blocks {
  const Context<T>& ctx;
  std::int64_t layer;
  const Batch& batch;
  const ModelSpec& m;
  ContextBlocks<T> blocks;

  Blocks(const Context<T>& c, std::int64_t l, const Batch& rows)
      : ctx(c), layer(l), batch(rows), m(c.spec()), blocks(c, l, rows) {}

  const ContextHeads& heads() const { return blocks.n.heads; }
  const AttentionShape& shape() const { return blocks.shape; }
  AttentionMask mask(int j) const { return blocks.mask(ctx, layer, batch, j); }
  template <class U>
  KeyValue<U> split(const View<U, 2>& pair) const {
    return split_pair(m, heads().kv, pair);
  }
  void pack(const AttentionHeads<const T>& in, const View<T, 2>& pair) const {
    const KeyValue<T> to = split(pair);
    copy_rows<T>(ctx.stream, flat(in.k), flat(to.k));
    copy_rows<T>(ctx.stream, flat(in.v), flat(to.v));
  }
};

template <class T>
struct ForwardBlocks : Blocks<T> {
  using A = acc_t<T>;
  View<const T, 3> q;
  View<T, 3> o, part_o;
  View<A, 2> lse;
  View<A, 3> sum_o;  // o itself, where sums need no wider type
  View<A, 2> peak;
  const KeyForward<T>& s;

  ForwardBlocks(const Context<T>& c, std::int64_t layer, const Batch& batch, const KeyForward<T>& scratch,
                const View<const T, 3>& q_, const View<T, 3>& o_, const View<A, 2>& lse_, const View<A, 2>& peak_)
      : Blocks<T>(c, layer, batch),
        q(q_),
        o(o_),
        part_o(heads_at(scratch.part_o, 0, this->heads().q, this->m.value_dim())),
        lse(lse_),
        peak(peak_),
        s(scratch) {
    if constexpr (!rounds<T>)
      sum_o = o;
    else
      sum_o = heads_at(s.sum_o, 0, this->heads().q, this->m.value_dim());
  }

  void first(int j, const View<const T, 3>& k, const View<const T, 3>& v) const {
    note_attention<T>(this->ctx, false, this->shape(), this->mask(j), {q, k, v});
    attention_with_peaks<T>(this->ctx, this->layer, this->shape(), this->mask(j), {q, k, v}, o, lse, peak);
    if constexpr (rounds<T>) convert_rows<T, A>(this->ctx.stream, flat(View<const T, 3>(o)), flat(sum_o));
  }
  void add(int j, const View<T, 2>& pair) const {
    const KeyValue<T> kv = this->split(pair);
    note_attention<T>(this->ctx, false, this->shape(), this->mask(j), {q, kv.k, kv.v});
    attention_with_peaks<T>(this->ctx, this->layer, this->shape(), this->mask(j), {q, kv.k, kv.v}, part_o, s.part_lse,
                            peak);
    attention_merge<T>(this->ctx.stream, sum_o, lse, part_o, s.part_lse);
  }
  void finish() const {
    if constexpr (rounds<T>) convert_rows<A, T>(this->ctx.stream, flat(View<const A, 3>(sum_o)), flat(o));
  }
};

template <class T>
struct BackwardBlocks : Blocks<T> {
  using A = acc_t<T>;
  View<const T, 3> d_o, q;
  View<const A, 2> lse, delta;
  // Where sums need no wider type, the first block's d_q is the sum; else each block's is added to sum_d_q.
  View<T, 3> d_q, part_d_q;
  View<A, 3> sum_d_q, workspace;
  const KeyBackward<T>& s;

  BackwardBlocks(const Context<T>& c, std::int64_t layer, const Batch& batch, const KeyBackward<T>& scratch,
                 const View<const T, 3>& d_o_, const View<const T, 3>& q_, const View<const A, 2>& lse_,
                 const View<const A, 2>& delta_, const View<T, 3>& d_q_)
      : Blocks<T>(c, layer, batch), d_o(d_o_), q(q_), lse(lse_), delta(delta_), d_q(d_q_), part_d_q(d_q_), s(scratch) {
    const auto of_q = [&](const auto& x) { return heads_at(x, 0, this->heads().q, this->m.D()); };
    if constexpr (!rounds<T>) {
      part_d_q = of_q(s.part_d_q);
      sum_d_q = d_q;
    } else {
      sum_d_q = of_q(s.sum_d_q);
      workspace = of_q(s.d_q_sums);
    }
  }

  void first(int j, const View<const T, 3>& k, const View<const T, 3>& v, const View<T, 3>& d_k,
             const View<T, 3>& d_v) const {
    note_attention<T>(this->ctx, true, this->shape(), this->mask(j), {q, k, v});
    attention_backward<T>(this->ctx.stream, this->shape(), this->mask(j), d_o, q, k, v, lse, delta, d_q, d_k, d_v,
                          workspace);
    if constexpr (rounds<T>) convert_rows<T, A>(this->ctx.stream, flat(View<const T, 3>(d_q)), flat(sum_d_q));
  }
  void add(int j, const View<T, 2>& pair, const View<T, 3>& d_k, const View<T, 3>& d_v) const {
    const KeyValue<T> kv = this->split(pair);
    note_attention<T>(this->ctx, true, this->shape(), this->mask(j), {q, kv.k, kv.v});
    attention_backward<T>(this->ctx.stream, this->shape(), this->mask(j), d_o, q, kv.k, kv.v, lse, delta, part_d_q, d_k,
                          d_v, workspace);
    accumulate<T>(this->ctx.stream, flat(View<const T, 3>(part_d_q)), flat(sum_d_q));
  }
  void finish() const {
    if constexpr (rounds<T>) convert_rows<A, T>(this->ctx.stream, flat(View<const A, 3>(sum_d_q)), flat(d_q));
  }
};

// Keys and values on their way round: after i rotations this rank has block (rank − i) mod outer. A rotation starts
// when the attention that read its target has ended, and runs behind the attention to the block that it sends on.
template <class T>
class Ring {
 public:
  Ring(Exchange<T>& exchange, const KeyPairs<T>& kv) : exchange_(exchange), held_(kv.a), other_(kv.b) {}

  const View<T, 2>& held() const { return held_; }
  void start() { done_ = exchange_.rotate(held_, other_); }
  void finish() {
    exchange_.wait(done_);
    std::swap(held_, other_);
  }

 private:
  Exchange<T>& exchange_;
  View<T, 2> held_, other_;
  Event done_;
};

template <class T>
void ring_forward(const Context<T>& ctx, const ForwardBlocks<T>& blocks, const AttentionHeads<const T>& in) {
  Exchange<T> exchange(ctx);
  Ring<T> ring(exchange, blocks.s.kv);
  const int n = exchange.size(), c = exchange.rank();
  blocks.pack(in, ring.held());
  ring.start();
  blocks.first(c, in.k, in.v);
  for (int i = 1; i < n; ++i) {
    ring.finish();
    if (i + 1 < n) ring.start();
    blocks.add((c - i + n) % n, ring.held());
  }
  blocks.finish();
  exchange.finish();
}

// The sum of block j's d_k and d_v starts at rank j + 1 and moves on with the block: j + 2, …, j − 1, j, which adds its
// own part. It moves while attention's backward works on the next block.
template <class T>
void ring_backward(const Context<T>& ctx, const BackwardBlocks<T>& blocks, const AttentionHeads<const T>& in,
                   const AttentionHeads<T>& d) {
  using A = acc_t<T>;
  Exchange<T> exchange(ctx);
  Ring<T> ring(exchange, blocks.s.kv);
  const int n = exchange.size(), c = exchange.rank();
  const View<T, 2> part = blocks.s.part_d_kv;
  const KeyValue<T> part_of = blocks.split(part);
  View<A, 2> sum = blocks.s.d_kv_a, next = blocks.s.d_kv_b;
  Event received;
  blocks.pack(in, ring.held());
  ring.start();
  blocks.first(c, in.k, in.v, d.k, d.v);
  for (int i = 1; i < n; ++i) {
    ring.finish();
    if (i + 1 < n) ring.start();
    blocks.add((c - i + n) % n, ring.held(), part_of.k, part_of.v);
    if (i == 1) {
      convert_rows<T, A>(ctx.stream, part, sum);
    } else {
      exchange.wait(received);
      accumulate<T>(ctx.stream, part, sum);
    }
    received = exchange.rotate(sum, next);
    std::swap(sum, next);
  }
  exchange.wait(received);
  const KeyValue<A> home = blocks.split(sum);
  accumulate<T>(ctx.stream, flat(View<const T, 3>(d.k)), flat(home.k));
  accumulate<T>(ctx.stream, flat(View<const T, 3>(d.v)), flat(home.v));
  convert_rows<A, T>(ctx.stream, flat(View<const A, 3>(home.k)), flat(d.k));
  convert_rows<A, T>(ctx.stream, flat(View<const A, 3>(home.v)), flat(d.v));
  blocks.finish();
  exchange.finish();
}

// Block j of all ranks' (R cp, …).
template <class T>
View<T, 2> block_of(const View<T, 2>& all, int j, int ranks) {
  const std::int64_t rows = all.rows() / ranks;
  return all.slice(j * rows, (j + 1) * rows);
}

// Gathers keys and values of all ranks behind `own`, which works on this rank's.
template <class T, class Blocks, class Own>
View<T, 2> gather_keys(Exchange<T>& exchange, const Blocks& blocks, const AttentionHeads<const T>& in, Own own) {
  const View<T, 2> all = blocks.s.kv.a;
  const View<const T, 2> mine = block_of(all, exchange.rank(), exchange.size());
  blocks.pack(in, block_of(all, exchange.rank(), exchange.size()));
  const Event gathered = exchange.start([&](Communicator& cp, Stream& stream) { cp.all_gather(stream, mine, all); });
  own();
  exchange.wait(gathered);
  return all;
}

template <class T>
void gather_forward(const Context<T>& ctx, const ForwardBlocks<T>& blocks, const AttentionHeads<const T>& in) {
  Exchange<T> exchange(ctx);
  const int n = exchange.size(), c = exchange.rank();
  const View<T, 2> all = gather_keys<T>(exchange, blocks, in, [&] { blocks.first(c, in.k, in.v); });
  for (int i = 1; i < n; ++i) {
    const int j = (c + i) % n;
    blocks.add(j, block_of(all, j, n));
  }
  blocks.finish();
  exchange.finish();
}

template <class T>
void gather_backward(const Context<T>& ctx, const BackwardBlocks<T>& blocks, const AttentionHeads<const T>& in,
                     const AttentionHeads<T>& d) {
  using A = acc_t<T>;
  Exchange<T> exchange(ctx);
  const int n = exchange.size(), c = exchange.rank();
  const View<A, 2> sums = blocks.s.d_kv_a;
  // run(d_k, d_v) writes block j's gradients.
  const auto into_block = [&](int j, auto run) {
    const View<A, 2> sum = block_of(sums, j, n);
    if constexpr (!rounds<T>) {
      const KeyValue<T> to = blocks.split(sum);
      run(to.k, to.v);
    } else {
      const View<T, 2> part = blocks.s.part_d_kv;
      const KeyValue<T> to = blocks.split(part);
      run(to.k, to.v);
      convert_rows<T, A>(ctx.stream, part, sum);
    }
  };
  const View<T, 2> all = gather_keys<T>(exchange, blocks, in, [&] {
    into_block(c, [&](const View<T, 3>& d_k, const View<T, 3>& d_v) { blocks.first(c, in.k, in.v, d_k, d_v); });
  });
  for (int i = 1; i < n; ++i) {
    const int j = (c + i) % n;
    into_block(j, [&](const View<T, 3>& d_k, const View<T, 3>& d_v) { blocks.add(j, block_of(all, j, n), d_k, d_v); });
  }
  const View<A, 2> mine = block_of(sums, c, n);
  const Event summed = exchange.start(
      [&](Communicator& cp, Stream& stream) { cp.reduce_scatter(stream, View<const A, 2>(sums), mine); });
  blocks.finish();
  exchange.wait(summed);
  const KeyValue<A> home = blocks.split(mine);
  convert_rows<A, T>(ctx.stream, flat(View<const A, 3>(home.k)), flat(d.k));
  convert_rows<A, T>(ctx.stream, flat(View<const A, 3>(home.v)), flat(d.v));
  exchange.finish();
}

}  // namespace

template <class T>
void key_forward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, const KeyForward<T>& s,
                 const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse, View<acc_t<T>, 2> peak) {
  const ForwardBlocks<T> blocks(ctx, layer, batch, s, in.q, o, lse, peak);
  if (ctx.buffers.cp_method == CpMethod::all_gather) return gather_forward(ctx, blocks, in);
  ring_forward(ctx, blocks, in);
}

template <class T>
void key_backward(const Context<T>& ctx, std::int64_t layer, const Batch& batch, const KeyBackward<T>& s,
                  View<const T, 3> d_o, const AttentionHeads<const T>& in, View<const acc_t<T>, 2> lse,
                  View<const acc_t<T>, 2> delta, const AttentionHeads<T>& d) {
  const BackwardBlocks<T> blocks(ctx, layer, batch, s, d_o, in.q, lse, delta, d.q);
  if (ctx.buffers.cp_method == CpMethod::all_gather) return gather_backward(ctx, blocks, in, d);
  ring_backward(ctx, blocks, in, d);
}

FORGE_INSTANTIATE_FUNCTION(key_forward);
FORGE_INSTANTIATE_FUNCTION(key_backward);

}  // namespace forge::context_detail
