#pragma once

#include <cstdint>
#include <vector>

#include "fixture.hpp"

// Norms of one row by their formulas.

namespace forge::reference {

enum class Kind { rms, layer };

// One row of a norm and the values for its backward.
template <class N>
struct NormRow {
  std::vector<N> y, centred;
  N mean = 0.0, rstd = 0.0;
};

template <class N>
NormRow<N> forward_row(Kind kind, const std::vector<N>& x, const std::vector<N>& w, const std::vector<N>& b,
                       double epsilon) {
  const auto n = static_cast<std::int64_t>(x.size());
  const N count = static_cast<double>(n);
  NormRow<N> row;
  if (kind == Kind::layer) row.mean = sum<N>(n, [&](std::int64_t j) { return x[j]; }) / count;
  for (const N& value : x) row.centred.push_back(kind == Kind::layer ? value - row.mean : value);
  const N squares = sum<N>(n, [&](std::int64_t j) { return row.centred[j] * row.centred[j]; });
  row.rstd = N(1.0) / sqrt(squares / count + constant<N>(epsilon));
  for (std::int64_t j = 0; j < n; ++j) {
    const N scaled = w[j] * (row.centred[j] * row.rstd);
    row.y.push_back(kind == Kind::layer ? scaled + b[j] : scaled);
  }
  return row;
}

// dx of a row, from its statistics.
template <class N>
std::vector<N> backward_row(Kind kind, const std::vector<N>& dy, const std::vector<N>& x, const std::vector<N>& w,
                            N mean, N rstd) {
  const auto n = static_cast<std::int64_t>(x.size());
  const N count = static_cast<double>(n);
  const auto centred = [&](std::int64_t j) { return kind == Kind::layer ? x[j] - mean : x[j]; };
  const auto g = [&](std::int64_t j) { return dy[j] * w[j]; };
  const N g_mean = sum<N>(n, g) / count;
  const N slope = sum<N>(n, [&](std::int64_t j) { return g(j) * centred(j); }) * rstd * rstd / count;
  std::vector<N> dx;
  for (std::int64_t j = 0; j < n; ++j)
    dx.push_back(rstd * ((kind == Kind::layer ? g(j) - g_mean : g(j)) - centred(j) * slope));
  return dx;
}

}  // namespace forge::reference
