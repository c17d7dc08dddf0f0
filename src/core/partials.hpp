#pragma once

#include <cstdint>

namespace forge {

// Rows of partial sums that a sum over R rows is split into: a function of R alone, so that the order of additions, and
// with it every bit of the result, is independent of the number of threads.
constexpr std::int64_t norm_partial_rows(std::int64_t rows) {
  return rows < 64 ? 1 : (rows < 64 * 32 ? rows / 64 : 32);
}

// Likewise for a norm's backward pass, which walks through the rows of a chunk with the sums at hand: chunks for all
// multiprocessors of a GPU.
constexpr std::int64_t norm_backward_chunks(std::int64_t rows) {
  return rows < 32 ? 1 : (rows < 16 * 256 ? rows / 16 : 256);
}

// Partial sums of a sum of squares over a flat buffer.
inline constexpr std::int64_t sum_partials = 1024;

// Partial sums of the statistics of a router over R rows, and of the order of so many assignments
// (kernels/experts/expert_kernels.hpp).
constexpr std::int64_t router_partial_rows(std::int64_t rows) {
  return (rows + 63) / 64;
}
constexpr std::int64_t moe_sort_rows(std::int64_t assignments) {
  return (assignments + 255) / 256;
}

}  // namespace forge
