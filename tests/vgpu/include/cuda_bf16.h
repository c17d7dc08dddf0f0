#pragma once

// Brain floats as CUDA's header names them, for kernels; forge has a type of its own.

#include "vgpu/kernel.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 a) {
  return vgpu::get_float(std::uint32_t{a.bits} << 16);
}
// To nearest, ties to even; every NaN is the one with all bits of the fraction.
inline __nv_bfloat16 __float2bfloat16_rn(float a) {
  std::uint32_t u;
  std::memcpy(&u, &a, sizeof u);
  if (a != a) return {0x7fff};
  return {static_cast<std::uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float a) {
  return __float2bfloat16_rn(a);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
