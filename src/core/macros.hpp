#pragma once

// Differences between the host compiler and nvcc. No other header outside device/ tests for a compiler.

#if defined(__CUDACC__)
#define FORGE_HD __host__ __device__
#define FORGE_INLINE inline __attribute__((always_inline)) __host__ __device__
#else
#define FORGE_HD
#define FORGE_INLINE inline __attribute__((always_inline))
#endif

// A lambda that parallel_for (device/parallel.hpp) may run on the device: [=] FORGE_LAMBDA(int64_t i) { … }.
#define FORGE_LAMBDA FORGE_HD

// 1 where nvcc generates code for the GPU, else 0: for `if`, so that no other header needs an #if.
#if defined(__CUDA_ARCH__)
#define FORGE_DEVICE_CODE 1
#else
#define FORGE_DEVICE_CODE 0
#endif

// bits = value rounded to bf16, or word = that in fp32, by one instruction of a GPU, which sm_80 and later have;
// elsewhere bits = rounded.
#if defined(__CUDA_ARCH__) && !defined(FORGE_VGPU)
#define FORGE_ROUND_TO_BF16(bits, value, rounded) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value))
// The conversion of a pair, with the number in the upper half: nothing is left to be widened.
#define FORGE_NEAREST_BF16(word, value, rounded) \
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(value), "f"(0.0f))
// word = bits in its upper half: one instruction, also of the upper half of a register, of which a shift makes two or
// three.
#define FORGE_WIDEN_BF16(word, bits) asm("mov.b32 %0, {0, %1};" : "=r"(word) : "h"(bits))
#else
#define FORGE_WIDEN_BF16(word, bits) word = static_cast<std::uint32_t>(bits) << 16
#define FORGE_ROUND_TO_BF16(bits, value, rounded) bits = rounded
#define FORGE_NEAREST_BF16(word, value, rounded) word = rounded
#endif
