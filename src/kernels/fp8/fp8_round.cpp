#include "kernels/fp8/fp8_round.hpp"

#include <cmath>

#include "config/fp8_format.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/parallel.hpp"
#include "kernels/rows/largest.hpp"

namespace forge {

namespace {

constexpr auto infinite = static_cast<float>(INFINITY);

// Rounds one number with its group's amax.
template <class T>
FORGE_INLINE T rounded(const T& x, float amax, Fp8Format format, bool exact) {
  using A = acc_t<T>;
  if (!(amax < infinite)) return T(static_cast<A>(NAN));
  const A scale = A(fp8_scale(amax, format, exact));
  return T(round_to_fp8(A(x) * scale, format) / scale);
}

// Of row r of matrices of so many lines.
FORGE_INLINE std::int64_t row_group(const ScaleLines& rows, std::int64_t lines, std::int64_t r) {
  const std::int64_t matrix = quotient(r, lines);
  return matrix * rows.count + rows.group_of(r - matrix * lines);
}

// Rows that have no part in scales.
struct Filler {
  const std::int64_t* samples;

  explicit Filler(View<const std::int64_t, 1> of) : samples(of.data) {}
  FORGE_INLINE bool has(std::int64_t r) const { return samples && samples[r] < 0; }
};

// amax(matrices, row groups, column groups); `alone`: each row is a group.
template <class T>
void amax_of_rows(Stream& stream, View<const T, 2> x, std::int64_t lines, ScaleLines rows, ScaleLines columns,
                  bool alone, Filler filler, float* amax) {
  const std::int64_t groups = columns.count;
  parallel_rows(stream, x.rows(), groups, row_width<T>(x.columns() < columns.each ? x.columns() : columns.each),
                [=] FORGE_LAMBDA(std::int64_t r, std::int64_t g, Team team) {
                  const ScaleLines::Range here = columns.lines_of(g);
                  const float most = team.template max<float>(
                      here.end - here.begin, [](const T& v) { return magnitude(v); }, x.row(r) + here.begin);
                  if (!team.leads()) return;
                  if (alone)
                    amax[r * groups + g] = most > 0 ? most : 0;
                  else if (!filler.has(r))
                    raise(amax + row_group(rows, lines, r) * groups + g, most);
                });
}

// amax(matrices, row groups, N): a group for each column.
template <class T>
void amax_of_columns(Stream& stream, std::int64_t matrices, View<const T, 2> x, ScaleLines rows, Filler filler,
                     float* amax) {
  const std::int64_t n = x.columns(), lines = x.rows() / matrices;
  parallel_for(stream, matrices * rows.count * n, [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t row_group = quotient(i, n), c = i - row_group * n;
    const std::int64_t matrix = quotient(row_group, rows.count);
    const ScaleLines::Range here = rows.lines_of(row_group - matrix * rows.count);
    float most = 0;
    for (std::int64_t r = here.begin; r < here.end; ++r) {
      if (filler.has(r)) continue;
      const float a = magnitude(x.row(matrix * lines + r)[c]);
      most = a > most ? a : most;
    }
    amax[i] = most;
  });
}

}  // namespace

template <class T>
void take_amax(Stream& stream, View<const T, 2> x, const ScaledOperand& operand, View<float, 1> amax,
               std::int64_t matrices, View<const std::int64_t, 1> samples, bool raises) {
  const std::int64_t lines = x.rows() / matrices;
  require(samples.empty() || (matrices == 1 && samples.rows() == lines), "take_amax: shapes differ");
  const ScaleLines &rows = operand.by_row, &columns = operand.by_column;
  const bool alone = rows.alone(lines);
  if (!alone && columns.alone(x.columns()))
    return amax_of_columns<T>(stream, matrices, x, rows, Filler(samples), amax.data);
  if (!alone && !raises) fill_zero(stream, amax.data, to_size(amax.size()) * sizeof(float));
  amax_of_rows<T>(stream, x, lines, rows, columns, alone, Filler(samples), amax.data);
}

void fp8_amax_of_ranks(Stream& stream, int ranks, View<const float, 1> gathered, View<float, 1> amax) {
  const std::int64_t n = amax.rows();
  parallel_for(stream, n, [=] FORGE_LAMBDA(std::int64_t i) {
    float most = 0;
    for (std::int64_t r = 0; r < ranks; ++r) most = gathered[r * n + i] > most ? gathered[r * n + i] : most;
    amax[i] = most;
  });
}

template <class T>
void fp8_round(Stream& stream, View<const T, 2> x, const ScaledOperand& operand, bool exact, View<const float, 1> amax,
               View<T, 2> y, std::int64_t matrices, View<float, 1> seen, View<const std::int64_t, 1> samples) {
  const ScaleLines rows = operand.by_row, columns = operand.by_column;
  const Fp8Format format = operand.format;
  const std::int64_t n = x.columns(), groups = columns.count, lines = x.rows() / matrices;
  require(seen.empty() || !columns.alone(n), "the largest magnitude is found where a row has scales of its own");
  if (columns.alone(n)) {
    parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      team.map(
          n, [=](const T& from, const float& a, T& to) { to = rounded(from, a, format, exact); }, x.row(r),
          amax.data + row_group(rows, lines, r) * n, y.row(r));
    });
    return;
  }
  const Filler filler(samples);
  parallel_rows(stream, x.rows(), groups, row_width<T>(n < columns.each ? n : columns.each),
                [=] FORGE_LAMBDA(std::int64_t r, std::int64_t g, Team team) {
                  const ScaleLines::Range here = columns.lines_of(g);
                  if (!seen.empty() && !filler.has(r)) {
                    const float most = team.template max<float>(
                        here.end - here.begin, [](const T& v) { return magnitude(v); }, x.row(r) + here.begin);
                    if (team.leads()) raise(seen.data, most);
                  }
                  const float a = amax[row_group(rows, lines, r) * groups + g];
                  team.map(
                      here.end - here.begin, [=](const T& from, T& to) { to = rounded(from, a, format, exact); },
                      x.row(r) + here.begin, y.row(r) + here.begin);
                });
}

FORGE_INSTANTIATE_FUNCTION(take_amax);
FORGE_INSTANTIATE_FUNCTION(fp8_round);

}  // namespace forge
