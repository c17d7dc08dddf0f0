#pragma once

#include <bit>
#include <cmath>

#include "core/random.hpp"

namespace forge {

// Normal numbers by IEEE's sums, products, quotients and roots alone, without a branch: the same bits on every device
// and vector path, and loops over them become vectors. Whoever compiles them mustn't join products and sums.
namespace normal_detail {

// c + d z + …
FORGE_INLINE double polynomial(double /*z*/, double c) {
  return c;
}
template <class... More>
FORGE_INLINE double polynomial(double z, double c, More... more) {
  return c + z * polynomial(z, more...);
}

// ln x of a normal number x, to 1 unit of the last place: x = 2^e (1 + f) with 1 + f in [√½, √2), and ln(1 + f) =
// 2 artanh(s), s = f / (2 + f), by its series. The 52 bits of x begin at `root` here: e counts from there.
FORGE_INLINE double logarithm(double x) {
  constexpr std::uint64_t root = 0x3fe6a09e00000000u, one = 0x3ff0000000000000u, fraction = 0xfffffffffffffu;
  constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;  // e · ln2_high is exact
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) + (one - root);
  const double e = std::bit_cast<double>((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
  const double f = std::bit_cast<double>((bits & fraction) + root) - 1, h = 0.5 * f * f, s = f / (2 + f), z = s * s;
  const double series = polynomial(z * z, 2. / 3, 2. / 7, 2. / 11, 2. / 15, 2. / 19) +
                        z * polynomial(z * z, 2. / 5, 2. / 9, 2. / 13, 2. / 17, 2. / 21);
  return e * ln2_high - (h - (s * (h + z * series) + e * ln2_low) - f);
}

// sin x of |x| <= π/2 by its series; 13! and more of its factorials are too large for an integer of 32 bits.
FORGE_INLINE double sine(double x) {
  constexpr double f13 = 6227020800., f15 = f13 * 210, f17 = f15 * 272, f19 = f17 * 342, f21 = f19 * 420;
  const double z = x * x;
  const double series = polynomial(z * z, 1. / 6, 1. / 5040, 1. / 39916800, 1 / f15, 1 / f19) -
                        z * polynomial(z * z, 1. / 120, 1. / 362880, 1 / f13, 1 / f17, 1 / f21);
  return x - x * z * series;
}

}  // namespace normal_detail

// Standard normal number of an element, by Box and Muller's transform: √(−2 ln u) cos 2πv, where cos 2πv =
// sin 2π(|v − ½| − ¼), whose argument is exact but for its last factor.
FORGE_INLINE double normal(std::uint64_t key, std::uint64_t element) {
  const auto w = philox(key, element, 0);
  const double a = uniform(w[2], w[3]) - 0.5;
  return std::sqrt(-2 * normal_detail::logarithm(uniform(w[0], w[1]))) *
         normal_detail::sine(6.283185307179586476925 * ((a < 0 ? -a : a) - 0.25));
}

// Numbers of a tensor, by element.
struct NormalNumbers {
  std::uint64_t key = 0;
  double mean = 0, deviation = 1;

  FORGE_INLINE double operator()(std::int64_t element) const {
    return mean + deviation * normal(key, static_cast<std::uint64_t>(element));
  }
};

// … and those that are alike likely within a bound; or logarithms of such numbers between 0 and the bound.
struct UniformNumbers {
  std::uint64_t key = 0;
  double bound = 1;
  bool logarithms = false;

  FORGE_INLINE double operator()(std::int64_t element) const {
    const auto w = philox(key, static_cast<std::uint64_t>(element), 0);
    const double u = uniform(w[0], w[1]);
    return logarithms ? normal_detail::logarithm(bound * u) : bound * (2 * u - 1);
  }
};

}  // namespace forge
