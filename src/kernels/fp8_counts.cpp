#include "kernels/fp8_counts.hpp"

#include "core/partials.hpp"
#include "core/types.hpp"
#include "device/parallel.hpp"

namespace forge {

namespace {

constexpr std::int64_t strips = sum_partials / 2;  // of rows, each with two partial sums

// The format's largest number, and as much above it as roundings to fp32 can bring a group's own largest one there: of
// its amax, of an exact scale, and of their product. What is cut is far beyond it.
template <class A>
FORGE_INLINE A most_of(Fp8Format format) {
  return A(layout_of(format).largest) * (A(1) + A(0x1p-20));
}

}  // namespace

template <class T>
void fp8_count(Stream& stream, View<const T, 2> x, std::int64_t rows, std::int64_t columns,
               const ScaledOperand& operand, bool exact, View<const float, 1> amax, View<double, 1> partials,
               View<double, 1> counts) {
  using A = acc_t<T>;
  const ScaleLines by_row = operand.by_row, by_column = operand.by_column;
  const Fp8Format format = operand.format;
  parallel_rows(stream, strips, row_width<T>(columns), [=] FORGE_LAMBDA(std::int64_t strip, Team team) {
    double beyond = 0, lost = 0;
    for (std::int64_t r = strip; r < rows; r += strips) {
      const T* row = x.row(r);
      const float* scales = amax.data + by_row.group_of(r) * by_column.count;
      const auto scaled = [=](std::int64_t j) {
        return A(row[j]) * A(fp8_scale(scales[by_column.group_of(j)], format, exact));
      };
      beyond += team.template sum<double>(columns, [=](std::int64_t j) {
        const A s = scaled(j), magnitude = s < 0 ? -s : s;
        return magnitude <= most_of<A>(format) ? 0.0 : 1.0;
      });
      lost += team.template sum<double>(
          columns, [=](std::int64_t j) { return A(row[j]) != 0 && round_to_fp8(scaled(j), format) == 0 ? 1.0 : 0.0; });
    }
    if (team.leads()) {
      partials[strip] = beyond;
      partials[strips + strip] = lost;
    }
  });
  parallel_for(stream, 3, [=] FORGE_LAMBDA(std::int64_t i) {
    double sum = i == 0 ? double(rows) * double(columns) : 0;
    if (i > 0)
      for (std::int64_t strip = 0; strip < strips; ++strip) sum += partials[(i - 1) * strips + strip];
    counts[i] += sum;
  });
}

#define FORGE_INSTANTIATE(T)                                                                                    \
  template void fp8_count<T>(Stream&, View<const T, 2>, std::int64_t, std::int64_t, const ScaledOperand&, bool, \
                             View<const float, 1>, View<double, 1>, View<double, 1>);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
