#pragma once

#include <cstdint>

#include "core/delta_shape.hpp"
#include "core/macros.hpp"
#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Kernels between the products of gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) in its chunked form. A value head
// has a state S(Dk, Dv), 0 before the first token of a document:
//   S_t = a_t S_{t−1} + k_t u_tᵀ,   u_t = β_t (v_t − a_t S_{t−1}ᵀ k_t),   o_t = S_tᵀ q_t,   a_t = e^{g_t}.
// In a chunk of C tokens c_i is the sum of g up to token i.
//   Γ_ij = e^{c_i − c_j}   tokens j <= i of one document, else 0
//   λ_i  = e^{c_i}         token i's document began before the chunk, else 0; λ_C: of the last token
//   ε_j  = e^{c_C − c_j}   token j is of the last token's document, else 0
//   X_ij = k_i·k_j Γ_ij    below the diagonal;   P_ij = q_i·k_j Γ_ij   up to it
//   (I + βX) U = βV,   (I + βX) W = βλK,   U' = U − W S,   O = λQ S + P U',   S ← λ_C S + (εK)ᵀ U'.

// Tokens are of one document where they have the same number; none: a sequence is one.
using Documents = View<const std::int32_t, 1>;

// y(R, channels) = silu(Σ_j w(channel, n − 1 − j) x(r − j)) over the tokens r − j of r's document; w(channels · n) of n
// taps, channel by channel.
template <class T>
void delta_conv_forward(Stream&, const DeltaShape&, const Documents&, View<const T, 2> x, View<const T, 1> w,
                        View<T, 2> y);
// d(R, channels): the gradient of y, then of the sums, in its place → dx; dw += …; partial: (norm_partial_rows(R),
// channels · n).
template <class T>
void delta_conv_backward(Stream&, const DeltaShape&, const Documents&, View<const T, 2> x, View<const T, 1> w,
                         View<T, 2> d, View<T, 2> dx, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw);

// The numbers of heads that gates depend on, and their inputs, columns of the projections: β = σ(b),
// g = −e^{log_decay} softplus(a + time_bias).
template <class T>
struct DeltaGates {
  View<const T, 2> b, a;                  // (R, value heads)
  View<const T, 1> log_decay, time_bias;  // (value heads)
};
// Numbers of a token and head, (rows).
template <class A>
struct DeltaTokens {
  View<A, 1> beta, g;
  View<A, 1> sum;         // c_i
  View<A, 1> begin, end;  // λ_i, ε_i
};

// The tokens of a generation's pass: a row is one where places[r] isn't −1, and they stand before the others of a
// sequence; none: all are. positions[r] of a text's first one is 0.
struct DeltaRows {
  View<const std::int32_t, 1> positions, places;  // (R)
};

// y(R, channels) of the convolution → q = q̂ / √Dk and k with q̂, k̂ = x / √(x·x + 1e-6) (rows, Dk), βv (rows, Dv), β, g
// of tokens; 0 of other rows.
template <class T>
void delta_split(Stream&, const DeltaShape&, View<const T, 2> y, const DeltaGates<T>&, const DeltaRows&,
                 View<acc_t<T>, 2> q, View<acc_t<T>, 2> k, View<acc_t<T>, 2> beta_v, const DeltaTokens<acc_t<T>>&);
// g → c, λ_i, ε_i, and of each chunk λ of its last token, `whole` (groups).
// `kept`: a state goes on from before the first chunk.
template <class A>
void delta_sums(Stream&, const DeltaShape&, const Documents&, bool kept, const DeltaTokens<A>&, View<A, 1> whole);
// k kᵀ and q kᵀ of chunks (rows, C) → X, P in their place; and εk, βλk (rows, Dk).
template <class A>
void delta_masks(Stream&, const DeltaShape&, const Documents&, const DeltaTokens<A>&, View<const A, 2> k, View<A, 2> x,
                 View<A, 2> p, View<A, 2> end_k, View<A, 2> beta_k);
