#pragma once

#include "model/unit_builder.hpp"
#include "nn/embedding.plan.hpp"

namespace forge {

// The pure half of nn/mtp.hpp.

// What a module has beside its block, in the block's unit.
void add_mtp_parameters(UnitBuilder& unit);

template <class T>
struct MtpBuffers {
  View<T, 2> embedding;                           // (S, C) of the shifted tokens
  View<acc_t<T>, 1> embedding_rstd, hidden_rstd;  // (S)
  View<T, 2> in;                                  // (S, 2C) both, normalised, side by side
  View<T, 2> d_out;                               // (S, C) gradient of the module's block's input, for W

  void list(BufferLister& l) {
    l.keep(embedding, "embedding of shifted tokens", l.S, l.spec.C(), l.B);
    l.keep(embedding_rstd, "its norm's rstd", l.S, 1, l.B);
    l.keep(hidden_rstd, "hidden state's norm rstd", l.S, 1, l.B);
    l.recompute(in, "embedding and hidden state", l.S, 2 * l.spec.C(), l.W);
  }
  void list_gradients(BufferLister& l) { l.add(d_out, "gradient of the block's input", l.S, l.spec.C(), l.W); }
};

// Workspace of B.
template <class T>
struct MtpScratch {
  RowScratch<T> rows;
  View<T, 2> d_in;         // (S, 2C)
  View<T, 2> d_embedding;  // (S, C)

  void list(BufferLister& l) {
    l.add(d_in, "gradient of embedding and hidden state", l.S, 2 * l.spec.C());
    l.add(d_embedding, "gradient of the embedding", l.S, l.spec.C());
    rows.list_partial(l, l.spec.C());
  }
};

// The embedding's rows; its gradient is taken in B.
void add_mtp_sends(Sends& sends, Pass pass, bool recompute);

}  // namespace forge
