#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "core/array.hpp"
#include "core/macros.hpp"

namespace forge {

// Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
// A draw is a pure function of key and counter, so that it is the same on every layout and needs no state.
// Its words are in the lower halves of 64 bits and its rounds stand one behind the other, so that loops over draws
// become vectors.
FORGE_INLINE Array<std::uint32_t, 4> philox(Array<std::uint32_t, 4> counter, std::uint64_t key) {
  constexpr std::uint64_t low = 0xFFFFFFFFu;
  Array<std::uint64_t, 4> c{{counter[0], counter[1], counter[2], counter[3]}};
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  const auto round = [&] {
    const std::uint64_t p0 = 0xD2511F53u * c[0], p1 = 0xCD9E8D57u * c[2];
    c = {{(p1 >> 32) ^ c[1] ^ k0, p1 & low, (p0 >> 32) ^ c[3] ^ k1, p0 & low}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  };
  round(), round(), round(), round(), round(), round(), round(), round(), round(), round();
  return {{static_cast<std::uint32_t>(c[0]), static_cast<std::uint32_t>(c[1]), static_cast<std::uint32_t>(c[2]),
           static_cast<std::uint32_t>(c[3])}};
}

// The four words of draw (a, b): 64-bit counters such as sample and position, or element and 0.
FORGE_INLINE Array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t a, std::uint64_t b) {
  return philox({{static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(b),
                  static_cast<std::uint32_t>(b >> 32)}},
                key);
}

// Uniform in (0, 1), from 52 bits of two words, at the middles of 2^52 intervals: never 0, so that its logarithm is
// finite, and never 1, which 53 bits would round to.
FORGE_INLINE double uniform(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = ((static_cast<std::uint64_t>(high) << 32) | low) >> 12;
  return std::bit_cast<double>(bits | 0x3FF0000000000000u) - (1 - 0x1p-53);  // exact
}

// Mixes a word into a key (SplitMix64's finaliser).
FORGE_INLINE std::uint64_t mix(std::uint64_t key, std::uint64_t word) {
  std::uint64_t z = key + 0x9E3779B97F4A7C15ull * (word + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// FNV-1a of a name, for keys made of names.
constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// The purpose of a draw; part of every key, so that no two uses share numbers.
enum class Purpose : std::uint64_t { initial_values, sample_order, dropout, jitter, rounding, sampling };

inline std::uint64_t random_key(std::uint64_t seed, Purpose purpose, std::uint64_t a = 0, std::uint64_t b = 0) {
  return mix(mix(mix(mix(0, seed), static_cast<std::uint64_t>(purpose)), a), b);
}

}  // namespace forge
