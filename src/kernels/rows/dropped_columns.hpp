#pragma once

#include "kernels/kernels.hpp"

namespace forge {

// dropout() and residual_add() of a part of wider rows, whose column 0 is column `first` of these: the part has their
// mask.

// y = dropout(x)
template <class T>
void dropout(Stream&, View<const T, 2> x, View<T, 2> y, const Dropout& how, std::int64_t first);
// out = residual + dropout(x); out may alias residual or x.
template <class T>
void residual_add(Stream&, View<const T, 2> residual, View<const T, 2> x, View<T, 2> out, const Dropout& how,
                  std::int64_t first);

}  // namespace forge
