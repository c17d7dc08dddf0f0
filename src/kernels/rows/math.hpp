#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/macros.hpp"

// Elementary functions for kernels, in the compute precision.
//   float on the host: polynomials without branches or calls, so that loops over them vectorise;
//     at most 2 ulp, and right for zeros, subnormal results, infinities and NaN.
//     On the GPU: CUDA's own, which are as good.
//   double: the standard library. It verifies; it needn't be fast.

namespace forge::math {

FORGE_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// 2^k for k in [-126, 127].
FORGE_INLINE float power_of_two(std::int32_t k) {
  const std::uint32_t bits = static_cast<std::uint32_t>(k + 127) << 23;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// e^x = 2^k e^r with |r| <= ln(2)/2; a degree-6 polynomial for e^r (error of the fit: 1e-8).
FORGE_INLINE float exp(float x) {
  if (FORGE_DEVICE_CODE) return ::expf(x);
  float c = x < -104.0f ? -104.0f : x;  // below: 0; above 89: Inf. NaN passes both comparisons.
  c = c > 89.0f ? 89.0f : c;
  const float shift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, which stands in the low bits
  const float shifted = c * 1.44269504f + shift;
  const float n = shifted - shift;
  const std::int32_t k = static_cast<std::int32_t>(bits_of(shifted) - bits_of(shift));
  const float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts; the first product is exact
  float p = 0.00139412183f;
  p = p * r + 0.00836323507f;
  p = p * r + 0.0416663741f;
  p = p * r + 0.166665766f;
  p = p * r + 0.500000003f;
  const float e = (p * r * r + r) + 1.0f;
  const std::int32_t half = k >> 1;  // two factors: 2^k alone may be subnormal or beyond the largest number
  return e * power_of_two(half) * power_of_two(k - half);
}
FORGE_INLINE double exp(double x) {
  return std::exp(x);
}

// 1 / (1 + e^-x)
template <class A>
FORGE_INLINE A sigmoid(A x) {
  return A(1) / (A(1) + exp(-x));
}

FORGE_INLINE float tanh(float x) {
  if (FORGE_DEVICE_CODE) return ::tanhf(x);
  const float a = ::fabsf(x), z = x * x;
  float p = -0.00575264021f;
  p = p * z + 0.0206957561f;
  p = p * z - 0.0537627416f;
  p = p * z + 0.133318136f;
  p = p * z - 0.333333012f;
  const float near_zero = x + x * z * p;
  const float far = ::copysignf(1.0f - 2.0f / (exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near_zero : far;
}
FORGE_INLINE double tanh(double x) {
  return std::tanh(x);
}

// erf x = x + x P(x²) below 0.95, 1 − e^Q(|x|) above: Q is the logarithm of erfc.
FORGE_INLINE float erf(float x) {
  if (FORGE_DEVICE_CODE) return ::erff(x);
  const float z = x * x;
  float p = 0.0000821542665f;
  p = p * z - 0.000810596591f;
  p = p * z + 0.00519779725f;
  p = p * z - 0.0268581043f;
  p = p * z + 0.112836725f;
  p = p * z - 0.376126323f;
  p = p * z + 0.12837917f;
  const float a = ::fabsf(x), c = a > 4.0f ? 4.0f : a;  // erf 4 rounds to 1; NaN passes
  float q = 0.000197181506f;
  q = q * c - 0.00305560552f;
  q = q * c + 0.0222770794f;
  q = q * c - 0.104037345f;
  q = q * c - 0.637059769f;
  q = q * c - 1.12774955f;
  q = q * c - 0.000177496736f;
  const float far = ::copysignf(1.0f - exp(q), x);
  return a < 0.95f ? x + x * p : far;
}
FORGE_INLINE double erf(double x) {
  return std::erf(x);
}

// For the statistics of a row: one call a row, so the standard library's.
template <class A>
FORGE_INLINE A log(A x) {
  return std::log(x);
}
template <class A>
FORGE_INLINE A sqrt(A x) {
  return std::sqrt(x);
}

}  // namespace forge::math
