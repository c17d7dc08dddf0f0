#pragma once

#include <cmath>

#include "config/fp8_format.hpp"

namespace forge {

// The number of a code: the inverse of fp8_code, which makes none of Inf.
FORGE_INLINE float number_of(std::uint8_t code, Fp8Format format) {
  const Fp8Layout f = layout_of(format);
  const int exponent = (code & 0x7f) >> f.mantissa_bits, mantissa = code & ((1 << f.mantissa_bits) - 1);
  const int steps = exponent == 0 ? mantissa : mantissa + (1 << f.mantissa_bits);
  const int least = f.least_exponent() - f.mantissa_bits;
  const float size = float(steps) * fp8_detail::power_of_two<float>(exponent == 0 ? least : least + exponent - 1);
  if ((code & 0x7f) >= (format == Fp8Format::e4m3 ? 0x7f : 0x7d)) return NAN;
  return code & 0x80 ? -size : size;
}

}  // namespace forge
