#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8/codes.hpp"

// The loss of sums of products of 8-bit codes in tensor cores.

namespace forge {

// Tensor cores of sm_89 and sm_90 keep 13 bits behind the first one of the largest number that an instruction adds
// (DeepSeek-V3, arXiv:2412.19437, 3.5.2); the emulated cuBLASLt rounds sums to fp32.
#if defined(FORGE_VGPU)
inline constexpr double sum_step = 0x1p-24;
#else
inline constexpr double sum_step = 0x1p-13;
#endif

// A product of two numbers, and 2^e of their codes' exponents' sum over both scales: in the units of the products.
struct Term {
  double product, power;
};

// The loss of sums of products by instructions that add 32 of them to a sum. All are cut to multiples of one step,
// which the largest power of the terms and the sum sets; then the sum is cut to its own. The part cut from a number is
// less than a step, and not more than the number.
struct CutSum {
  double total = 0, magnitude = 0, lost = 0;

  // A run of the depth in an order that nobody promises, in instructions of at least 32 whose sums may stay in tensor
  // cores up to its end: no sum is beyond the sum of all magnitudes, and cutting leaves it there.
  void add(const std::vector<Term>& terms) {
    double largest = 0;
    for (const Term& term : terms) largest += std::abs(term.product);
    for (const Term& term : terms) largest = std::max(largest, term.product == 0 ? 0 : term.power);
    for (const Term& term : terms) lost += cut(term, largest), total += term.product;
    lost += 2 * sum_step * largest * static_cast<double>((terms.size() + 31) / 32);
  }

 private:
  double cut(const Term& term, double largest) {
    magnitude += std::abs(term.product);
    return std::min(std::abs(term.product), sum_step * largest);
  }
};

// The products of a line of each operand, given by number k of the depth, run by run of one group.
template <class Products>
CutSum sum_of(const Fp8Slots& slots, const Products& product) {
  CutSum sum;
  std::vector<Term> terms;
  for (std::int32_t s = 0; s < slots.count(); ++s) {
    const Fp8Slots::Lines here = slots.lines_of(s);
    for (int64_t k = here.begin; k < here.end; ++k) terms.push_back(product(k));
    if (s + 1 < slots.count() && slots.group_of(s + 1) == here.group) continue;
    sum.add(terms);
    terms.clear();
  }
  return sum;
}

}  // namespace forge
