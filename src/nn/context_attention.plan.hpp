#pragma once

#include "core/collectives.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/context_attention.hpp.

// Heads of q, and of k and v, that a rank works on for the rows of its n = cp_inner ranks. q = H/n; its heads are those
// that follow head (inner rank) · q. Each run of gcd(q, H/K) of them reads one head of k and v: kv = q / gcd(q, H/K).
// That is K/n where n divides K, and 1, a copy, where K divides n.
struct ContextHeads {
  std::int64_t q, kv;

  std::int64_t q_columns(const ModelSpec& s) const { return q * s.D(); }
  std::int64_t pair_columns(const ModelSpec& s) const { return kv * (s.D() + s.value_dim()); }
  std::int64_t qkv_columns(const ModelSpec& s) const { return q_columns(s) + pair_columns(s); }
  std::int64_t o_columns(const ModelSpec& s) const { return q * s.value_dim(); }
};
// Throws where H doesn't divide by n.
ContextHeads context_heads(const BufferContext&);

// The rows and heads of attention: cp = inner · outer; consecutive ranks are inner ones, which share rows and have
// other heads; keys and values go round the outer ones, or are gathered by them.
struct ContextRows {
  explicit ContextRows(const BufferContext&);

  int inner, outer;
  std::int64_t tokens, count;  // of each sequence, T / outer; of all, Rn = R inner
  ContextHeads heads;

  // The groups that exchange heads, and keys.
  Group head_group() const { return outer == 1 ? Group::cp : Group::cp_inner; }
  Group key_group() const { return inner == 1 ? Group::cp : Group::cp_outer; }
};

// Keys and values of one outer rank, side by side, (Rn, kv (D + Dv)), and another's; all_gather: `a` has those of all.
template <class T>
struct KeyPairs {
  View<T, 2> a, b;

  void list(BufferLister& l, Reader last) {
    const ContextRows n(l.c);
    const std::int64_t columns = n.heads.pair_columns(l.spec);
    if (l.c.cp_method == CpMethod::all_gather)
      return l.add(a, "keys and values of all cp ranks", n.outer * n.count, columns, last);
    l.add(a, "keys and values of a cp rank, a", n.count, columns, last);
    l.add(b, "keys and values of a cp rank, b", n.count, columns, last);
  }
};

// Workspace where keys and values come to the queries: ring, all_gather, and the outer ranks of two_level. h = H/n.
template <class T>
struct KeyForward {
  KeyPairs<T> kv;
  View<acc_t<T>, 2> sum_o;     // (Rn, h Dv) o of the keys seen so far, where sums need a wider type
  View<T, 2> part_o;           // (Rn, h Dv) attention to one rank's keys
  View<acc_t<T>, 2> part_lse;  // (Rn, h)

  void list(BufferLister& l) {
    const ContextRows n(l.c);
    const std::int64_t columns = n.heads.o_columns(l.spec);
    kv.list(l, l.F);
    if (rounds<T>) l.add(sum_o, "attention output, summed", n.count, columns, l.F);
    l.add(part_o, "attention to one rank's keys", n.count, columns, l.F);
    l.add(part_lse, "its log-sum-exp", n.count, n.heads.q, l.F);
  }
};
template <class T>
struct KeyBackward {
  KeyPairs<T> kv;
  View<T, 2> part_d_q, part_d_kv;       // (Rn, h D), (Rn, kv (D + Dv)) of one rank's keys
  View<acc_t<T>, 2> sum_d_q, d_q_sums;  // (Rn, h D) where sums need a wider type: over all keys, and attention's own
  View<acc_t<T>, 2> d_kv_a, d_kv_b;     // (Rn, kv (D + Dv)); all_gather: d_kv_a has all

