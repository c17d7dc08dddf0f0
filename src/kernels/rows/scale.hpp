#pragma once

#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// y(R,C) = factor · y. NaN and Inf don't change with a factor other than 0.
template <class T>
void scale_matrix(Stream&, double factor, View<T, 2> y);

}  // namespace forge
