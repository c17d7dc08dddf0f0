#include "core/partials.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

// No chunk of rows is empty, and workspace is bounded.
TEST(Partials, rows) {
  for (std::int64_t rows = 0; rows < 5000; ++rows) {
    const std::int64_t chunks = norm_partial_rows(rows);
    ASSERT_GE(chunks, 1);
    ASSERT_LE(chunks, 32);
    for (std::int64_t c = 0; rows > 0 && c < chunks; ++c) ASSERT_LT(rows * c / chunks, rows * (c + 1) / chunks);
  }
}

}  // namespace
}  // namespace forge
