#pragma once

#include <cmath>

#include "core/fp8.hpp"

namespace forge {

// 1 / scale of a group, by which a sum of products of its codes is multiplied; NaN where its amax is Inf.
FORGE_INLINE float fp8_factor(float amax, Fp8Format format, bool exact) {
  return amax < static_cast<float>(INFINITY) ? 1 / fp8_scale(amax, format, exact) : static_cast<float>(NAN);
}

}  // namespace forge
