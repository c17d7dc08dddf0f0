#pragma once

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "kernels/rows/rounding.hpp"

namespace forge {

// Sums that are kept in the compute type T, of numbers x of its accumulation type. `rounding`: of element i of the
// views (kernels/rows/rounding.hpp); where the types agree nothing is rounded.

// sums = R(sums + x)
template <class T>
void add_rounded(Stream& stream, const Rounding& rounding, View<const acc_t<T>, 1> x, View<T, 1> sums);
// sums = R(x)
template <class T>
void set_rounded(Stream& stream, const Rounding& rounding, View<const acc_t<T>, 1> x, View<T, 1> sums);
// x += sums
template <class T>
void add_sums(Stream& stream, View<const T, 1> sums, View<acc_t<T>, 1> x);

}  // namespace forge
