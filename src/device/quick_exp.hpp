#pragma once

#include <cmath>

#include "core/macros.hpp"

namespace forge {

// e^x of x <= 0 on a GPU, by its instruction for 2^y: one of 2 for the 8 that expf takes. Below 2^-126 it is 0. Its
// error is 2 units of the last place and, as y = x log2 e is rounded, 1.5 |x| 2^-24 of the value: for sums in which e^0
// stands, and for results that are rounded to 16 bits. NaN stays NaN.
FORGE_INLINE float quick_exp(float x) {
  const float y = x * 1.44269504f;
#if defined(__CUDA_ARCH__) && !defined(FORGE_VGPU)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));
  return power;
#else
  return y < -126.0f ? 0.0f : ::exp2f(y);
#endif
}

}  // namespace forge
