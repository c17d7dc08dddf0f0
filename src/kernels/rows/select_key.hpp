#pragma once

#include <cstdint>

#include "device/team.hpp"

namespace forge {

// Numbers in the opposite order of x: the largest x has the lowest.
FORGE_INLINE std::uint64_t falling_key(double x) {
  const auto bits = __builtin_bit_cast(std::uint64_t, x + 0.0), sign = std::uint64_t{1} << 63;  // -0 is 0
  return bits & sign ? bits : ~bits & ~sign;
}
FORGE_INLINE std::uint64_t falling_key(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x + 0.0f), sign = std::uint32_t{1} << 31;
  return bits & sign ? bits : ~bits & ~sign;
}

// The smallest of n keys below 2^bits such that the amounts of those that don't exceed it sum up to `wanted` at least,
// bit by bit from the highest one. `wanted` becomes the part of the sum that keys equal to it have. amount(i): of key
// i, not negative; true and false where keys are counted.
template <class Amount, class Key>
FORGE_INLINE std::uint64_t select_key(Team team, std::int64_t n, int bits, std::int64_t& wanted, const Amount& amount,
                                      const Key& key) {
  const auto up_to = [&](std::uint64_t limit) {
    return team.template sum<std::int64_t>(
        n, [=](std::int64_t i) { return key(i) <= limit ? std::int64_t{amount(i)} : std::int64_t{0}; });
  };
  std::uint64_t found = 0;
  for (int b = bits - 1; b >= 0; --b)
    if (up_to(found | ((std::uint64_t{1} << b) - 1)) < wanted) found |= std::uint64_t{1} << b;
  if (found > 0) wanted -= up_to(found - 1);
  return found;
}

}  // namespace forge
