#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "config/deck.hpp"

namespace forge::test {

// Initial values by the formula of docs/notes/design.md, "Randomness is keyed", written from there and sharing nothing
// with core/random.hpp.
class InitialFormula {
 public:
  InitialFormula(std::uint64_t seed, const ModelDeck& model) : seed_(seed), model_(model) {}

  // Of element i, row-major, of the parameter of this name. cos 2πv = sin 2π(|v − ½| − ¼), which has no error where it
  // vanishes.
  long double value(const std::string& parameter, std::uint64_t i) const {
    const double std = deviation(parameter);
    if (std == 0) return is_norm_weight(parameter) ? 1 : 0;
    const auto w = philox(key(parameter), i);
    const long double radius = std::sqrt(-2 * std::log(unit(w[0], w[1])));
    return std * radius * std::sin(2 * std::acos(-1.0L) * (std::abs(unit(w[2], w[3]) - 0.5L) - 0.25L));
  }
  // How far from it a number in double may be.
  static long double tolerance(long double value) { return 1e-15L * std::abs(value); }

  // Standard deviation of a parameter's values; 0: all are equal.
  double deviation(const std::string& parameter) const {
    if (is_norm_weight(parameter) || ends_with(parameter, "_bias")) return 0;
    bool residual = false;
    for (const char* end : {"attention.out", ".down"}) residual = residual || ends_with(parameter, end);
    const auto layers = static_cast<double>(model_.layers);
    return model_.initial_std / (residual && model_.residual_scaling ? std::sqrt(2 * layers) : 1);
  }

 private:
  static bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
  }
  static bool is_norm_weight(const std::string& parameter) {
    for (const char* end : {"norm", "norm1", "norm2", "norm1_behind", "norm2_behind"})
      if (ends_with(parameter, end)) return true;
    return false;
  }

  // mix(k, w): the finaliser of SplitMix64 on k + (w + 1) · 0x9e3779b97f4a7c15.
  static std::uint64_t mix(std::uint64_t k, std::uint64_t w) {
    std::uint64_t z = k + (w + 1) * 11400714819323198485ull;
    z = (z ^ z >> 30) * 13787848793156543929ull;
    z = (z ^ z >> 27) * 10723151780598845931ull;
    return z ^ z >> 31;
  }
  // FNV-1a.
  static std::uint64_t name_hash(const std::string& name) {
    std::uint64_t h = 14695981039346656037ull;
    for (const unsigned char c : name) {
      h ^= c;
      h *= 1099511628211ull;
    }
    return h;
  }
  // key = mix(mix(mix(mix(0, seed), 0), FNV-1a(name)), 0); the first 0 says: initial values.
  std::uint64_t key(const std::string& parameter) const {
    std::uint64_t k = 0;
    for (const std::uint64_t word : {seed_, std::uint64_t{0}, name_hash(parameter), std::uint64_t{0}}) k = mix(k, word);
    return k;
  }
  // Philox-4x32-10 of the counter (i mod 2³², i / 2³², 0, 0).
  static std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t i) {
    std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0};
    std::array<std::uint32_t, 2> k{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = 3528531795ull * c[0], b = 3449720151ull * c[2];
      c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
      k[0] += 2654435769u;
      k[1] += 3144134277u;
    }
    return c;
  }
  // u(h, l) = (⌊(2³² h + l) / 2¹²⌋ + ½) / 2⁵².
  static long double unit(std::uint32_t h, std::uint32_t l) {
    const std::uint64_t whole = (static_cast<std::uint64_t>(h) << 20) + (l >> 12);
    return std::ldexp(static_cast<long double>(whole) + 0.5L, -52);
  }

  std::uint64_t seed_;
  ModelDeck model_;
};

}  // namespace forge::test
