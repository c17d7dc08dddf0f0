#pragma once

#include "model/unit_builder.hpp"
#include "nn/mlp.plan.hpp"
#include "nn/router.plan.hpp"

namespace forge {

// The pure half of nn/moe.hpp.

// Of the block: router and shared experts; and the unit of the experts.
void add_moe_parameters(UnitBuilder& unit);
Unit experts_unit(const ModelSpec& spec, std::int64_t layer);
RouterBias router_bias_of(const ModelSpec& spec, std::int64_t layer);

// Rows of a round, in the order of experts.
template <class T>
struct ExpertBuffers {
  View<acc_t<T>, 1> weights;  // (N)
  View<T, 2> in;              // (N, C)
  View<T, 2> up;              // (N, 2 Fe / etp) gate and up, then their gradient
  View<T, 2> act;             // (N, Fe / etp)

  void list(BufferLister& l);
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

  void list(BufferLister& l);
  void list_gradients(BufferLister& l);
};

// Workspace of forward, or of recomputing it.
template <class T>
struct MoeForward {
  RouterForward<T> router;
  SortScratch sort;
  DispatchScratch<T> dispatch;
  View<T, 2> expert_out;  // (N, C) where rows travel

  void list(BufferLister& l, MoeBuffers<T>& layer);
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

  void list(BufferLister& l);
};

// `recompute`: without the last products. Of dropless dispatch one round, as where the router loads all experts alike.
void add_moe_sends(Sends& sends, Pass pass, bool recompute);

}  // namespace forge
