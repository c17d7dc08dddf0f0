#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "core/view.hpp"

namespace forge {

// The workers that share one row of parallel_rows: the vector lanes of one thread on the CPU; on CUDA a block of
// team_threads threads, or the lanes of a warp that a short row fills. All of them see each result; between two calls
// every worker sees the memory that the others wrote, but for map.
//   team.each(n, f)      f(j) for every column
//   team.map(n, f, rows…)
//                        f(v…) for every column; v is the number of each row at the column: const T& of a const T* or
//                        of a result of row(), T& of a T*, which is only written, and of in_place(T*). Rows may be
//                        the same memory. No worker waits for others, as each reads and writes its own columns only
//   team.row(n, p)       the row at p, for several calls: on CUDA it is read once, as far as registers hold it.
//                        team.row<1>(n, p): one piece of 16 bytes a worker, for short rows; team.row<1, true>(n, p):
//                        this row and all that stand in a loop with it begin and end at multiples of 16 bytes
//   team.beside<T, true>(n, p)
//                        numbers of another type at p, to stand beside such short rows of T: cosines
//   team.made(n, f, p, rows…)
//                        the row of f(v…), written to p, as row() would read it
//   team.computed(n, f, p, rows…)
//                        the row of f(v…) of rows that row<1, true> has read; on CUDA in registers, not at p
//   team.sums<A, T, packs>(n, p), team.store(n, sums)
//                        zeros of type A for the columns of rows T: map takes them beside such rows, for f to add to,
//                        row after row; then they are stored at p. On CUDA those of so many pieces of 16 bytes a
//                        worker (device/rows_ahead.hpp) stand in registers
//   team.sums_of_parts<A, T, one_piece>(n, p, f)
//                        f(part, i, parts, sums): the team is cut into parts, each for short rows of n numbers T, of
//                        which the i-th adds to sums of its own (as of team.sums, of one piece); all parts' sums, in
//                        order, go to p. one_piece: a row fits a warp, 16 bytes a worker
//   team.sum<A>(n, f), team.sum<A>(n, f, rows…)
//                        sum of f(j), or f(v…), in type A
//   team.two_sums<A>(n, f, g, rows…)
//                        the sums of f(v…) and g(v…): on CUDA in one loop, behind which the workers wait for each other
//                        once
//   const A part = team.part_of_sum<A>(n, f, rows…); team.add_parts<one_warp>(parts)
//                        the same in two steps, of an Array of sums at a time, which then wait for each other's lanes
//                        once: this worker's part of each, then, in its place, the sum. All teams of a warp come to
//                        add_parts (parallel_whole_warps), which is no barrier. one_warp: so many workers at most
//   team.sync_parts()    a barrier to which all teams of a warp come
//   team.max<A>(n, f), team.max<A>(n, f, rows…)
//                        the largest, or lowest when n = 0
//   team.exp_sum(n, exp, x)
//                        the largest of x and the sum of exp(x − largest), where all are −Inf of exp(x); NaN where one
//                        number is NaN or +Inf. On CUDA x is read once
//   team.column_sums<A>(n, begin, end, lines, term, store, rows…)
//                        store(sum, v…) for every column j < n, with the sum of term(scale, x, y) over the rows r of
//                        [begin, end); lines(r) has x, y and scale (column_lines)
//   team.count_keys(n, counts, key, store)
//                        with e = key(i), for every i < n where e >= 0, in order: store(i, counts[e]), ++counts[e]
//   team.scan<A>(n, value, store)
//                        store(i, sum of value(i') over i' < i); returns the sum of all. value(i) may stand where
//                        store(i) writes
//   team.leads()         true in exactly one worker: for writing a scalar
// On CUDA all but map, row, made, sums, store, part_of_sum and leads are barriers: every worker of a team must come to
// every call. Rows are shorter than 2^31.
inline constexpr int team_threads = 256;

// f(0), f(1), … f(count − 1), written out, so that arrays which f indexes stand in registers.
template <int count, class F>
FORGE_INLINE void for_each_of(const F& f) {
  if constexpr (count > 1) for_each_of<count - 1>(f);
  f(count - 1);
}

template <class A>
struct ExpSum {
  A largest, sum;
};

// a / b of numbers below 2^32: GPUs divide numbers of 64 bits by a loop.
FORGE_INLINE std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (FORGE_DEVICE_CODE) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

// A row of column sums: numbers x and, with `two`, y, and the term's own value of the row.
template <class T, bool second, class S>
struct ColumnLine {
  static constexpr bool two = second;
  const T *x, *y;
  S scale;

  FORGE_INLINE bool there() const { return x != nullptr; }  // a row that isn't adds nothing
};
struct NoScale {};
template <class T>
FORGE_INLINE ColumnLine<T, false, NoScale> column_line(const T* x) {
  return {x, nullptr, {}};
}
template <class T, class S>
FORGE_INLINE ColumnLine<T, false, S> column_line(const T* x, S scale) {
  return {x, nullptr, scale};
}
template <class T, class S>
FORGE_INLINE ColumnLine<T, true, S> column_line(const T* x, const T* y, S scale) {
  return {x, y, scale};
}

// All of them: line(r) is a ColumnLine of T. aligned: each row begins at a multiple of 16 bytes (aligned_rows).
template <class T, class F>
struct ColumnLines {
  using Value = T;
  bool aligned;
  F line;

  FORGE_INLINE auto operator()(std::int64_t r) const { return line(r); }
};
template <class T, class F>
FORGE_INLINE ColumnLines<T, F> column_lines(bool aligned, F line) {
  return {aligned, line};
}

}  // namespace forge

#if !defined(FORGE_CUDA)
#include "device/team_host.hpp"
#elif defined(__CUDACC__)
#include "device/team_cuda.hpp"
#endif

namespace forge {

// Whether packs of 16 bytes begin at each row of a view.
template <class T, int N>
FORGE_INLINE bool aligned_rows(const View<T, N>& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
         (N == 1 || x.pitch * static_cast<int>(sizeof(T)) % 16 == 0);
}
template <class First, class... Others>
FORGE_INLINE bool aligned_rows(const First& x, const Others&... others) {
  return aligned_rows(x) && (aligned_rows(others) && ...);
}

}  // namespace forge
