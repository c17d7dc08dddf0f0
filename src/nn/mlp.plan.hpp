#pragma once

#include "nn/adapter.plan.hpp"

namespace forge {

// The pure half of nn/mlp.hpp.

// What the names of a feed-forward layer's tensors begin with.
struct MlpNames {
  std::string_view own = "mlp.", hf = "mlp.", inner_hf = "";
};

// Of a dense block, F = `ffn`, or of the shared experts.
template <class P>
struct MlpParameters {
  View<P, 2> up;         // (2F, C) gate above up, or (F, C)
  View<P, 2> down;       // (C, F)
  View<P, 1> up_bias;    // (2F) or (F)
  View<P, 1> down_bias;  // (C)
  LowRank<P> up_adapter, down_adapter;

  void list(ParameterLister& l, std::int64_t ffn, bool biases, const MlpNames& names = {});
  void list(ParameterLister& l) { list(l, l.spec.F(), l.spec.options.mlp_bias); }
};

template <class T>
struct MlpBuffers {
  View<T, 2> up;   // (R, 2F) gate and up, or (R, F); B leaves its gradient there, for W
  View<T, 2> act;  // (R, F)
  LowRows<T> up_low, down_low;
  View<T, 2> all_in;  // (R, C) the input of all tp ranks, where recomputation keeps it

  // Of a dense block, F = `ffn`, or of the shared experts.
  void list(BufferLister& l, std::int64_t ffn, bool shared) {
    const bool gated = l.spec.gated();
    const char* name = shared ? (gated ? "shared gate and up" : "shared up") : (gated ? "gate and up" : "up");
    l.save(up, name, l.R, l.spec.up_columns(ffn), l.W);
    l.recompute(act, Recompute::activations, shared ? "shared activation" : "activation", l.R, ffn, l.W);
    up_low.list(l, {BlockProduct::gate_up, shared});
    down_low.list(l, {BlockProduct::down, shared});
  }
  void list(BufferLister& l) { list(l, l.spec.F(), false); }
  void list_gradients(BufferLister& l, bool shared = false) {
    up_low.list_gradients(l, {BlockProduct::gate_up, shared});
    down_low.list_gradients(l, {BlockProduct::down, shared});
  }
  void list_gathered(BufferLister& l) { l.add(all_in, "norm 2 output of all tp ranks", l.R, l.spec.C(), l.W); }
};

// Whether full recomputation makes the layer's output again, for the norm behind it.
inline bool recomputes_output(const BufferContext& c) {
  return c.recompute == Recompute::full && c.spec.norms_behind();
}

// Whether B, which reads the activations' inputs anyway, makes the activations of a part that recomputation left out.
// Not where products of the block are `rounded`: they need the activations' largest magnitudes before B; nor where they
// are recomputed for the output.
inline bool activates_in_backward(const BufferContext& c, bool rounded, Recompute::Part part = Recompute::activations) {
  return c.recompute.has(part) && !rounded && !recomputes_output(c);
}

// Whether it makes them anew before B, where blocks aren't recomputed whole.
inline bool activates_before_backward(const BufferContext& c, bool rounded,
                                      Recompute::Part part = Recompute::activations) {
  return c.recompute.has(part) && !activates_in_backward(c, rounded, part);
}

// How tp splits the two matrices of a feed-forward layer of `ffn` columns on this rank.
MatrixSplit mlp_up_split(const ModelSpec& spec, std::int64_t ffn);
MatrixSplit mlp_down_split(const ModelSpec& spec, std::int64_t ffn);

// A feed-forward layer of a dense block, or the shared experts.
struct MlpShape {
  std::int64_t ffn;
  bool biases = false, shared = false;
};
// `output`: with the last product, `gate`: and a gate's before it; `activates`: B makes the activation.
void list_mlp(Segments& list, Pass pass, const MlpShape& mlp, bool output = true, bool gate = false,
              bool activates = false);
// Its activation, forward; `codes`: which leaves those of its rows, too.
void list_activation(Segments& list, std::int64_t ffn, bool codes = false);

}  // namespace forge
