#pragma once

#include <cstdint>

#include "device/fp8/code.hpp"
#include "device/raise.hpp"
#include "device/team.hpp"
#include "kernels/kernels.hpp"

namespace forge {

// |x| in fp32; Inf where x isn't finite. By its bits, since Inf has the largest bits of all numbers: GCC 12 loses NaN
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

// Leaves the largest magnitude of row r where somebody asked for it.
FORGE_INLINE void leave(const RowAmaxes& to, std::int64_t r, float most) {
  if (!to.raises)
    to.amax[r] = most > 0 ? most : 0;
  else if (!(to.samples && to.samples[r] < 0))
    raise(to.amax + quotient(to.first + r, to.each), most);
}

// f over the columns of row r, as Team::map. f returns the largest magnitude that it writes in a column; the largest of
// all is left in `to`, if anybody asked.
template <class F, class... P>
FORGE_INLINE void map_and_measure(Team team, std::int64_t n, const RowAmaxes& to, std::int64_t r, const F& f,
                                  const P&... rows) {
  if (!to.amax) return team.map(n, f, rows...);
  const float most = team.template max<float>(n, f, rows...);
  if (team.leads()) leave(to, r, most);
}

// Leaves the codes of the n numbers y that the team has written in row r where somebody asked for them.
template <class T>
FORGE_INLINE void leave_codes(Team team, std::int64_t n, const RowCodes& to, std::int64_t r, const T* y) {
  if (!to.codes) return;
  team.sync();
  const Fp8Format format = to.format;
  const float scale = fp8_scale(*to.amax, format, to.exact);
  std::uint8_t* const codes = to.codes + r * to.pitch;
  team.map(
      n, [=](const T& v, std::uint8_t& code) { code = code_next_to(static_cast<float>(v) * scale, format); }, y, codes);
  team.each(to.pitch - n, [=](std::int64_t j) { codes[n + j] = 0; });
}

}  // namespace forge
