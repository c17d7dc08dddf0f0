#pragma once

#include <cstdint>

namespace forge {

// Rows of partial sums that a sum over R rows is split into: a function of R alone, so that the order of additions, and
// with it every bit of the result, is independent of the number of threads.
constexpr std::int64_t norm_partial_rows(std::int64_t rows) {
  return rows < 64 ? 1 : (rows < 64 * 32 ? rows / 64 : 32);
}

// Partial sums of a sum of squares over a flat buffer.
inline constexpr std::int64_t sum_partials = 1024;

}  // namespace forge
