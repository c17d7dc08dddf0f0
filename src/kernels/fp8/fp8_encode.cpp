#include "kernels/fp8/fp8_encode.hpp"

#include <cmath>

#include "device/parallel.hpp"
#include "kernels/fp8/fp8_number.hpp"
#include "kernels/fp8/fp8_part.hpp"
#include "kernels/rows/largest.hpp"

namespace forge {

namespace {

constexpr auto infinite = static_cast<float>(INFINITY);

RowWidth width_of(std::int64_t columns, const ScaleLines& groups, std::int64_t bytes) {
  return {((columns < groups.each ? columns : groups.each) * bytes + 15) / 16};
}

}  // namespace

template <class T>
void fp8_amax_of_part(Stream& stream, View<const T, 1> x, std::int64_t first, const ScaledOperand& each,
                      View<float, 1> amax) {
  const PartRows part(first, x.rows(), each.columns);
  const ScaleLines by_row = each.by_row, by_column = each.by_column;
  const std::int64_t groups = by_column.count, lines = each.rows;
  parallel_rows(stream, part.rows, groups, width_of(each.columns, by_column, sizeof(T)),
                [=] FORGE_LAMBDA(std::int64_t r, std::int64_t g, Team team) {
                  const ScaleLines::Range here = part.inside(r, by_column.lines_of(g));
                  const T* const row = x.data + part.base(r) + here.begin;
                  const float most = team.template max<float>(here.end - here.begin,
                                                              [=](std::int64_t j) { return magnitude(row[j]); });
                  if (team.leads()) raise(&amax[amaxes_of_row(by_row, lines, groups, part.row + r) + g], most);
                });
}

template <class T>
void fp8_encode(Stream& stream, View<const T, 1> x, std::int64_t first, const ScaledOperand& each, bool exact,
                View<const float, 1> amax, View<std::uint8_t, 1> codes) {
  using A = acc_t<T>;
  const PartRows part(first, x.rows(), each.columns);
  const ScaleLines by_row = each.by_row, by_column = each.by_column;
  const std::int64_t groups = by_column.count, lines = each.rows;
  const Fp8Format format = each.format;
  parallel_rows(stream, part.rows, groups, width_of(each.columns, by_column, sizeof(T)),
                [=] FORGE_LAMBDA(std::int64_t r, std::int64_t g, Team team) {
                  const ScaleLines::Range here = part.inside(r, by_column.lines_of(g));
                  const float most = amax[amaxes_of_row(by_row, lines, groups, part.row + r) + g];
                  const A scale = most < infinite ? A(fp8_scale(most, format, exact)) : A(1);
                  const std::int64_t at = part.base(r) + here.begin;
                  team.each(here.end - here.begin, [=](std::int64_t j) {
                    codes[at + j] = fp8_code(float(round_to_fp8(A(x[at + j]) * scale, format)), format);
                  });
                });
}

template <class T>
void fp8_decode(Stream& stream, View<const std::uint8_t, 1> codes, const ScaledOperand& each, bool exact,
                View<const float, 1> amax, View<T, 1> x) {
  using A = acc_t<T>;
  const ScaleLines by_row = each.by_row, by_column = each.by_column;
  const std::int64_t groups = by_column.count, lines = each.rows, columns = each.columns;
  const Fp8Format format = each.format;
  parallel_rows(stream, x.rows() / columns, groups, width_of(columns, by_column, sizeof(T)),
                [=] FORGE_LAMBDA(std::int64_t r, std::int64_t g, Team team) {
                  const ScaleLines::Range here = by_column.lines_of(g);
                  const float most = amax[amaxes_of_row(by_row, lines, groups, r) + g];
                  const bool finite = most < infinite;
                  const A scale = finite ? A(fp8_scale(most, format, exact)) : A(1);
                  const std::int64_t at = r * columns + here.begin;
                  team.each(here.end - here.begin, [=](std::int64_t j) {
                    x[at + j] = finite ? T(A(number_of(codes[at + j], format)) / scale) : T(static_cast<A>(NAN));
                  });
                });
}

FORGE_INSTANTIATE_FUNCTION(fp8_amax_of_part);
FORGE_INSTANTIATE_FUNCTION(fp8_encode);
FORGE_INSTANTIATE_FUNCTION(fp8_decode);

}  // namespace forge
