#pragma once

#include <cstdint>

#include "device/team.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

// Common parts of RMSNorm of rows and of heads, in kernels.

template <class A>
FORGE_INLINE A rstd_of(A squares, std::int64_t n, A epsilon) {
  return A(1) / math::sqrt(squares / A(n) + epsilon);
}

// rstd of one vector of n values.
template <class A, class Row>
FORGE_INLINE A inverse_rms(Team team, std::int64_t n, A epsilon, const Row& x) {
  const A squares = team.template sum<A>(
      n, [=](const auto& x_j) { return A(x_j) * A(x_j); }, x);
  return rstd_of(squares, n, epsilon);
}

// A term of g · x, g = w ⊙ dy.
template <class A>
struct SlopeTerm {
  template <class T>
  FORGE_INLINE A operator()(const T& dy_j, const T& w_j, const T& x_j) const {
    return A(dy_j) * A(w_j) * A(x_j);
  }
};

// With x̂ = x · rstd, g = w ⊙ dy and slope = rstd · mean(g ⊙ x̂):  dx = rstd · (g − x · slope); sums += dy ⊙ x̂, if
// there are any.
template <class A, class T, class Row, class Weight, class... S>
FORGE_INLINE void normalise_backward_by(Team team, std::int64_t n, A rstd, A slope, const Row& dy, const Row& x,
                                        const Weight& w, T* dx, const S&... sums) {
  team.map(
      n,
      [=](const T& dy_j, const T& w_j, const T& x_j, T& dx_j, auto&... sum) {
        ((sum += A(dy_j) * (A(x_j) * rstd)), ...);
        dx_j = T(rstd * (A(dy_j) * A(w_j) - A(x_j) * slope));
      },
      dy, w, x, dx, sums...);
}

// With dot = g · x, and + residual, if `adds`.
template <class A, class T, class Row, class Weight, class Extra, class... S>
FORGE_INLINE void normalise_backward(Team team, std::int64_t n, A rstd, A dot, const Row& dy, const Row& x,
                                     const Weight& w, bool adds, const Extra& residual, T* dx, const S&... sums) {
  const A slope = dot * rstd * rstd / A(n);
  if (adds)
    team.map(
        n,
        [=](const T& extra, const T& dy_j, const T& w_j, const T& x_j, T& dx_j, auto&... sum) {
          ((sum += A(dy_j) * (A(x_j) * rstd)), ...);
          dx_j = T(A(extra) + rstd * (A(dy_j) * A(w_j) - A(x_j) * slope));
        },
        residual, dy, w, x, dx, sums...);
  else
    normalise_backward_by(team, n, rstd, slope, dy, x, w, dx, sums...);
}

}  // namespace forge
