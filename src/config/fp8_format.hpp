#pragma once

#include <cstdint>
#include <cstring>

#include "core/macros.hpp"

namespace forge {

// The two 8-bit floating-point formats of the Open Compute Project ("OCP 8-bit Floating Point Specification (OFP8)",
// revision 1.0, 2023): sign, exponent, mantissa.
//   e4m3: 1 + 4 + 3 bits, bias 7, no Inf, NaN = S.1111.111; largest 448, smallest 2^-9
//   e5m2: 1 + 5 + 2 bits, bias 15, Inf and NaN as in IEEE 754; largest 57,344, smallest 2^-16
enum class Fp8Format : std::uint8_t { e4m3, e5m2 };

struct Fp8Layout {
  int mantissa_bits, bias;
  float largest;

  FORGE_INLINE int least_exponent() const { return 1 - bias; }  // of normal numbers
};
FORGE_INLINE constexpr Fp8Layout layout_of(Fp8Format format) {
  return format == Fp8Format::e4m3 ? Fp8Layout{3, 7, 448.f} : Fp8Layout{2, 15, 57344.f};
}

namespace fp8_detail {

template <class T>
struct Bits;
template <>
struct Bits<float> {
  using type = std::uint32_t;
  static constexpr int mantissa = 23, bias = 127;
};
template <>
struct Bits<double> {
  using type = std::uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
};

template <class T>
FORGE_INLINE typename Bits<T>::type bits_of(T value) {
  typename Bits<T>::type u;
  memcpy(&u, &value, sizeof u);
  return u;
}
template <class T>
FORGE_INLINE T from_bits(typename Bits<T>::type u) {
  T value;
  memcpy(&value, &u, sizeof value);
  return value;
}
// 2^exponent, of a normal number.
template <class T>
FORGE_INLINE T power_of_two(int exponent) {
  using B = Bits<T>;
  return from_bits<T>(static_cast<typename B::type>(exponent + B::bias) << B::mantissa);
}

}  // namespace fp8_detail

// The number of the format next to x (float or double), ties to even; beyond the largest one, and for Inf, the largest
// with x's sign (OFP8's saturating mode). NaN stays NaN.
template <class T>
FORGE_INLINE T round_to_fp8(T x, Fp8Format format) {
  using B = fp8_detail::Bits<T>;
  using U = typename B::type;
  const Fp8Layout f = layout_of(format);
  const U u = fp8_detail::bits_of(x), sign = u & (U(1) << (sizeof(T) * 8 - 1)), magnitude = u ^ sign;
  const T a = fp8_detail::from_bits<T>(magnitude);
  // Normal numbers: to a multiple of the last mantissa bit kept; a carry goes into the exponent.
  const int shift = B::mantissa - f.mantissa_bits;
  const U rounded = (magnitude + (U(1) << (shift - 1)) - 1 + ((magnitude >> shift) & 1)) >> shift << shift;
  // Below the least exponent all are multiples of one step: so are the numbers near `magic`.
  const T magic = fp8_detail::power_of_two<T>(B::mantissa + f.least_exponent() - f.mantissa_bits);
  const T normal = fp8_detail::from_bits<T>(rounded), small = (a + magic) - magic;
  const T value = a < fp8_detail::power_of_two<T>(f.least_exponent()) ? small : normal;
  const T most = T(f.largest), inside = value > most ? most : value;
  const T result = fp8_detail::from_bits<T>(fp8_detail::bits_of(inside) | sign);
  return x != x ? x : result;
}

// The code of a number that the format has, and of NaN.
FORGE_INLINE std::uint8_t fp8_code(float value, Fp8Format format) {
  const Fp8Layout f = layout_of(format);
  const std::uint32_t u = fp8_detail::bits_of(value), sign = u >> 31 << 7, magnitude = u & 0x7fffffffu;
  if (value != value) return static_cast<std::uint8_t>(sign | 0x7f);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < f.least_exponent()) {  // a count of steps
    const float steps =
        fp8_detail::from_bits<float>(magnitude) * fp8_detail::power_of_two<float>(f.mantissa_bits - f.least_exponent());
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(steps));
  }
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) >> (23 - f.mantissa_bits);
  return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(exponent + f.bias) << f.mantissa_bits | mantissa);
}

// The factor of a tensor, a row or a block with the largest magnitude `amax`, so that it fits into the format: the
// largest power of two with amax · scale <= largest, or largest / amax (`exact`); 1 for amax 0. Scales stay within
// 2^±126, so that they and their inverses are normal numbers; of an amax that isn't normal, 1. `amax` is finite.
FORGE_INLINE float fp8_scale(float amax, Fp8Format format, bool exact) {
  const float largest = layout_of(format).largest, most = fp8_detail::power_of_two<float>(126);
  if (amax < fp8_detail::power_of_two<float>(-126)) return 1;
  if (exact) {
    const float scale = largest / amax;
    return scale > most ? most : scale;
  }
  const std::uint32_t u = fp8_detail::bits_of(amax), l = fp8_detail::bits_of(largest);
  int exponent = static_cast<int>(l >> 23) - static_cast<int>(u >> 23);
  if ((u & 0x7fffffu) > (l & 0x7fffffu)) --exponent;
  exponent = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
  return fp8_detail::power_of_two<float>(exponent);
}

}  // namespace forge
