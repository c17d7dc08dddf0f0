#pragma once

#include "device/team.hpp"
#include "fp8/scaled_product.hpp"

namespace forge {

// Parts of matrices that stand one below the other in memory, for the kernels over them (kernels/fp8/fp8_encode.hpp).

// The rows of matrices that some elements meet, and which of their columns.
struct PartRows {
  std::int64_t first, count, columns, row, rows;

  PartRows(std::int64_t begin, std::int64_t n, std::int64_t K)
      : first(begin), count(n), columns(K), row(begin / K), rows(n > 0 ? (begin + n - 1) / K - row + 1 : 0) {}
  // The part's element in column 0 of the r-th of these rows, perhaps before its first.
  FORGE_INLINE std::int64_t base(std::int64_t r) const { return (row + r) * columns - first; }
  // Those of the columns `all` of row r that are here.
  FORGE_INLINE ScaleLines::Range inside(std::int64_t r, const ScaleLines::Range& all) const {
    const std::int64_t at = base(r), least = -at, most = count - at;
    const std::int64_t begin = all.begin > least ? all.begin : least, end = all.end < most ? all.end : most;
    return {begin, end > begin ? end : begin};
  }
};

// Where the amaxes of a row begin.
FORGE_INLINE std::int64_t amaxes_of_row(const ScaleLines& rows, std::int64_t lines, std::int64_t groups,
                                        std::int64_t r) {
  const std::int64_t matrix = quotient(r, lines);
  return (matrix * rows.count + rows.group_of(r - matrix * lines)) * groups;
}

}  // namespace forge
