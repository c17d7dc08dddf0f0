#pragma once

#include <cstdint>

#include "core/partials.hpp"
#include "core/view.hpp"
#include "device/parallel.hpp"

namespace forge {

// out(n) += Σ_r term(r, j) over `rows` rows, in two passes: chunks of rows into partial(norm_partial_rows(rows), n),
// then the chunks in order. Each row counts `repeat` times: r runs to rows · repeat (heads of a row).
template <class A, class Term>
void add_column_sums(Stream& stream, std::int64_t rows, std::int64_t repeat, View<A, 2> partial, View<A, 1> out,
                     Term term) {
  constexpr std::int64_t strip = 256;  // columns of one team
  const std::int64_t n = out.rows(), chunks = norm_partial_rows(rows), strips = (n + strip - 1) / strip;
  parallel_rows(stream, chunks * strips, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t chunk = task / strips, first = task % strips * strip;
    const std::int64_t width = n - first < strip ? n - first : strip;
    A* to = partial.row(chunk) + first;
    team.template column_sums<A>(
        width, rows * chunk / chunks * repeat, rows * (chunk + 1) / chunks * repeat,
        [&](std::int64_t r, std::int64_t j) { return term(r, first + j); },
        [&](std::int64_t j, A sum) { to[j] = sum; });
  });
  parallel_rows(stream, strips, [=] FORGE_LAMBDA(std::int64_t s, Team team) {
    const std::int64_t first = s * strip, width = n - first < strip ? n - first : strip;
    A* to = out.data + first;
    team.template column_sums<A>(
        width, 0, chunks, [&](std::int64_t r, std::int64_t j) { return partial.row(r)[first + j]; },
        [&](std::int64_t j, A sum) { to[j] += sum; });
  });
}

}  // namespace forge
