#pragma once

#include "core/collectives.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/context_attention.hpp.

// all_to_all: heads of q, and of k and v, that a rank works on for all rows. q = H/cp; its heads are those that follow
// head rank · q. Each run of gcd(q, H/K) of them reads one head of k and v: kv = q / gcd(q, H/K). That is K/cp where cp
// divides K, and 1, a copy, where K divides cp.
struct ContextHeads {
  std::int64_t q, kv;

  std::int64_t qkv_columns(const ModelSpec& s) const { return q * s.D() + kv * (s.D() + s.value_dim()); }
  std::int64_t o_columns(const ModelSpec& s) const { return q * s.value_dim(); }
};
// Throws where H doesn't divide by cp.
ContextHeads context_heads(const BufferContext&);

// Columns of a key and its value.
inline std::int64_t pair_columns(const BufferContext& c) {
  return c.spec.kv_columns() + c.spec.v_columns();
}
// Keys and values of one rank, side by side, (R, K (D + Dv)), and another's; all_gather: `a` has those of all.
template <class T>
struct KeyPairs {
  View<T, 2> a, b;

  void list(BufferLister& l, Reader last) {
    if (l.c.cp_method == CpMethod::all_gather)
      return l.add(a, "keys and values of all cp ranks", l.c.microbatch.rows_of_all(), pair_columns(l.c), last);
    l.add(a, "keys and values of a cp rank, a", l.R, pair_columns(l.c), last);
    l.add(b, "keys and values of a cp rank, b", l.R, pair_columns(l.c), last);
  }
};

// Workspace where keys and values come to the queries: ring and all_gather.
template <class T>
struct KeyForward {
  KeyPairs<T> kv;
  View<acc_t<T>, 2> sum_o;     // (R, H Dv) o of the keys seen so far, where sums need a wider type
  View<T, 2> part_o;           // (R, H Dv) attention to one rank's keys
  View<acc_t<T>, 2> part_lse;  // (R, H)

  void list(BufferLister& l) {
    kv.list(l, l.F);
    if (rounds<T>) l.add(sum_o, "attention output, summed", l.R, l.spec.o_columns(), l.F);
    l.add(part_o, "attention to one rank's keys", l.R, l.spec.o_columns(), l.F);
    l.add(part_lse, "its log-sum-exp", l.R, l.spec.H(), l.F);
  }
};
template <class T>
struct KeyBackward {
  KeyPairs<T> kv;
  View<T, 2> part_d_q, part_d_kv;       // (R, H D), (R, K (D + Dv)) of one rank's keys
  View<acc_t<T>, 2> sum_d_q, d_q_sums;  // (R, H D) where sums need a wider type: over all keys, and attention's own
  View<acc_t<T>, 2> d_kv_a, d_kv_b;     // (R, K (D + Dv)); all_gather: d_kv_a has all

  void list(BufferLister& l) {
    const bool gathers = l.c.cp_method == CpMethod::all_gather;
    kv.list(l, l.B);
    if (rounds<T>) {
      l.add(d_q_sums, "sums of the gradient of q", l.R, l.spec.q_columns(), l.B);
      l.add(sum_d_q, "gradient of q over all ranks' keys", l.R, l.spec.q_columns(), l.B);
    } else {
      l.add(part_d_q, "gradient of q from one rank's keys", l.R, l.spec.q_columns(), l.B);
    }
    if (!gathers || rounds<T>) l.add(part_d_kv, "gradient of one rank's keys and values", l.R, pair_columns(l.c), l.B);
    if (gathers)
      return l.add(d_kv_a, "gradient of all keys and values", l.c.microbatch.rows_of_all(), pair_columns(l.c), l.B);
    l.add(d_kv_a, "gradient of keys and values, a", l.R, pair_columns(l.c), l.B);
    l.add(d_kv_b, "gradient of keys and values, b", l.R, pair_columns(l.c), l.B);
  }
};

// Buffers of heads of all rows (all_to_all), which take turns: what is sent, received and worked on.
template <class T>
struct PackedHeads {
  View<T, 2> a, b;  // (R cp, …)

  void list(BufferLister& l, std::int64_t columns, Reader last) {
    l.add(a, "heads of all rows, a", l.c.microbatch.rows_of_all(), columns, last);
    l.add(b, "heads of all rows, b", l.c.microbatch.rows_of_all(), columns, last);
  }
};
template <class T>
struct HeadForward {
  PackedHeads<T> packed;

  void list(BufferLister& l) { packed.list(l, context_heads(l.c).qkv_columns(l.spec), l.F); }
};
template <class T>
struct HeadBackward {
  PackedHeads<T> packed;
  View<acc_t<T>, 2> delta_a, delta_b;  // (R cp, H / cp)
  View<acc_t<T>, 2> d_q_sums;          // (R cp, H D / cp) where sums of d_q need a wider type

  void list(BufferLister& l) {
    const ContextHeads heads = context_heads(l.c);
    const std::int64_t rows = l.c.microbatch.rows_of_all();
    packed.list(l, heads.qkv_columns(l.spec) + heads.o_columns(l.spec), l.B);
    l.add(delta_a, "attention delta of all rows, a", rows, heads.q, l.B);
    l.add(delta_b, "attention delta of all rows, b", rows, heads.q, l.B);
    if (rounds<T>) l.add(d_q_sums, "sums of the gradient of q", rows, heads.q * l.spec.D(), l.B);
  }
};

// The workspace of whichever method, once while attention runs; nothing on one rank.
template <class Keys, class Heads>
struct ContextScratch {
  Keys keys;
  Heads heads;

  void list(BufferLister& l) {
    if (l.c.microbatch.cp == 1) return;
    l.c.cp_method == CpMethod::all_to_all ? heads.list(l) : keys.list(l);
  }
};
template <class T>
struct ContextForward : ContextScratch<KeyForward<T>, HeadForward<T>> {
  View<acc_t<T>, 2> peak;  // (R, H) largest logits of rows, where they are wanted; as lse with all_to_all

  void list(BufferLister& l) {
    ContextScratch<KeyForward<T>, HeadForward<T>>::list(l);
    if (l.c.attention_peaks) l.add(peak, "largest attention logits of rows", l.R, l.spec.H(), l.F);
  }
};
template <class T>
using ContextBackward = ContextScratch<KeyBackward<T>, HeadBackward<T>>;

// One block's attention, forward or in B: to the keys of one cp rank after the other, or of all at once. What a rank
// sends over cp, with R rows a rank, h and k heads as context_heads() says, P = D + Dv columns of a key and its value,
// e bytes of the compute type and a of the accumulation type:
//                forward                                     backward
//   ring         cp − 1 sends of R K P e                     as forward, and cp − 1 sends of R K P a
//   all_gather   (cp − 1) · R K P e                          as forward, and a reduce-scatter: (cp − 1) · R K P a
//   all_to_all   (cp − 1) · R (h D + k P) e of q, k, v       (cp − 1) · R (h + k) P e of q, k, v, d_o
//                (cp − 1) · R h Dv e of o                    (cp − 1) · R h a of delta
//                                                            (cp − 1) · R (h D + k P) e of d_q, d_k, d_v
void list_context(Segments& list, std::int64_t layer, Pass pass);

}  // namespace forge
