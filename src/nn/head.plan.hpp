#pragma once

#include "model/parameters.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/head.hpp: the norm before the head, the model's final one or that of a depth of multi-token
// prediction, and the head.

Unit output_unit(const ModelSpec& spec);
Unit final_norm_unit(const ModelSpec& spec);

// What a norm and the head behind it keep of one normalised state. Its rows stay where another layer or stage reads
// them than the head right behind; the head alone keeps d_state of a state that reaches it from another stage.
template <class T>
struct StateBuffers {
  View<T, 2> x;  // (S, C) input of the norm, where no edge of the stage is it
  NormStatistics<T> norm;
  View<T, 2> d_state;  // (S, C)
  View<T, 2> state;    // (S, C)

  void list_input(BufferLister& l) { l.add(x, "last residual", l.S, l.spec.C(), Reader::backward_input); }
  void list_of_norm(BufferLister& l, bool of_depth);
  void list_of_head(BufferLister& l);
  void list_state(BufferLister& l) { l.add(state, "final norm output", l.S, l.spec.C(), Reader::backward_input); }
};

// Workspace of the norm's B, and of the head.
template <class T>
struct NormScratch {
  RowScratch<T> rows;

  void list(BufferLister& l) { rows.list_partial(l, l.spec.C()); }
};
template <class T>
struct HeadScratch {
  RowScratch<T> rows;
  View<acc_t<T>, 2> logits;      // (chunk, V)
  View<T, 2> d_logits;           // (chunk, V) where the types differ
  View<acc_t<T>, 1> loss, z;     // (chunk)
  View<acc_t<T>, 2> statistics;  // (tp chunk, 3) of the vocabulary-parallel loss
  View<T, 2> d_rows;             // (R, C) this rank's part of the gradient of the state, with tp

  void list(BufferLister& l);
};

// Logits of all rows, a chunk at a time, and their gradient.
void add_head_sends(Sends& sends);

}  // namespace forge
