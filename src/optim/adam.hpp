#pragma once

#include <cmath>

#include "config/deck.hpp"
#include "optim/update.hpp"

namespace forge {

// The constants of a step of Adam and its relatives in the storage type, each rounded once from double, as PyTorch
// does.
template <class A>
struct AdamConstants {
  A decay;  // 1 − rate·weight_decay, or 1
  A one_minus_beta1, beta2, one_minus_beta2, epsilon;
  A step_size;   // rate / (1 − β1^t)
  A root_bias2;  // √(1 − β2^t)

  AdamConstants(const OptimizerDeck& deck, const UpdateStep& step, double weight_decay)
      : decay(A(1 - step.rate * weight_decay)),
        one_minus_beta1(A(1 - deck.beta1)),
        beta2(A(deck.beta2)),
        one_minus_beta2(A(1 - deck.beta2)),
        epsilon(A(deck.epsilon)),
        step_size(A(step.rate / (1 - std::pow(deck.beta1, static_cast<double>(step.number))))),
        root_bias2(A(std::sqrt(1 - std::pow(deck.beta2, static_cast<double>(step.number))))) {}
};

}  // namespace forge