// (I + βX)⁻¹ of y (rows, n), in its place; transposed: (I + βX)⁻ᵀ.
template <class A>
void delta_solve(Stream&, const DeltaShape&, View<const A, 2> x, View<const A, 1> beta, View<A, 2> y, bool transposed);
// y (rows, n) ← y · factors (rows); of states (heads · Dk, Dv) those of a chunk, `factors` (heads).
template <class A>
void delta_scale_rows(Stream&, View<const A, 1> factors, std::int64_t rows_of_factor, View<A, 2> y);
// o (rows, Dv) → out (R, value heads · Dv)
template <class T>
void delta_join(Stream&, const DeltaShape&, View<const acc_t<T>, 2> o, View<T, 2> out);
// … and the gradient back.
template <class T>
void delta_cut(Stream&, const DeltaShape&, View<const T, 2> d_out, View<acc_t<T>, 2> d_o);

// Of a chunk: `to` (heads) = λ_C Σ S ⊙ dS of states (heads · Dk, Dv).
template <class A>
void delta_state_slope(Stream&, const DeltaShape&, View<const A, 1> whole, View<const A, 2> s, View<const A, 2> ds,
                       View<A, 1> to);
// Gradients of gates, which several kernels add to.
template <class A>
struct DeltaSlopes {
  View<A, 1> beta, sum, end;  // (rows) of β, of c, and ε k·d(εk)
  View<A, 1> whole;           // (groups) of λ_C, times λ_C
};
// d(βX), dP (rows, C) → of k kᵀ and of q kᵀ, in their place; slopes of β and c begin here.
template <class A>
void delta_masks_backward(Stream&, const DeltaShape&, const Documents&, const DeltaTokens<A>&, View<const A, 2> x,
                          View<const A, 2> p, View<A, 2> dx, View<A, 2> dp, const DeltaSlopes<A>&);
// dq += λ d(λq), dk += ε d(εk) + βλ y_k; their slopes; y_k, y_v: of βλk and βv.
template <class T>
void delta_combine(Stream&, const DeltaShape&, const DeltaTokens<acc_t<T>>&, View<const T, 2> y,
                   View<const acc_t<T>, 2> q, View<const acc_t<T>, 2> k, View<const acc_t<T>, 2> d_begin_q,
                   View<const acc_t<T>, 2> d_end_k, View<const acc_t<T>, 2> y_k, View<const acc_t<T>, 2> y_v,
                   View<acc_t<T>, 2> dq, View<acc_t<T>, 2> dk, const DeltaSlopes<acc_t<T>>&);
// Slopes of c → of g, in their place.
template <class A>
void delta_sums_backward(Stream&, const DeltaShape&, const DeltaSlopes<A>&);
// dq, dk of value heads, y_v and the slopes → d(R, channels) of the convolution's output, db, da (R, value heads), and
// of each row the gradient of log_decay (R, value heads).
template <class T>
void delta_split_backward(Stream&, const DeltaShape&, View<const T, 2> y, const DeltaGates<T>&,
                          const DeltaTokens<acc_t<T>>&, const DeltaSlopes<acc_t<T>>&, View<const acc_t<T>, 2> dq,
                          View<const acc_t<T>, 2> dk, View<const acc_t<T>, 2> y_v, View<T, 2> d, View<T, 2> db,
                          View<T, 2> da, View<acc_t<T>, 2> d_decay);

// A generation's memory of its texts, one a sequence: S of each value head, and the last n − 1 rows that the
// convolution of n taps has read.
template <class T>
struct DeltaMemory {
  View<acc_t<T>, 2> state;  // (heads · Dk, Dv)
  View<T, 2> tail;          // (sequences (n − 1), channels)
};
// 0 of the sequences in which a text begins.
template <class T>
void delta_begin(Stream&, const DeltaShape&, const DeltaRows&, const DeltaMemory<T>&);
// delta_conv_forward with the tail's rows before a sequence's first; then tail ← the last n − 1 rows up to the last
// token.
template <class T>
void delta_conv_next(Stream&, const DeltaShape&, const DeltaRows&, View<const T, 2> x, View<const T, 1> w,
                     View<T, 2> tail, View<T, 2> y);

// y = w ⊙ x / √(mean x² + epsilon) ⊙ silu(z), of each head: x, z, y (R, heads · n), w (n).
template <class T>
void gated_norm_forward(Stream&, View<const T, 2> x, View<const T, 2> z, View<const T, 1> w, double epsilon,
                        View<T, 2> y);
// dy → dx, in its place, and dz; dw += …; partial: (norm_partial_rows(R), n).
template <class T>
void gated_norm_backward(Stream&, View<const T, 2> x, View<const T, 2> z, View<const T, 1> w, double epsilon,
                         View<T, 2> dy, View<T, 2> dz, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw);

}  // namespace forge