  void list(BufferLister& l) {
    const ContextRows n(l.c);
    const std::int64_t of_q = n.heads.q_columns(l.spec), of_pair = n.heads.pair_columns(l.spec);
    const bool gathers = l.c.cp_method == CpMethod::all_gather;
    kv.list(l, l.B);
    if (rounds<T>) {
      l.add(d_q_sums, "sums of the gradient of q", n.count, of_q, l.B);
      l.add(sum_d_q, "gradient of q over all ranks' keys", n.count, of_q, l.B);
    } else {
      l.add(part_d_q, "gradient of q from one rank's keys", n.count, of_q, l.B);
    }
    if (!gathers || rounds<T>) l.add(part_d_kv, "gradient of one rank's keys and values", n.count, of_pair, l.B);
    if (gathers) return l.add(d_kv_a, "gradient of all keys and values", n.outer * n.count, of_pair, l.B);
    l.add(d_kv_a, "gradient of keys and values, a", n.count, of_pair, l.B);
    l.add(d_kv_b, "gradient of keys and values, b", n.count, of_pair, l.B);
  }
};

// Buffers of heads of all inner ranks' rows (all_to_all, two_level), which take turns: sent, received and worked on.
template <class T>
struct PackedHeads {
  View<T, 2> a, b;  // (Rn, …)

  void list(BufferLister& l, std::int64_t rows, std::int64_t columns, Reader last) {
    l.add(a, "heads of all rows, a", rows, columns, last);
    l.add(b, "heads of all rows, b", rows, columns, last);
  }
};
template <class T>
struct HeadForward {
  PackedHeads<T> packed;

  void list(BufferLister& l) {
    const ContextRows n(l.c);
    packed.list(l, n.count, n.heads.qkv_columns(l.spec), l.F);
  }
};
template <class T>
struct HeadBackward {
  PackedHeads<T> packed;
  View<acc_t<T>, 2> delta_a, delta_b;  // (Rn, h)
  View<acc_t<T>, 2> d_q_sums;          // (Rn, h D) where sums of d_q need a wider type; two_level: KeyBackward has them

  void list(BufferLister& l) {
    const ContextRows n(l.c);
    packed.list(l, n.count, n.heads.qkv_columns(l.spec) + n.heads.o_columns(l.spec), l.B);
    l.add(delta_a, "attention delta of all rows, a", n.count, n.heads.q, l.B);
    l.add(delta_b, "attention delta of all rows, b", n.count, n.heads.q, l.B);
    if (rounds<T> && n.outer == 1)
      l.add(d_q_sums, "sums of the gradient of q", n.count, n.heads.q_columns(l.spec), l.B);
  }
};

// The workspace of whichever method, once while attention runs; nothing on one rank.
template <class Keys, class Heads>
struct ContextScratch {
  Keys keys;
  Heads heads;

  void list(BufferLister& l) {
    if (l.c.microbatch.cp == 1) return;
    const ContextRows n(l.c);
    if (n.inner > 1) heads.list(l);
    if (n.outer > 1) keys.list(l);
  }
};
template <class T>
struct ContextForward : ContextScratch<KeyForward<T>, HeadForward<T>> {
  View<acc_t<T>, 2> peak;  // (R, H) largest logits of rows, where they are wanted; (Rn, h) where inner > 1

  void list(BufferLister& l) {
    ContextScratch<KeyForward<T>, HeadForward<T>>::list(l);
    if (l.c.attention_peaks) l.add(peak, "largest attention logits of rows", l.R, l.spec.H(), l.F);
  }
};
template <class T>
using ContextBackward = ContextScratch<KeyBackward<T>, HeadBackward<T>>;

// One block's attention, forward or in B: to the keys of one outer rank after the other, or of all at once. A rank
// sends, with R rows of its own, h and k heads as context_heads() says, P = D + Dv columns of a key and its value, e
// bytes of the compute type and a of the accumulation type:
//                forward                                     backward
//   ring         cp − 1 sends of R K P e                     as forward, and cp − 1 sends of R K P a
//   all_gather   (cp − 1) · R K P e                          as forward, and a reduce-scatter: (cp − 1) · R K P a
//   all_to_all   (cp − 1) · R (h D + k P) e of q, k, v       (cp − 1) · R (h + k) P e of q, k, v, d_o
//                (cp − 1) · R h Dv e of o                    (cp − 1) · R h a of delta
//                                                            (cp − 1) · R (h D + k P) e of d_q, d_k, d_v
//   two_level    over cp_inner as all_to_all, with inner in the place of cp; over cp_outer as ring, with outer in the
//                place of cp, R inner rows and k heads
void list_context(Segments& list, std::int64_t layer, Pass pass);

}  // namespace forge
