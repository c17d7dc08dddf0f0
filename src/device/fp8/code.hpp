#pragma once

#include <cstdint>

#include "config/fp8_format.hpp"

namespace forge {

// The code of the format's number next to x, as round_to_fp8() has it: from sm_89 on by one instruction.
FORGE_INLINE std::uint8_t code_next_to(float x, Fp8Format format) {
#if defined(__CUDA_ARCH__) && !defined(FORGE_VGPU)
#if __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if (format == Fp8Format::e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return static_cast<std::uint8_t>(pair);
#endif
#endif
  return fp8_code(round_to_fp8(x, format), format);
}

}  // namespace forge
