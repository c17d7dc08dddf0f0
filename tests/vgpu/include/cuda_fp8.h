#pragma once

// The two 8-bit formats (OCP 8-bit Floating Point Specification, 1.0), as CUDA's header names their conversions.

#include "vgpu/kernel.h"

enum __nv_fp8_interpretation_t { __NV_E4M3 = 0, __NV_E5M2 = 1 };
enum __nv_saturation_t { __NV_NOSAT = 0, __NV_SATFINITE = 1 };
using __nv_fp8_storage_t = unsigned char;

namespace vgpu {

// E4M3: bias 7, largest 448, no infinity, one NaN. E5M2: bias 15, largest 57344, as IEEE's.
inline float fp8_value(std::uint8_t x, __nv_fp8_interpretation_t kind) {
  const int fraction_bits = kind == __NV_E4M3 ? 3 : 2, bias = kind == __NV_E4M3 ? 7 : 15;
  const int exponent = (x & 0x7f) >> fraction_bits, fraction = x & ((1 << fraction_bits) - 1);
  const float sign = x & 0x80 ? -1.0f : 1.0f;
  if (kind == __NV_E4M3 && (x & 0x7f) == 0x7f) return __builtin_nanf("");
  if (kind == __NV_E5M2 && exponent == 31) return fraction == 0 ? sign * __builtin_inff() : __builtin_nanf("");
  const float unit = ldexpf(1.0f, 1 - bias - fraction_bits);
  if (exponent == 0) return sign * static_cast<float>(fraction) * unit;
  return sign * ldexpf(static_cast<float>(fraction + (1 << fraction_bits)) * unit, exponent - 1);
}

// To nearest, ties to the even code.
inline std::uint8_t to_fp8(float x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
  const std::uint8_t nan = kind == __NV_E4M3 ? 0x7f : 0x7e, largest = kind == __NV_E4M3 ? 0x7e : 0x7b;
  if (x != x) return 0x7f;
  const std::uint8_t sign = signbit(x) ? 0x80 : 0;
  const float a = fabsf(x);
  std::uint8_t code = 0;  // the largest code that isn't above a
  for (int bit = 6; bit >= 0; --bit) {
    const auto next = static_cast<std::uint8_t>(code | 1 << bit);
    if (next <= largest && fp8_value(next, kind) <= a) code = next;
  }
  const float below = fp8_value(code, kind);
  // Behind the largest stands the number that one more bit of the exponent would give.
  const float above = code < largest ? fp8_value(static_cast<std::uint8_t>(code + 1), kind)
                                     : below + (below - fp8_value(static_cast<std::uint8_t>(code - 1), kind));
  const float middle = below + (above - below) / 2;
  const bool up = a > middle || (a == middle && code % 2 == 1);
  if (code == largest && (up || a == __builtin_inff())) {
    if (saturation == __NV_SATFINITE) return sign | largest;
    return kind == __NV_E4M3 ? sign | nan : sign | 0x7c;
  }
  return static_cast<std::uint8_t>(sign | (code + (up ? 1 : 0)));
}

}  // namespace vgpu

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return vgpu::to_fp8(x, saturate, kind);
}
