#pragma once

#include <cstdint>
#include <type_traits>

#include "device/parallel.hpp"

namespace forge {

// CPU build: processors read ahead by themselves.
template <class Line>
struct RowsAhead {
  Line line;

  FORGE_INLINE auto at(std::int64_t r) const { return line(r); }
};
template <class T, int count, int packs, class Line>
FORGE_INLINE RowsAhead<Line> rows_ahead(Team, std::int64_t, std::int64_t, std::int64_t, Line line) {
  return {line};
}

template <int packs, class T>
FORGE_INLINE const T* row_beside(Team, std::int64_t, const T* data) {
  return data;
}

template <class T, class F>
void with_packs(std::int64_t, bool, const F& f) {
  f(std::integral_constant<int, 1>{});
}
template <class T, int count, int packs, int sums, class F>
void parallel_rows_ahead(Stream& stream, std::int64_t chunks, std::int64_t, F f) {
  parallel_rows(stream, chunks, f);
}

}  // namespace forge
