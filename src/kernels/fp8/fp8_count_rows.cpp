#include "kernels/fp8/fp8_count_rows.hpp"

#include "config/fp8_format.hpp"
#include "core/partials.hpp"
#include "core/types.hpp"
#include "device/parallel.hpp"
#include "kernels/fp8/fp8_part.hpp"

namespace forge {

namespace {

constexpr std::int64_t strips = sum_partials / 2;  // of rows, each with two partial sums

// The format's largest number, and as much above it as roundings to fp32 can bring a group's own largest one there: of
// its amax, of an exact scale, and of their product. What is cut is far beyond it.
template <class A>
FORGE_INLINE A most_of(Fp8Format format) {
  return A(layout_of(format).largest) * (A(1) + A(0x1p-20));
}

// Whether a scaled number is beyond the format's largest, or not finite; whether one other than 0 becomes 0.
template <class A>
FORGE_INLINE double is_beyond(A scaled, Fp8Format format) {
  const A magnitude = scaled < 0 ? -scaled : scaled;
  return magnitude <= most_of<A>(format) ? 0.0 : 1.0;
}
template <class A>
FORGE_INLINE double is_lost(A number, A scaled, Fp8Format format) {
  return number != 0 && round_to_fp8(scaled, format) == 0 ? 1.0 : 0.0;
}

// counts(3) += times · (numbers, both sums of the strips).
void add_strips(Stream& stream, double numbers, double times, View<double, 1> partials, View<double, 1> counts) {
  parallel_for(stream, 3, [=] FORGE_LAMBDA(std::int64_t i) {
    double sum = i == 0 ? numbers : 0;
    if (i > 0)
      for (std::int64_t strip = 0; strip < strips; ++strip) sum += partials[(i - 1) * strips + strip];
    counts[i] += times * sum;
  });
}

}  // namespace

template <class T>
void fp8_count(Stream& stream, View<const T, 2> x, std::int64_t rows, std::int64_t columns,
               const ScaledOperand& operand, bool exact, View<const float, 1> amax, View<double, 1> partials,
               View<double, 1> counts, View<const std::int64_t, 1> samples) {
  using A = acc_t<T>;
  const ScaleLines by_row = operand.by_row, by_column = operand.by_column;
  const Fp8Format format = operand.format;
  parallel_rows(stream, strips, row_width<T>(columns), [=] FORGE_LAMBDA(std::int64_t strip, Team team) {
    double beyond = 0, lost = 0;
    for (std::int64_t r = strip; r < rows; r += strips) {
      if (!samples.empty() && samples[r] < 0) continue;
      const T* row = x.row(r);
      const float* scales = amax.data + by_row.group_of(r) * by_column.count;
      const auto scaled = [=](std::int64_t j) {
        return A(row[j]) * A(fp8_scale(scales[by_column.group_of(j)], format, exact));
      };
      beyond += team.template sum<double>(columns, [=](std::int64_t j) { return is_beyond<A>(scaled(j), format); });
      lost +=
          team.template sum<double>(columns, [=](std::int64_t j) { return is_lost<A>(A(row[j]), scaled(j), format); });
    }
    if (team.leads()) {
      partials[strip] = beyond;
      partials[strips + strip] = lost;
    }
  });
  add_strips(stream, samples.empty() ? double(rows) * double(columns) : 0, 1, partials, counts);
  if (samples.empty()) return;
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const double of_documents = team.template sum<double>(rows, [=](std::int64_t r) { return samples[r] < 0 ? 0 : 1; });
    if (team.leads()) counts[0] += of_documents * double(columns);
  });
}

template <class T>
void fp8_count_of_part(Stream& stream, View<const T, 1> x, std::int64_t first, const ScaledOperand& each,
                       std::int64_t lines, std::int64_t times, bool exact, View<const float, 1> amax,
                       View<double, 1> partials, View<double, 1> counts) {
  using A = acc_t<T>;
  const PartRows part(first, x.rows(), each.columns);
  const ScaleLines by_row = each.by_row, by_column = each.by_column;
  const Fp8Format format = each.format;
  const std::int64_t rows = each.rows, columns = each.columns;
  std::int64_t numbers = 0;
  for (std::int64_t r = 0; r < part.rows; ++r) {
    const ScaleLines::Range here = part.inside(r, {0, columns});
    if ((part.row + r) % rows < lines) numbers += here.end - here.begin;
  }
  parallel_rows(stream, strips, row_width<T>(columns), [=] FORGE_LAMBDA(std::int64_t strip, Team team) {
    double beyond = 0, lost = 0;
    for (std::int64_t r = strip; r < part.rows; r += strips) {
      const std::int64_t line = part.row + r;
      if (line - quotient(line, rows) * rows >= lines) continue;
      const ScaleLines::Range here = part.inside(r, {0, columns});
      const std::int64_t begin = here.begin, count = here.end - begin;
      const T* const row = x.data + (part.base(r) + begin);
      const float* const scales = amax.data + amaxes_of_row(by_row, rows, by_column.count, line);
      const auto scaled = [=](std::int64_t j) {
        return A(row[j]) * A(fp8_scale(scales[by_column.group_of(begin + j)], format, exact));
      };
      beyond += team.template sum<double>(count, [=](std::int64_t j) { return is_beyond<A>(scaled(j), format); });
      lost +=
          team.template sum<double>(count, [=](std::int64_t j) { return is_lost<A>(A(row[j]), scaled(j), format); });
    }
    if (team.leads()) {
      partials[strip] = beyond;
      partials[strips + strip] = lost;
    }
  });
  add_strips(stream, double(numbers), double(times), partials, counts);
}

FORGE_INSTANTIATE_FUNCTION(fp8_count);
FORGE_INSTANTIATE_FUNCTION(fp8_count_of_part);

}  // namespace forge
