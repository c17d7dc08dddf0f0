#pragma once

#include <cstdint>

#include "device/raise.hpp"
#include "device/team.hpp"

namespace forge {

// |x| in fp32; Inf where x isn't finite. By its bits, of which Inf has the largest that are a number: GCC 12 loses NaN
// in some loops of vectors whose comparisons say the same.
template <class T>
FORGE_INLINE float magnitude(const T& x) {
  constexpr std::uint32_t sign = 0x80000000u, infinite = 0x7f800000u;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(x)) & ~sign;
  return __builtin_bit_cast(float, bits < infinite ? bits : infinite);
}

FORGE_INLINE float larger(float a, float b) {
  return a > b ? a : b;
}

// Where the largest magnitude of row r goes; null: nobody asks for it.
FORGE_INLINE float* of_row(const View<float, 1>& amax, std::int64_t r) {
  return amax.empty() ? nullptr : amax.data + r;
}

// f over the columns of rows, as Team::map. f returns the largest magnitude of what it writes in a column, and the
// largest of all goes to `amax`, unless that is null.
template <class F, class... P>
FORGE_INLINE void map_and_measure(Team team, std::int64_t n, float* amax, const F& f, const P&... rows) {
  if (!amax) return team.map(n, f, rows...);
  const float most = team.template max<float>(n, f, rows...);
  if (team.leads()) *amax = most > 0 ? most : 0;
}

}  // namespace forge
