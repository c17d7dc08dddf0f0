#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/types.hpp"

// Vectors of one width, for the bodies of attention_tiles.cpp. They are compiled for a processor by the function that
// they are inlined into, which is why all of them are always_inline and take vectors by reference.

namespace forge::attention_simd {

#define FORGE_LANES inline __attribute__((always_inline))

// A vector of `bytes` bytes of A. A product keeps `accumulators` of them in registers.
template <class A, int bytes, int accumulators_>
struct Lanes {
  static constexpr int width = bytes / static_cast<int>(sizeof(A));
  static constexpr int accumulators = accumulators_;
  static constexpr int panel = accumulators >= 16 ? 4 : 2;
  using Scalar = A;
  using Int = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  typedef A Vec __attribute__((vector_size(bytes), aligned(sizeof(A)), may_alias));
  typedef Int IntVec __attribute__((vector_size(bytes), aligned(sizeof(A)), may_alias));
  typedef std::make_unsigned_t<Int> Bits __attribute__((vector_size(bytes), aligned(sizeof(A)), may_alias));
  typedef std::uint32_t Words __attribute__((vector_size(4 * width), aligned(4), may_alias));
  typedef std::uint16_t Halves __attribute__((vector_size(2 * width), aligned(2), may_alias));
};

template <class L>
FORGE_LANES void load(typename L::Vec& x, const typename L::Scalar* p) {
  x = *reinterpret_cast<const typename L::Vec*>(p);
}
template <class L>
FORGE_LANES void load(typename L::Vec& x, const bf16* p) {
  const typename L::Halves halves = *reinterpret_cast<const typename L::Halves*>(p);
  x = reinterpret_cast<typename L::Vec>(__builtin_convertvector(halves, typename L::Words) << 16);
}

template <class L>
FORGE_LANES void store(const typename L::Vec& x, typename L::Scalar* p) {
  *reinterpret_cast<typename L::Vec*>(p) = x;
}
// Rounds as bf16(float) does: to nearest, ties to even; NaN stays NaN.
template <class L>
FORGE_LANES void store(const typename L::Vec& x, bf16* p) {
  const auto bits = reinterpret_cast<typename L::Words>(x);
  const typename L::Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const typename L::Words quiet = (bits >> 16) | 0x40u;
  const typename L::Words value = (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
  *reinterpret_cast<typename L::Halves*>(p) = __builtin_convertvector(value, typename L::Halves);
}

template <class L>
FORGE_LANES void fill(typename L::Vec& x, typename L::Scalar value) {
  x = typename L::Vec{} + value;
}

// x ← 2^x, for x < 127. float: 2^n by the exponent bits, 2^r for |r| <= 1/2 by a minimax polynomial with a relative
// error of 2.6e-9; below −126.5 it is 0, exactly. NaN stays NaN.
template <class L>
FORGE_LANES void exp2(typename L::Vec& x) {
  if constexpr (std::is_same_v<typename L::Scalar, double>) {
    for (int i = 0; i < L::width; ++i) x[i] = std::exp2(x[i]);
  } else {
    typename L::Vec floor, shift;
    fill<L>(floor, -127.0f);
    fill<L>(shift, 12582912.0f + 127.0f);  // 1.5 · 2^23: y + shift is rounded to an integer, in the lowest bits n + 127
    const typename L::Vec y = floor > x ? floor : x;  // this way round a NaN stays
    const typename L::Vec t = y + shift;
    const typename L::Vec r = y - (t - shift);
    typename L::Vec p = r * 1.5594677015e-04f + 1.3406643847e-03f;
    p = p * r + 9.6176929761e-03f;
    p = p * r + 5.5503105512e-02f;
    p = p * r + 2.4022652783e-01f;
    p = p * r + 6.9314721497e-01f;
    p = p * r + 1.0f;
    const auto power = reinterpret_cast<typename L::Words>(t) << 23;
    x = p * reinterpret_cast<typename L::Vec>(power);
  }
}

template <class L, int half, std::size_t... c>
FORGE_LANES void exchange(typename L::Vec& a, typename L::Vec& b, std::index_sequence<c...>) {
  constexpr int w = L::width;
  const typename L::Vec x = a, y = b;
  a = __builtin_shufflevector(x, y, ((c & half) ? w + static_cast<int>(c) - half : static_cast<int>(c))...);
  b = __builtin_shufflevector(x, y, ((c & half) ? w + static_cast<int>(c) : static_cast<int>(c) + half)...);
}

// Transposes the square block x(width, width): swaps the off-diagonal halves of 2 x 2, 4 x 4, … blocks.
template <class L, int half = 1>
FORGE_LANES void transpose(typename L::Vec (&x)[L::width]) {
  if constexpr (half < L::width) {
#pragma GCC unroll 16
    for (int i = 0; i < L::width; ++i)
      if ((i & half) == 0) exchange<L, half>(x[i], x[i + half], std::make_index_sequence<L::width>());
    transpose<L, 2 * half>(x);
  }
}

}  // namespace forge::attention_simd
