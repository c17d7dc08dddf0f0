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

// The numbers that round an element in an update: sixteen bits for each of the optimizer's states (at most four), and
// for the weight.
struct RoundingBits {
  static constexpr int weight = 4;
  Array<std::uint32_t, 4> words;

  FORGE_INLINE std::uint32_t of(int which) const { return (words[which / 2] >> (16 * (which % 2))) & 0xffffu; }

  // Stochastic rounding (Gupta et al. 2015, arXiv 1502.02551): of the bf16 on either side of x the one farther from
  // zero with a probability of (|x| − near) / (far − near), so that the mean is x. The sum of the bits that bf16 lacks
  // and sixteen random ones carries as often. A value in another type stays as it is.
  template <class M, class A>
  FORGE_INLINE M rounded(A x, int which) const {
    if constexpr (!std::is_same_v<M, bf16>) {
      return x;
    } else {
      std::uint32_t u;
      memcpy(&u, &x, sizeof u);
      const std::uint32_t random = of(which);
      const bool finite = (u & 0x7f800000u) != 0x7f800000u;
      M result = M(x);  // NaN stays NaN, Inf stays Inf
      if (finite) result.bits = static_cast<std::uint16_t>((u + random) >> 16);
      return result;
    }
  }
};

// The random numbers of element i of a run in an update, or in an addition to a sum: a function of seed, tensor, update
// and the element's place in the whole tensor, and so the same on every layout.
struct Rounding {
  ElementPlace place;
  std::uint64_t key;

  Rounding(const ElementPlace& of, std::int64_t update) : place(of), key(mix(of.key, to_word(update))) {}
  FORGE_INLINE RoundingBits operator()(std::int64_t i) const {
    return {philox(key, static_cast<std::uint64_t>(place.element(i)), 0)};
  }

 private:
  static std::uint64_t to_word(std::int64_t number) { return static_cast<std::uint64_t>(number); }
};

// x of element i as it is kept in type M: rounded by number `which` of its random numbers, or x itself.
template <class M, class A>
FORGE_INLINE M kept_as(const Rounding& rounding, std::int64_t i, A x, int which) {
  if constexpr (std::is_same_v<M, A>)
    return x;
  else
    return rounding(i).template rounded<M>(x, which);
}

}  // namespace forge
