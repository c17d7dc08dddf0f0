#pragma once

#include <vector>

#include "core/traffic.hpp"
#include "model/buffers.hpp"

namespace forge {

// The pure half of nn/context_attention.hpp.

// Workspace where keys and values come to the queries: ring and all_gather.
template <class T>
struct KeyForward {
  View<T, 2> kv_a, kv_b;       // (R, K (D + Dv)) keys and values of one rank, side by side; all_gather: kv_a has all
  View<acc_t<T>, 2> sum_o;     // (R, H Dv) o of the keys seen so far, where sums need a wider type
  View<T, 2> part_o;           // (R, H Dv) attention to one rank's keys
  View<acc_t<T>, 2> part_lse;  // (R, H)

  void list(BufferLister& l);
};
template <class T>
struct KeyBackward {
  View<T, 2> kv_a, kv_b;                // as forward
  View<T, 2> part_d_q, part_d_kv;       // (R, H D), (R, K (D + Dv)) of one rank's keys
  View<acc_t<T>, 2> sum_d_q, d_q_sums;  // (R, H D) where sums need a wider type: over all keys, and attention's own
  View<acc_t<T>, 2> d_kv_a, d_kv_b;     // (R, K (D + Dv)); all_gather: d_kv_a has all

  void list(BufferLister& l);
};

// Workspace where heads go for positions: all_to_all. Each pair takes turns: what is sent, received and worked on.
template <class T>
struct HeadForward {
  View<T, 2> packed_a, packed_b;  // (R cp, …)

  void list(BufferLister& l);
};
template <class T>
struct HeadBackward {
  View<T, 2> packed_a, packed_b;       // (R cp, …)
  View<acc_t<T>, 2> delta_a, delta_b;  // (R cp, H / cp)
  View<acc_t<T>, 2> d_q_sums;          // (R cp, H D / cp) where sums of d_q need a wider type

  void list(BufferLister& l);
};

// Of whichever method, once while attention runs; nothing on one rank.
template <class T>
struct ContextForward {
  KeyForward<T> keys;
  HeadForward<T> heads;

  void list(BufferLister& l) { list_of_method(l, keys, heads); }
};
template <class T>
struct ContextBackward {
  KeyBackward<T> keys;
  HeadBackward<T> heads;

  void list(BufferLister& l) { list_of_method(l, keys, heads); }
};
template <class Keys, class Heads>
void list_of_method(BufferLister& l, Keys& keys, Heads& heads) {
  if (l.c.microbatch.cp == 1) return;
  if (l.c.cp_method == CpMethod::all_to_all)
    heads.list(l);
  else
    keys.list(l);
}

// What a rank sends over cp for one block's attention, once forward and once backward; empty on one rank. With R rows a
// rank, h and k heads as context_heads() says, P = D + Dv columns of a key and its value, e bytes of the compute type
// and a of the accumulation type:
//                forward                                     backward
//   ring         cp − 1 sends of R K P e                     as forward, and cp − 1 sends of R K P a
//   all_gather   (cp − 1) · R K P e                          as forward, and a reduce-scatter: (cp − 1) · R K P a
//   all_to_all   (cp − 1) · R (h D + k P) e of q, k, v       (cp − 1) · R (h + k) P e of q, k, v, d_o
//                (cp − 1) · R h Dv e of o                    (cp − 1) · R h a of delta
//                                                            (cp − 1) · R (h D + k P) e of d_q, d_k, d_v
std::vector<Sent> context_sends_forward(const BufferContext&);
std::vector<Sent> context_sends_backward(const BufferContext&);

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

}  // namespace forge
