#pragma once

#include <cstdint>

#include "core/error.hpp"
#include "core/partials.hpp"
#include "core/view.hpp"
#include "device/parallel.hpp"

namespace forge {

namespace column_sums_detail {

// Columns of one team. On a GPU a narrow matrix is cut finer, so that there are blocks for all multiprocessors.
constexpr std::int64_t strip_of(std::int64_t columns) {
  return columns < narrow_columns ? narrow_strip : 256;
}

template <class A>
struct Sum {
  FORGE_INLINE A operator()(NoScale, const A& x) const { return x; }
};

}  // namespace column_sums_detail

// Chunks of rows that a norm's backward pass walks through.
struct RowChunks {
  std::int64_t rows, count;

  FORGE_INLINE std::int64_t begin(std::int64_t chunk) const { return quotient(rows * chunk, count); }
};
inline RowChunks norm_backward_rows(std::int64_t rows) {
  require(rows < std::int64_t{1} << 23, "a norm's backward pass over more than 2^23 rows");
  return {rows, norm_backward_chunks(rows)};
}

// out(n) += the rows of partial(chunks, n), in order; nothing where nobody asks for the sums.
template <class A>
void add_partial_sums(Stream& stream, View<A, 2> partial, View<A, 1> out) {
  if (out.empty()) return;
  const std::int64_t n = out.rows(), chunks = partial.rows(), strip = narrow_strip, strips = (n + strip - 1) / strip;
  parallel_rows(stream, strips, [=] FORGE_LAMBDA(std::int64_t s, Team team) {
    const std::int64_t first = s * strip, width = n - first < strip ? n - first : strip;
    team.template column_sums<A>(
        width, 0, chunks,
        column_lines<A>(aligned_rows(partial), [=](std::int64_t r) { return column_line(partial.row(r) + first); }),
        column_sums_detail::Sum<A>{}, [=](const A& sum, A& to) { to += sum; }, in_place(out.data + first));
  });
}

// out(n) += Σ_r term(line(r, 0), j) over `rows` rows, in two passes: chunks of rows into
// partial(norm_partial_rows(rows), n), then the chunks in order. line(r, first) has the numbers T of row r from column
// `first` on; aligned: they begin at multiples of 16 bytes, in a row's first column. Each row counts `repeat` times: r
// runs to rows · repeat (heads of a row), less than 2^31.
template <class A, class T, class Line, class Term>
void add_column_sums(Stream& stream, std::int64_t rows, std::int64_t repeat, bool aligned, View<A, 2> partial,
                     View<A, 1> out, Line line, Term term) {
  require(rows < std::int64_t{1} << 26, "column sums of more than 2^26 rows");
  const std::int64_t n = out.rows(), strip = column_sums_detail::strip_of(n);
  const std::int64_t chunks = norm_partial_rows(rows), strips = (n + strip - 1) / strip;
  parallel_rows(stream, chunks * strips, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t chunk = quotient(task, strips), first = (task - chunk * strips) * strip;
    const std::int64_t width = n - first < strip ? n - first : strip;
    team.template column_sums<A>(
        width, quotient(rows * chunk, chunks) * repeat, quotient(rows * (chunk + 1), chunks) * repeat,
        column_lines<T>(aligned, [=](std::int64_t r) { return line(r, first); }), term,
        [=](const A& sum, A& to) { to = sum; }, partial.row(chunk) + first);
  });
  add_partial_sums(stream, partial.slice(0, chunks), out);
}

}  // namespace forge
