#pragma once

#include "core/delta_shape.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/delta_rule.hpp: the recurrence of a gated DeltaNet layer, of whole sequences and this rank's
// heads: of several cp ranks each has a part of a tp rank's (nn/delta_exchange.hpp).

inline DeltaShape delta_shape(const BufferContext& c) {
  const ModelDeck& o = c.spec.options;
  const int cp = c.microbatch.cp;
  return {c.microbatch.sequences,  c.microbatch.sequence_tokens,
          o.linear_key_heads / cp, o.linear_value_heads / cp,
          o.linear_key_dim,        o.linear_value_dim};
}

// Workspace of both passes: the arrays of kernels/delta/delta.hpp, in the accumulation type.
template <class T>
struct DeltaWork {
  using A = acc_t<T>;
  View<A, 2> q, k;    // (rows, Dk)
  View<A, 2> u, w;    // (rows, Dv), (rows, Dk): βv and βλk, then U and W
  View<A, 2> end_k;   // (rows, Dk) εk
  View<A, 2> x, p;    // (rows, C)
  View<A, 2> tokens;  // (5, rows) β, g, c, λ, ε
  View<A, 1> whole;   // (groups)
  View<A, 2> state;   // (heads Dk, Dv) S, or its gradient

  void list(BufferLister& l) {
    const DeltaShape s = delta_shape(l.c);
    l.add(q, "q of chunks", s.rows(), s.key_dim);
    l.add(k, "k of chunks", s.rows(), s.key_dim);
    l.add(u, "U of chunks", s.rows(), s.value_dim);
    l.add(w, "W of chunks", s.rows(), s.key_dim);
    l.add(end_k, "k up to the chunk's end", s.rows(), s.key_dim);
    l.add(x, "k k of chunks", s.rows(), s.chunk());
    l.add(p, "q k of chunks", s.rows(), s.chunk());
    l.add(tokens, "gates of chunks", 5, s.rows());
    l.add(whole, "decays of chunks", s.groups(), 1);
    l.add(state, "state", s.heads() * s.key_dim, s.value_dim);
  }
};
template <class T>
struct DeltaForward : DeltaWork<T> {
  View<acc_t<T>, 2> o;  // (rows, Dv)

  void list(BufferLister& l) {
    DeltaWork<T>::list(l);
    const DeltaShape s = delta_shape(l.c);
    l.add(o, "output of chunks", s.rows(), s.value_dim);
  }
};
template <class T>
struct DeltaBackward : DeltaWork<T> {
  using A = acc_t<T>;
  View<A, 2> states;    // (heads Dk (chunks − 1), Dv) S before each chunk but the first
  View<A, 2> new_u;     // (rows, Dv) U'
  View<A, 2> d_o, y_v;  // (rows, Dv)
  View<A, 2> dq, dk;    // (rows, Dk)
  View<A, 2> begin_q;   // (rows, Dk) λq, then its gradient
  View<A, 2> d_end_k, y_k;
  View<A, 2> dx, dp;  // (rows, C)
  View<A, 2> slopes;  // (3, rows) of β, of c, and of ε
  View<A, 1> whole_slopes;

  void list(BufferLister& l) {
    DeltaWork<T>::list(l);
    const DeltaShape s = delta_shape(l.c);
    const std::int64_t later = s.chunks() > 1 ? s.chunks() - 1 : 1;
    l.add(states, "states before chunks", later * s.heads() * s.key_dim, s.value_dim);
    l.add(new_u, "U' of chunks", s.rows(), s.value_dim);
    l.add(d_o, "gradient of chunks' output", s.rows(), s.value_dim);
    l.add(y_v, "gradient of U", s.rows(), s.value_dim);
    l.add(dq, "gradient of q of chunks", s.rows(), s.key_dim);
    l.add(dk, "gradient of k of chunks", s.rows(), s.key_dim);
    l.add(begin_q, "q from the chunk's begin", s.rows(), s.key_dim);
    l.add(d_end_k, "gradient of k up to the chunk's end", s.rows(), s.key_dim);
    l.add(y_k, "gradient of W", s.rows(), s.key_dim);
    l.add(dx, "gradient of k k", s.rows(), s.chunk());
    l.add(dp, "gradient of q k", s.rows(), s.chunk());
    l.add(slopes, "gradients of gates", 3, s.rows());
    l.add(whole_slopes, "gradients of decays", s.groups(), 1);
  }
};

void list_delta_rule(Segments& list, bool backward);

}  // namespace forge
