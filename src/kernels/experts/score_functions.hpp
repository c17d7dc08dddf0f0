#pragma once

#include "config/router_score.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

// s = f(x) of the scores that don't sum to one: sigmoid(x). Each kind must be named here, or the compiler warns.
template <class A>
FORGE_INLINE A score_of_logit(ScoreKind kind, A x) {
  switch (kind) {
    case ScoreKind::softmax:
    case ScoreKind::softmax_after:
      break;
    case ScoreKind::sigmoid:
      return math::sigmoid(x);
  }
  return x;
}

// ds/dx, as a function of s: s (1 − s).
template <class A>
FORGE_INLINE A slope_of_score(ScoreKind kind, A s) {
  switch (kind) {
    case ScoreKind::softmax:
    case ScoreKind::softmax_after:
      break;
    case ScoreKind::sigmoid:
      return s * (A(1) - s);
  }
  return A(1);
}

}  // namespace forge
