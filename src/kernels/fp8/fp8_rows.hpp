#pragma once

#include "core/view.hpp"
#include "device/stream.hpp"
#include "fp8/scaled_product.hpp"

namespace forge {

// Rows that travel as codes: C bytes, a code each, then the scale of each group of columns, 4 bytes of fp32. `rows` is
// the operand that a product makes of them, whose rows have scales of their own; scales are powers of two.
//
// A decoded row is fp8_round of the row, and rounding it again changes no number: the group's largest code is at least
// half of the format's largest number L. If it is more, amax and so the scale s are the same. If it is L / 2, the new
// scale is 2 s, and twice a code of at most L / 2 is a code.

// codes(n, row bytes): row i is row order[i] / chosen of x(·, C), zeros where order[i] is negative; without an order,
// row i.
template <class T>
void rows_to_codes(Stream&, View<const T, 2> x, const ScaledOperand& rows, View<const std::int32_t, 1> order,
                   std::int64_t chosen, View<std::uint8_t, 2> codes);

// x(n, C) = decode(codes) / scale, of rows that are chosen in the same way.
template <class T>
void codes_to_rows(Stream&, View<const std::uint8_t, 2> codes, const ScaledOperand& rows,
                   View<const std::int32_t, 1> order, std::int64_t chosen, View<T, 2> x);

}  // namespace forge
