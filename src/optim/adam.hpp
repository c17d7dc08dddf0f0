#pragma once

#include <cmath>

#include "config/deck.hpp"
#include "optim/update.hpp"

namespace forge {

// The constants of a step of Adam and its relatives in the storage type, each rounded once from double, as PyTorch
// does.
template <class S>
struct AdamConstants {
  S decay;  // 1 − rate·weight_decay, or 1
  S one_minus_beta1, beta2, one_minus_beta2, epsilon;
  S step_size;   // rate / (1 − β1^t)
  S root_bias2;  // √(1 − β2^t)

  AdamConstants(const OptimizerDeck& deck, const UpdateStep& step, bool decays)
      : decay(S(1 - step.rate * (decays ? deck.weight_decay : 0))),
        one_minus_beta1(S(1 - deck.beta1)),
        beta2(S(deck.beta2)),
        one_minus_beta2(S(1 - deck.beta2)),
        epsilon(S(deck.epsilon)),
        step_size(S(step.rate / (1 - std::pow(deck.beta1, static_cast<double>(step.number))))),
        root_bias2(S(std::sqrt(1 - std::pow(deck.beta2, static_cast<double>(step.number))))) {}
};

}  // namespace forge
