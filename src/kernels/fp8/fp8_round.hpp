#pragma once

#include "core/view.hpp"
#include "device/stream.hpp"
#include "fp8/scaled_product.hpp"

namespace forge {

// Operands of products in FP8, as numbers of the compute type T: the value of a number's code. Products of these are
// FP8's products, whatever computes them: with scales that are powers of two such a number is exact in bf16; exact
// scales cost a rounding to it. Neither kernel depends on the number of threads.

// amax(matrices, row groups, column groups) = largest |x| of each group among x(R,N), or among each of so many matrices
// in x(matrices R, N); 0 where nothing of it is here, Inf where a number isn't finite. samples(R) of one matrix: rows
// of −1 are filler, which groups of several rows leave out; empty: there is none. `raises`: groups of several rows and
// columns raise amax instead, which somebody has cleared.
template <class T>
void take_amax(Stream&, View<const T, 2> x, const ScaledOperand& operand, View<float, 1> amax,
               std::int64_t matrices = 1, View<const std::int64_t, 1> samples = {}, bool raises = false);

// amax(n) = the largest of each number in gathered(ranks, n).
void fp8_amax_of_ranks(Stream&, int ranks, View<const float, 1> gathered, View<float, 1> amax);

// y(R,N) = decode(encode(x · scale)) / scale, scale = fp8_scale of the group's amax; NaN in groups whose amax is Inf.
// Matrices as of take_amax(). seen(1) ← max(seen, largest |x|), without rows of filler; empty: not asked for; must be
// empty where each column has a scale.
template <class T>
void fp8_round(Stream&, View<const T, 2> x, const ScaledOperand& operand, bool exact, View<const float, 1> amax,
               View<T, 2> y, std::int64_t matrices = 1, View<float, 1> seen = {},
               View<const std::int64_t, 1> samples = {});

}  // namespace forge
