#pragma once

#include "core/bias_columns.hpp"
#include "nn/expert_adapter.plan.hpp"
#include "nn/mlp.plan.hpp"
#include "nn/router.plan.hpp"

namespace forge {

// The pure half of nn/moe.hpp.

// N = E / ep experts on a rank, in a unit of their own.
template <class P>
struct ExpertParameters {
  View<P, 3> up;    // (N, 2Fe, C) of each expert gate above up
  View<P, 3> down;  // (N, C, Fe)
  // With model.expert_bias; etp ranks share the entries of down's, so that each is added once: a rank has C / etp,
  // rounded up.
  View<P, 2> up_bias;    // (N, 2Fe)
  View<P, 2> down_bias;  // (N, C / etp)
  ExpertLowRank<P> up_adapter, down_adapter;

  void list(ParameterLister& l);
  // A unit of their own.
  void list_adapters(ParameterLister& l);
};

// Router and shared experts stand in the block's unit.
template <class P>
struct MoeParameters {
  View<P, 2> router;       // (E, C)
  View<P, 1> router_bias;  // (E) of the logits
  MlpParameters<P> shared;
  View<P, 2> shared_gate;  // (1, C)
  ExpertParameters<P> experts;

  void list(ParameterLister& l);
};
// How etp splits an expert's matrices, of whose columns or rows this rank has so many.
MatrixSplit expert_up_split(const ModelSpec& spec, std::int64_t ffn);
MatrixSplit expert_down_split(const ModelSpec& spec, std::int64_t ffn);
// Rows on their way to the experts, forward (output) or back (input_gradient), as the experts' first product of the
// pass rounds them: what they are sent as where the deck has them travel as codes.
ScaledOperand rows_to_experts(const BufferContext& c, ProductOf of, std::int64_t rows);
// Of a rank's part of the biases of down.
BiasColumns down_bias_columns(const BufferContext& c, int etp_rank);
RouterBias router_bias_of(const ModelSpec& spec, std::int64_t layer);

// Rows of a round, in the order of experts.
template <class T>
struct ExpertBuffers {
  View<acc_t<T>, 1> weights;  // (N)
  View<T, 2> in;              // (N, C)
  View<T, 2> up;              // (N, 2 Fe / etp) gate and up, then their gradient
  View<T, 2> act;             // (N, Fe / etp)
  ExpertLowRows<T> up_low, down_low;

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    l.save(weights, "weights of expert rows", m.round_rows, 1, l.B);
    l.save(in, "expert rows", m.round_rows, l.spec.C(), l.B);
    l.save(up, "experts' gate and up", m.round_rows, 2 * m.ffn, l.B);
    l.recompute(act, Recompute::expert_activations, "experts' activation", m.round_rows, m.ffn, l.B);
    up_low.list(l, BlockProduct::expert_gate_up, m.round_rows);
    down_low.list(l, BlockProduct::expert_down, m.round_rows);
  }
};

template <class T>
struct MoeBuffers {
  MlpBuffers<T> shared;
  View<T, 2> shared_out;          // (S, C)
  View<acc_t<T>, 2> shared_gate;  // (S, 1)
  RouterBuffers<T> router;
  DispatchBuffers<T> dispatch;
  ExpertBuffers<T> experts;
  View<T, 2> d_shared_gate;  // (S, 1)

  void list(BufferLister& l) {
    if (l.spec.Fs() > 0) shared.list(l, l.spec.Fs(), true);
    if (l.spec.options.shared_expert_gate) {
      l.save(shared_out, "shared experts' output", l.S, l.spec.C(), l.B);
      l.save(shared_gate, "shared experts' gate", l.S, 1, l.B);
    }
    router.list(l);
    dispatch.list(l);
    experts.list(l);
  }
  void list_gradients(BufferLister& l) {
    if (l.spec.Fs() > 0) shared.list_gradients(l, true);
    router.list_gradients(l);
    if (l.spec.options.shared_expert_gate) l.add(d_shared_gate, "gradient of the shared experts' gate", l.S, 1, l.W);
  }
  void list_gathered(BufferLister& l) {
    if (l.spec.Fs() > 0) shared.list_gathered(l);
  }
};

// Workspace of forward, or of recomputing it.
template <class T>
struct MoeForward {
  RouterForward<T> router;
  SortScratch sort;
  DispatchScratch<T> dispatch;
  View<T, 2> expert_out;  // (N, C) where rows travel

  void list(BufferLister& l, MoeBuffers<T>& layer) {
    const MoeShape m = moe_shape(l.c);
    router.list(l, layer.router);
    sort.list(l);
    dispatch.list(l);
    if (m.exchanges()) l.add(expert_out, "experts' output", m.round_rows, l.spec.C());
  }
};

// Workspace of B.
template <class T>
struct MoeBackward {
  RouterBackward<T> router;
  DispatchScratch<T> dispatch;
  View<T, 2> d_shared_act;      // (R, Fs)
  View<T, 2> d_branch;          // (S, C) gradient of the layer's output before dropout
  View<T, 2> d_rows;            // (N, C) of the experts' output, then of their input
  View<T, 2> d_act;             // (N, Fe / etp)
  View<acc_t<T>, 1> d_weights;  // (N)
  ExpertLowRows<T> d_up_low, d_down_low;

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    if (l.spec.Fs() > 0) l.add(d_shared_act, "gradient of the shared activation", l.R, l.spec.Fs());
    if (l.spec.options.dropout > 0) l.add(d_branch, "gradient before dropout", l.S, l.spec.C());
    router.list(l);
    l.add(d_rows, "gradient of expert rows", m.round_rows, l.spec.C());
    l.add(d_act, "gradient of experts' activation", m.round_rows, m.ffn);
    l.add(d_weights, "gradient of weights of expert rows", m.round_rows, 1);
    d_up_low.list_gradient(l, BlockProduct::expert_gate_up, m.round_rows);
    d_down_low.list_gradient(l, BlockProduct::expert_down, m.round_rows);
    dispatch.list(l);
  }
};

// Whether the shared experts' output, which their gate's gradient reads, is computed a second time, and with it their
// activation.
inline bool recomputes_shared_output(const BufferContext& c) {
  return c.spec.options.shared_expert_gate && c.recompute == Recompute::full;
}

// `recompute`: without the last products. Of dropless dispatch one round, as where the router loads all experts alike.
void list_moe(Segments& list, Pass pass, bool recompute);
// What recomputation of activations by name does again.
void list_moe_activation(Segments& list);

}  // namespace forge
