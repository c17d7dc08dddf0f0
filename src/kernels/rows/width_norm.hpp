#pragma once

#include "kernels/kernels.hpp"

namespace forge {

// RMSNorm of a row's queries, all heads together, and of its keys (OLMoE, arXiv:2409.02060). x(R,n,D) has a
// tensor-parallel rank's heads of queries, then of keys; w: the weights of all their columns, (Hq D) and (Hk D). Two
// numbers of each row, of queries and of keys, are summed over the ranks between these kernels.

// sums(R,2) = Σ x²; the sums of keys are 0 without `keys`: of ranks with the same heads one counts them.
template <class T>
void width_squares(Stream&, View<const T, 3> x, std::int64_t query_heads, bool keys, View<acc_t<T>, 2> sums);
// sums(R,2) → 1 / sqrt(sums / count + epsilon), in place; `queries`, `keys`: columns of the model.
template <class T>
void width_rstd(Stream&, std::int64_t queries, std::int64_t keys, double epsilon, View<acc_t<T>, 2> sums);
// y = w ⊙ x · rstd
template <class T>
void width_norm_forward(Stream&, View<const T, 3> x, const HeadWeights<T>& w, View<const acc_t<T>, 2> rstd,
                        View<T, 3> y);
// sums(R,2) = Σ w d x, of d, the gradient of y.
template <class T>
void width_slopes(Stream&, View<const T, 3> d, View<const T, 3> x, const HeadWeights<T>& w, View<acc_t<T>, 2> sums);
// d ← rstd (w ⊙ d − x · rstd² · sums / count); d_queries(Hq D), d_keys(Hk D) += Σ_r d ⊙ x · rstd. `queries`, `keys`:
// columns of the model, each as often as ranks have a part of its gradient. `partial`: norm_backward_chunks(R) x n D.
template <class T>
void width_norm_backward(Stream&, View<T, 3> d, View<const T, 3> x, const HeadWeights<T>& w,
                         View<const acc_t<T>, 2> rstd, View<const acc_t<T>, 2> sums, std::int64_t queries,
                         std::int64_t keys, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> d_queries,
                         View<acc_t<T>, 1> d_keys);

}  // namespace forge
