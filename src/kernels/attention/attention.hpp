#pragma once

#include <cstddef>
#include <cstdint>

#include "config/attention_kernel.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "kernels/kernels.hpp"

namespace forge {

class CudnnAttention;

// Who may attend to whom: key j is seen by query i where position_k[j] <= position_q[i], position_q[i] − position_k[j]
// < window (window 0: no limit), and both have the same document. Positions and documents are global, so that one
// function serves one rank, a ring of keys, gathered keys and packed documents. Rows of a sequence follow each other:
// sequence b holds query rows [b·Tq, (b+1)·Tq) and key rows [b·Tk, (b+1)·Tk).
struct AttentionMask {
  View<const std::int32_t, 1> position_q, position_k;  // (B·Tq), (B·Tk)
  View<const std::int32_t, 1> document_q, document_k;  // likewise; both empty: one document
  std::int64_t window = 0;
  bool in_order = false;  // the host knows that row t of every sequence, of queries and of keys, has position t
};

struct AttentionShape {
  std::int64_t sequences;   // B
  std::int64_t query_rows;  // Tq of each sequence
  std::int64_t key_rows;    // Tk of each sequence
  double scale;             // of the scores, usually 1/√D
  double dropout = 0;       // of the probabilities, 0 <= dropout < 1; the draws: attention_kept() in attention_mask.hpp
  std::uint64_t dropout_key = 0;
  View<const std::int64_t, 1> samples;  // (B·Tq) global sample of each query row; empty without dropout
  std::int64_t first_head = 0;          // where q holds some heads of the model: the number of its first, for dropout
  // tensor_cores and cudnn: bf16 alone, a positive scale, no soft cap.
  AttentionKernel kernel = AttentionKernel::cuda_cores;
  double soft_cap = 0;  // c: scaled scores s become c tanh(s / c) (Gemma 2, arXiv 2408.00118); 0: they stay
  // With kernel cudnn: given where the host knows that row t of each sequence, of queries and of keys, has position t,
  // and that a sequence is one document. cuDNN then computes its cases (cudnn_takes()), tensor cores the rest.
  CudnnAttention* cudnn = nullptr;
  // CPU: the threads' memory for tiles, attention_thread_bytes() of attention_tiles.hpp each. Nothing else uses it
  // while a call runs; where it is small, fewer threads compute.
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

// Tiled causal attention (Dao et al. 2022: online softmax; T x T never exists). H heads of q share K heads of k and v
// (head h reads h / (H/K)); nothing is copied. v and o may have their own head size Dv.
//   o(B·Tq, H, Dv) = softmax(scale · q kᵀ + mask) v;  lse(B·Tq, H) = log Σ exp(scale · q kᵀ); a query that sees no key
//   has o = 0 and lse = −Inf.
// peak(B·Tq, H), unless it is empty: the largest scaled score of each row, before a soft cap; −Inf where it sees no
// key.
template <class T>
void attention_forward(Stream&, const AttentionShape&, const AttentionMask&, View<const T, 3> q, View<const T, 3> k,
                       View<const T, 3> v, View<T, 3> o, View<acc_t<T>, 2> lse, View<acc_t<T>, 2> peak = {});

// All −Inf.
template <class A>
void clear_peaks(Stream&, View<A, 2> largest);
// largest(H) ← max(largest, max over rows of peak(R, H)).
template <class A>
void add_peaks(Stream&, View<const A, 2> peak, View<const std::int64_t, 1> samples, View<A, 1> largest);

// delta(B·Tq, H) = Σ_d d_o · o, an argument of the backward pass in place of o.
template <class T>
void attention_delta(Stream&, View<const T, 3> d_o, View<const T, 3> o, View<acc_t<T>, 2> delta);

// From the lse and delta of the whole row (also where q has seen other keys elsewhere). d_q, d_k, d_v are overwritten.
// sums(B·Tq, H, D): workspace in which d_q is summed; where T is acc_t<T> it may be empty, then d_q serves. o(B·Tq, H,
// Dv): forward's; cuDNN takes no delta, and without o tensor cores compute in its place.
template <class T>
void attention_backward(Stream&, const AttentionShape&, const AttentionMask&, View<const T, 3> d_o, View<const T, 3> q,
                        View<const T, 3> k, View<const T, 3> v, View<const acc_t<T>, 2> lse,
                        View<const acc_t<T>, 2> delta, View<T, 3> d_q, View<T, 3> d_k, View<T, 3> d_v,
                        View<acc_t<T>, 3> sums, View<const T, 3> o = {});

// Merges the partial result b of the same queries over other keys into a:
//   lse = log(e^lse_a + e^lse_b);  o = o_a e^(lse_a − lse) + o_b e^(lse_b − lse)
// A part that has seen no key (o = 0, lse = −Inf) changes nothing. S is T or acc_t<T>: results of many parts are merged
// in the latter.
template <class T, class S>
void attention_merge(Stream&, View<S, 3> o_a, View<acc_t<T>, 2> lse_a, View<const T, 3> o_b,
                     View<const acc_t<T>, 2> lse_b);

// Attention sinks (OpenAI 2025, gpt-oss, arXiv 2508.10925): the sum of a row's softmax has a term more, e^sink of its
// head, without a value. Of the whole row's result, merged from all parts, once:
//   lse' = log(e^lse + e^sink);  o' = o · e^(lse − lse')
// attention_delta and attention_backward then run with o' and lse' as they are, since P' = e^(score − lse').
template <class T>
void attention_sinks(Stream&, View<const T, 1> sinks, View<T, 3> o, View<acc_t<T>, 2> lse);
// terms(R, H) = −e^(sink − lse') · delta, delta = Σ_d d_o · o': their sums over the rows are the gradient of the sinks.
template <class T>
void attention_sink_terms(Stream&, View<const T, 1> sinks, View<const acc_t<T>, 2> lse, View<const acc_t<T>, 2> delta,
                          View<acc_t<T>, 2> terms);

}  // namespace forge
