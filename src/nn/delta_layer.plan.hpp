#pragma once

#include "nn/attend.plan.hpp"
#include "nn/delta_exchange.plan.hpp"

namespace forge {

// The pure half of nn/delta_layer.hpp: a layer of gated DeltaNet (Yang et al. 2024, arXiv:2412.06464), of Hk heads of
// queries and keys, of Dk numbers, and Hv of values, of Dv. With the names of Qwen3.5's checkpoints.

template <class P>
struct DeltaParameters : AttendParameters<P> {
  View<P, 2> in;                    // (columns, C): q, k, v; the gate z; b and a of β and g
  View<P, 1> conv;                  // (channels · taps), of q, k and v
  View<P, 1> log_decay, time_bias;  // (Hv)
  View<P, 1> norm;                  // (Dv)
  LowRank<P> in_adapter;

  void list(ParameterLister& l);
};

template <class T>
struct DeltaBuffers : AttendBuffers<T> {
  View<T, 2> in;  // (R, columns), on one cp rank
  // On several the gate of these rows, and the rule's input, of all rows and this rank's heads.
  View<T, 2> z;       // (R, Hv Dv)
  View<T, 2> heads;   // (R cp, channels + 2 Hv of it): q, k, v, b, a
  View<T, 2> mixed;   // (R, channels) q, k, v behind the convolution; on several, as heads
  View<T, 2> rule;    // (R, Hv Dv) output of the rule; o is the norm's, behind it
  View<T, 2> d_in;    // (R, columns)
  View<T, 2> all_n1;  // (R, C) n1 of all tp ranks, where recomputation keeps it
  LowRows<T> in_low;

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    this->list_norm(l);
    this->list_n1(l);
    const std::int64_t all = l.c.microbatch.rows_of_all();
    if (l.c.microbatch.cp == 1) {
      l.save(in, "projections of DeltaNet", l.R, s.linear_columns(), l.B);
    } else {
      l.save(z, "gate of DeltaNet", l.R, s.linear_values(), l.B);
      l.save(heads, "heads of DeltaNet of all rows", all, delta_head_columns(l.c), l.B);
    }
    l.save(mixed, "q, k, v behind their convolution", all, delta_shape(l.c).channels(), l.B);
    l.save(rule, "output of the delta rule", l.R, s.linear_values(), l.B);
    l.save(this->o, "attention output", l.R, s.linear_values(), l.W);
    in_low.list(l, delta_in);
    this->list_residual(l, delta_out);
  }
  void list_gradients(BufferLister& l) {
    this->list_attend_gradients(l, delta_out);
    in_low.list_gradients(l, delta_in);
    l.add(d_in, "gradient of DeltaNet's projections", l.R, l.spec.linear_columns(), l.W);
  }
  void list_gathered(BufferLister& l) { l.add(all_n1, "norm 1 output of all tp ranks", l.R, l.spec.C(), l.W); }
};

// Workspace of B.
template <class T>
struct DeltaScratch {
  RowScratch<T> rows;
  View<T, 2> d_o;           // (R, Hv Dv)
  DeltaHeads<T> heads;      // of gradients
  View<T, 2> d_mixed;       // (R, channels), as mixed
  View<acc_t<T>, 2> decay;  // (R, Hv) gradient of log_decay, row by row, as mixed
  View<acc_t<T>, 2> sums;   // of columns: of the convolution's taps, of the norm, of the heads' numbers
  View<T, 2> d_n1;          // (S, C)

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    const DeltaShape shape = delta_shape(l.c);
    const std::int64_t all = l.c.microbatch.rows_of_all();
    std::int64_t widest = std::max(shape.value_dim, shape.value_heads);
    for (const ConvPart& part : conv_parts(l.c, 0)) widest = std::max(widest, part.count * s.options.linear_conv_taps);
    rows.list_norm(l, s.C());
    rows.list_rows(l);
    l.add(d_o, "gradient of attention output", l.R, s.linear_values());
    heads.list(l, delta_head_columns(l.c));
    l.add(d_mixed, "gradient of q, k, v", all, shape.channels());
    l.add(decay, "gradients of decays by row", all, shape.value_heads);
    l.add(sums, "column sums of DeltaNet", norm_partial_rows(all), widest);
    l.add(d_n1, "gradient of norm output", l.S, s.C());
  }
};

// How tp splits the product that makes them all; where products are rounded, all but b and a, whose gradients are so
// small beside the others' that one scale would leave nothing of them: a product of their own isn't rounded.
MatrixSplit delta_in_split(const ModelSpec& s, bool rounds);

void list_delta(Segments& list, std::int64_t layer, Pass pass);

}  // namespace forge
