#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "library_types.h"

namespace vgpu {

inline float from_bf16(std::uint16_t bits) {
  const std::uint32_t u = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &u, sizeof value);
  return value;
}
// To nearest, ties to even; NaN stays NaN.
inline std::uint16_t to_bf16(float value) {
  std::uint32_t u;
  std::memcpy(&u, &value, sizeof u);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(u >> 16 | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// E4M3: four bits of exponent, bias 7, no Inf, one NaN of each sign. E5M2: five, bias 15, as IEEE's.
inline float from_fp8(std::uint8_t code, cudaDataType_t type) {
  const bool e4m3 = type == CUDA_R_8F_E4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const float sign = code & 0x80 ? -1.0f : 1.0f;
  if (e4m3 ? (code & 0x7f) == 0x7f : exponent == 31 && mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
  if (!e4m3 && exponent == 31) return sign * std::numeric_limits<float>::infinity();
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa_bits);
}

// Element i of an array of the type; the type is one of CUDA_R_64F, 32F, 16BF, 8F_E4M3, 8F_E5M2.
template <class A>
A load(cudaDataType_t type, const void* data, std::size_t i) {
  if (type == CUDA_R_64F) return static_cast<A>(static_cast<const double*>(data)[i]);
  if (type == CUDA_R_32F) return static_cast<A>(static_cast<const float*>(data)[i]);
  if (type == CUDA_R_16BF) return static_cast<A>(from_bf16(static_cast<const std::uint16_t*>(data)[i]));
  return static_cast<A>(from_fp8(static_cast<const std::uint8_t*>(data)[i], type));
}
template <class A>
void store(cudaDataType_t type, void* data, std::size_t i, A value) {
  if (type == CUDA_R_64F)
    static_cast<double*>(data)[i] = static_cast<double>(value);
  else if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = static_cast<float>(value);
  else
    static_cast<std::uint16_t*>(data)[i] = to_bf16(static_cast<float>(value));
}

}  // namespace vgpu
