#pragma once

#include <cstdint>

#include "core/error.hpp"
#include "device/launch.hpp"
#include "kernels/attention/attention_cuda.hpp"

// How a tensor-core kernel gets the tiles that fit its heads and the device.

namespace forge::attention_mma {

using namespace attention_detail;

constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

FORGE_HD constexpr unsigned tiles_of(std::int64_t rows, int tile) {
  return static_cast<unsigned>((rows + tile - 1) / tile);
}

// Numbers of a call that the host works out once.
struct Factors {
  float exponent;  // of q kᵀ, in powers of two
  float kept;      // of a probability that dropout keeps
  int group;       // heads of q that read one head of k and v

  template <class T>
  explicit Factors(const Problem<T>& p)
      : exponent(static_cast<float>(p.shape.scale) * log2_e),
        kept(static_cast<float>(1 / (1 - p.shape.dropout))),
        group(static_cast<int>(p.n.group())) {}
};

// Peaks are found before the scores are scaled, and rows are counted in 30 bits.
template <class T>
void check_scale(const Problem<T>& p) {
  require(p.shape.scale > 0, "attention: tensor cores need a positive scale");
  require(p.shape.soft_cap == 0, "attention: tensor cores have no soft cap");
  require(p.n.B * p.n.Tq < (1 << 30) && p.n.B * p.n.Tk < (1 << 30), "attention: 2^30 rows or more");
}

// f(S{}) for the first of the shapes, which stand in order of their heads and then from the largest tiles on, that
// serves the heads and fits into a block's largest part of the device's shared memory.
template <class S, class... More, class F>
void with_largest(const AttentionSizes& n, const F& f) {
  if (n.D <= S::head && n.Dv <= S::value_head && S::bytes <= most_shared_bytes()) return f(S{});
  if constexpr (sizeof...(More) > 0)
    with_largest<More...>(n, f);
  else
    throw LibraryFailed("attention: tensor cores need " + std::to_string(S::bytes) +
                        " bytes of shared memory a block, " + "the device has " + std::to_string(most_shared_bytes()));
}

}  // namespace forge::attention_mma
