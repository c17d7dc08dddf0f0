#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace forge {

// ⌈factor · assignments / parts⌉, at least 1: `factor` times the share of each of so many parts, where assignments are
// spread evenly.
FORGE_INLINE std::int64_t balanced_rows(double factor, std::int64_t assignments, std::int64_t parts) {
  // A little less than the product, so that rounding of the factor doesn't add a row; a factor has no upper limit.
  const double rows = factor * static_cast<double>(assignments) / static_cast<double>(parts) * (1 - 1e-12);
  if (!(rows > 1)) return 1;
  if (rows > 0x1p62) return std::int64_t{1} << 62;
  const auto whole = static_cast<std::int64_t>(rows);
  return whole + (static_cast<double>(whole) < rows ? 1 : 0);
}

}  // namespace forge
