#pragma once

#include <cmath>

#include "device/team.hpp"

namespace forge {

// |x| in fp32; Inf where x isn't finite.
template <class T>
FORGE_INLINE float magnitude(const T& x) {
  constexpr auto infinite = static_cast<float>(INFINITY);
  const auto value = static_cast<float>(x);
  const float a = value < 0 ? -value : value;
  return a < infinite ? a : infinite;  // NaN, too
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
