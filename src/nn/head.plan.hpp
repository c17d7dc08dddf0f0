#pragma once

#include "nn/norm.plan.hpp"

namespace forge {

// The pure half of nn/head.hpp: the norm before the head, the model's final one or that of a depth of multi-token
// prediction, and the head.

// Two units: the output matrix, where it isn't the token table, and the final norm.
template <class P>
struct HeadParameters {
  View<P, 2> output;  // (V, C): its own, or the embedding's table
  NormParameters<P> norm;
  bool rms_norm = false;  // whatever the model's norms are

  void list(ParameterLister& l) {
    const ModelSpec& s = l.spec;
    if (l.kind == UnitKind::final_norm) return norm.list(l, "norm", l.hf("model.norm.", "transformer.ln_f."));
    l.add(output, {{"output"}, {"lm_head.weight"}, {s.V(), s.C()}, split_rows(), Initial::normal, l.matrix_std()});
  }
};

// What a norm and the head behind it keep of one normalised state. Its rows stay where another layer or stage reads
// them than the head right behind; the head alone keeps d_state of a state that reaches it from another stage.
template <class T>
struct StateBuffers {
  View<T, 2> x;  // (S, C) input of the norm, where no edge of the stage is it
  NormStatistics<T> norm;
  View<T, 2> d_state;  // (S, C)
  View<T, 2> state;    // (S, C)

  void list_input(BufferLister& l) { l.add(x, "last residual", l.S, l.spec.C(), l.B); }
  void list_of_norm(BufferLister& l, bool of_depth) {
    if (!of_depth && l.spec.layernorm()) l.add(norm.mean, "final norm mean", l.S, 1, l.B);
    l.add(norm.rstd, of_depth ? "norm before the head rstd" : "final norm rstd", l.S, 1, l.B);
    l.add(d_state, of_depth ? "gradient of its output" : "gradient of final norm output", l.S, l.spec.C(), l.B);
  }
  void list_of_head(BufferLister& l) { l.add(d_state, "gradient of the head's input", l.S, l.spec.C(), l.B); }
  void list_state(BufferLister& l) { l.add(state, "final norm output", l.S, l.spec.C(), l.B); }
};

// Workspace of the norm's B, and of the head.
template <class T>
struct NormScratch {
  RowScratch<T> rows;

  void list(BufferLister& l) { rows.list_norm(l, l.spec.C()); }
};
template <class T>
struct HeadScratch {
  RowScratch<T> rows;
  View<acc_t<T>, 2> logits;                   // (chunk, V)
  View<T, 2> d_logits;                        // (chunk, V) where the types differ, or a soft cap reads the logits again
  View<acc_t<T>, 1> loss, z;                  // (chunk)
  View<acc_t<T>, 2> statistics;               // (tp chunk, 3) of the vocabulary-parallel loss
  View<double, 1> text_losses, text_weights;  // (2 b) of pairs
  View<T, 2> d_rows;                          // (R, C) this rank's part of the gradient of the state, with tp

  void list(BufferLister& l) {
    const std::int64_t chunk = l.c.head_chunk_rows;
    l.add(logits, "logits of a chunk", chunk, l.spec.V());
    l.add(loss, "loss of each row", chunk, 1);
    l.add(z, "z of each row", chunk, 1);
    if (rounds<T> || l.spec.options.logit_soft_cap > 0) l.add(d_logits, "gradient of logits", chunk, l.spec.V());
    if (l.c.pairs) l.add(text_losses, "loss of each text", l.c.texts(), 1);
    if (l.c.pairs) l.add(text_weights, "weight of each text", l.c.texts(), 1);
    if (l.c.tp == 1) return;
    l.add(statistics, "statistics of each row", l.c.tp * chunk, 3);
    rows.list_rows(l);
    l.add(d_rows, "gradient of final norm output, a part", l.R, l.spec.C());
  }
};

// Logits of all rows, a chunk at a time, and in a training step their gradients.
// `of_model`: not of a depth of multi-token prediction: it sums the losses of the data's sources, where there are some;
// of pairs it runs twice, first for the texts' losses.
void list_head(Segments& list, bool of_model);

}  // namespace forge
