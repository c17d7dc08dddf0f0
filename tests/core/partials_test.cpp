#include "core/partials.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

// No chunk of rows is empty, and workspace is bounded.
TEST(Partials, rows) {
  for (std::int64_t rows = 0; rows < 5000; ++rows) {
    const std::int64_t sums = norm_partial_rows(rows), backward = norm_backward_chunks(rows);
    ASSERT_LE(sums, 32);
    ASSERT_LE(backward, 256);
    for (const std::int64_t chunks : {sums, backward}) {
      ASSERT_GE(chunks, 1);
      for (std::int64_t c = 0; rows > 0 && c < chunks; ++c) ASSERT_LT(rows * c / chunks, rows * (c + 1) / chunks);
    }
  }
}

}  // namespace
}  // namespace forge
