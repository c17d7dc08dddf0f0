#pragma once

#include "core/view.hpp"
#include "device/stream.hpp"
#include "fp8/scaled_product.hpp"

namespace forge {

// Codes of matrices W(N,K) that stand one below the other in memory, `each` of which has its own groups: numbers
// rounded as by kernels/fp8/fp8_round.hpp, in one byte a number. A part begins anywhere in the matrices, at element
// `first`.

// amax(matrices, row groups, column groups) ← max(amax, largest |x| of each group among a part x), Inf where a number
// isn't finite.
template <class T>
void fp8_amax_of_part(Stream&, View<const T, 1> x, std::int64_t first, const ScaledOperand& each, View<float, 1> amax);

// codes(n) = encode(x · scale) of a part x(n), scale = fp8_scale of the group's amax.
template <class T>
void fp8_encode(Stream&, View<const T, 1> x, std::int64_t first, const ScaledOperand& each, bool exact,
                View<const float, 1> amax, View<std::uint8_t, 1> codes);

// x(n) = decode(codes) / scale of whole matrices: bit for bit fp8_round of the numbers that were encoded.
template <class T>
void fp8_decode(Stream&, View<const std::uint8_t, 1> codes, const ScaledOperand& each, bool exact,
                View<const float, 1> amax, View<T, 1> x);

}  // namespace forge
