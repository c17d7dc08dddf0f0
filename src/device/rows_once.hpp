#pragma once

#include <cstdint>

#include "core/view.hpp"
#include "device/parallel.hpp"

// Long rows of fp32 numbers, such as logits, that are gone over twice: for their largest number and the sum of
// exponentials, then for results of 16 bits, number by number.
//
//   if (read_once(x, d)) parallel_rows_once(stream, rows, n, line, [=] FORGE_LAMBDA(int64_t row, Team team, const
//   RowOnce& x) { … });
//                        line(row) is where it begins, or null if it isn't read. On a GPU memory is read about once
//   x.exp_sum(team, exp) team.exp_sum of the row
//   x.map(team, f, d)    behind it, and once: f(x_j, d_j) for every column, where d_j is only written
//
// Other rows have the same calls in PlainRow, in which their numbers are added in another order.

namespace forge {

struct PlainRow {
  const float* data;
  std::int64_t n;

  template <class Exp>
  FORGE_INLINE ExpSum<float> exp_sum(Team team, const Exp& exp) const {
    return team.exp_sum(n, exp, data);
  }
  template <class F, class T>
  FORGE_INLINE void map(Team team, const F& f, T* d) const {
    team.map(n, f, data, d);
  }
};

// Shorter ones are still in the cache of a GPU, or nearly so, when a block comes back to them.
inline constexpr std::int64_t shortest_once = 16384;

// d: the results, or none; its rows begin at multiples of 8 bytes.
template <class T>
bool read_once(const View<const float, 2>& x, const View<T, 2>& d) {
  const bool whole = reinterpret_cast<std::uintptr_t>(d.data) % 8 == 0 && d.pitch % 4 == 0;
  return x.columns() >= shortest_once && x.columns() % 4 == 0 && aligned_rows(x) && (d.empty() || whole);
}

}  // namespace forge

#if !defined(FORGE_CUDA)
namespace forge {

using RowOnce = PlainRow;

template <class Line, class F>
void parallel_rows_once(Stream& stream, std::int64_t rows, std::int64_t n, Line line, F f) {
  parallel_rows(stream, rows, [=](std::int64_t row, Team team) { f(row, team, RowOnce{line(row), n}); });
}

}  // namespace forge
#elif defined(__CUDACC__)
#include "device/rows_once_cuda.hpp"
#endif
