#pragma once

#include "config/deck.hpp"
#include "optim/update.hpp"

namespace forge {

// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it, over a flat shard:
//   g ← clip·g;  m ← β1 m + (1−β1) g;  v ← β2 v + (1−β2) g²;  p ← p (1 − lr·decay);  p ← p − lr · m̂ / (√v̂ + ε)
// and the compute copy of p. Nothing changes when scalars->finite is 0. S = storage and gradient type, M = moment type.
struct AdamwStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double bias1, bias2;  // 1 − β^t
};
template <class S, class M, class T>
void adamw(Stream&, AdamwStep step, View<const StepScalars, 1> scalars, View<const S, 1> gradient, View<S, 1> parameter,
           View<M, 1> m, View<M, 1> v, View<T, 1> copy);  // copy empty: none

// Its line in the table of optimizers (optim/optimizer.cpp).
OptimizerState adamw_state(const OptimizerDeck& deck, DType standard);
template <class T>
void adamw_update(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run);

}  // namespace forge
