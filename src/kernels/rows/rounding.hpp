#pragma once

#include <cstring>
#include <type_traits>

#include "core/array.hpp"
#include "core/random.hpp"
#include "core/types.hpp"
#include "device/team.hpp"

namespace forge {

// Where elements of a run stand in their whole tensor: number i of the run is `begin` + i of the rank's piece, whose
// first element is `first` of the tensor.
struct ElementPlace {
  std::uint64_t key = 0;  // of seed and tensor
  std::int64_t first = 0, begin = 0;
  std::int64_t width = 0, gap = 0;  // columns of a row that the piece has, and has not; 0: whole rows

  FORGE_INLINE std::int64_t element(std::int64_t i) const {
    const std::int64_t held = begin + i;
    return first + held + (gap > 0 ? quotient(held, width) * gap : 0);
  }
};

// The states and weights of an update, or sums of gradients over a step's microbatches.
enum class RoundingUse : std::uint64_t { update, gradients };

// Key of a tensor's roundings.
inline std::uint64_t rounding_key(std::uint64_t seed, std::string_view tensor, RoundingUse use = RoundingUse::update) {
  return random_key(seed, Purpose::rounding, hash_of(tensor), static_cast<std::uint64_t>(use));
}

// Which of an element's draws: of the optimizer's states 0 and 1, or of the weight.
inline constexpr int weight_draw = 2;

// Stochastic rounding (Gupta et al. 2015, arXiv 1502.02551) by sixteen random bits: of the bf16 on either side of x the
// one farther from zero with a probability of (|x| − near) / (far − near), so that the mean is x. The sum of the bits
// that bf16 lacks and the random ones carries as often. A value in another type stays as it is.
template <class M, class A>
FORGE_INLINE M rounded(A x, std::uint16_t random) {
  if constexpr (!std::is_same_v<M, bf16>) {
    return x;
  } else {
    std::uint32_t u;
    memcpy(&u, &x, sizeof u);
    const bool finite = (u & 0x7f800000u) != 0x7f800000u;
    M result = M(x);  // NaN stays NaN, Inf stays Inf
    if (finite) result.bits = static_cast<std::uint16_t>((u + random) >> 16);
    return result;
  }
}

// Draws of neighbours in a tensor: eight of sixteen bits.
inline constexpr int draws_at_once = 8;
struct alignas(16) NeighbourDraws {
  std::uint16_t numbers[draws_at_once];
};

// The random numbers of element i of a run in an update, or in an addition to a sum: a function of seed, tensor, update
// and the element's place in the whole tensor, and so the same on every layout. Elements 8 n to 8 n + 7 of a tensor
// share the words of one draw.
struct Rounding {
  ElementPlace place;
  std::uint64_t key;

  Rounding(const ElementPlace& of, std::int64_t update)
      : place(of), key(mix(of.key, static_cast<std::uint64_t>(update))) {}

  FORGE_INLINE std::uint16_t operator()(std::int64_t i, int which) const {
    const std::int64_t element = place.element(i);
    const auto word = words(element, which)[static_cast<int>(element % draws_at_once / 2)];
    return static_cast<std::uint16_t>(element % 2 ? word >> 16 : word);
  }
  // Of the eight elements that `element` of the tensor is one of.
  FORGE_INLINE NeighbourDraws neighbours(std::int64_t element, int which) const {
    const Array<std::uint32_t, 4> four = words(element, which);
    NeighbourDraws draws;
    for_each_of<4>([&](int k) {
      draws.numbers[2 * k] = static_cast<std::uint16_t>(four[k]);
      draws.numbers[2 * k + 1] = static_cast<std::uint16_t>(four[k] >> 16);
    });
    return draws;
  }

 private:
  FORGE_INLINE Array<std::uint32_t, 4> words(std::int64_t element, int which) const {
    return philox(key, static_cast<std::uint64_t>(element / draws_at_once), static_cast<std::uint64_t>(which));
  }
};

}  // namespace forge
