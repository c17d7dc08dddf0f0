#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Element i of an array of the type; the type is one of CUDA_R_64F, 32F, 16BF.
template <class A>
A load(cudaDataType_t type, const void* data, std::size_t i) {
  if (type == CUDA_R_64F) return static_cast<A>(static_cast<const double*>(data)[i]);
  if (type == CUDA_R_32F) return static_cast<A>(static_cast<const float*>(data)[i]);
  return static_cast<A>(from_bf16(static_cast<const std::uint16_t*>(data)[i]));
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
