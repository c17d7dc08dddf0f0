#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace forge {

// most ← max(most, x), of numbers that aren't negative, whose bits have their order; from any number of teams at once.
FORGE_INLINE void raise(float* most, float x) {
  auto* const bits_of_most = reinterpret_cast<std::int32_t*>(most);
  const auto bits = __builtin_bit_cast(std::int32_t, x);
#if defined(__CUDA_ARCH__)
  if (*static_cast<const volatile std::int32_t*>(bits_of_most) < bits) atomicMax(bits_of_most, bits);
#else
  std::int32_t seen = __atomic_load_n(bits_of_most, __ATOMIC_RELAXED);
  while (seen < bits &&
         !__atomic_compare_exchange_n(bits_of_most, &seen, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

}  // namespace forge
