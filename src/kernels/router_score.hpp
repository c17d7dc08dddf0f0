#pragma once

#include "config/router_score.hpp"
#include "kernels/math.hpp"

namespace forge {

// s = f(x) of the scores that don't sum to one: sigmoid(x).
template <class A>
FORGE_INLINE A score_of_logit(ScoreKind, A x) {
  return math::sigmoid(x);
}

// ds/dx, as a function of s: s (1 − s).
template <class A>
FORGE_INLINE A slope_of_score(ScoreKind, A s) {
  return s * (A(1) - s);
}

}  // namespace forge
