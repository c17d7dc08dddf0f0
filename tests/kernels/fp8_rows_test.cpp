#include "kernels/fp8/fp8_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/fp8/fp8_number.hpp"
#include "kernels/fp8/fp8_round.hpp"

namespace forge {
namespace {

using namespace reference;

ScaledOperand rows_of(std::int64_t rows, std::int64_t columns, std::int64_t each, Fp8Format format) {
  ScaledOperand o{rows, columns, lines_alone(rows), {}, format};
  o.by_column.each = each;
  o.by_column.count = (columns + each - 1) / each;
  o.by_column.begin[1] = columns;
  o.by_column.base[1] = o.by_column.count;
  return o;
}

template <class T>
Values rounded(Stream& s, const Field<T>& x, const ScaledOperand& o) {
  const Field<T> y(x.rows, x.columns);
  const Field<float> amax(1, o.groups());
  take_amax<T>(s, x.view(), o, amax.vector());
  fp8_round<T>(s, x.view(), o, false, amax.vector(), y.view());
  return y.read(s);
}

// Bits of numbers; one NaN is as good as another: a GPU's instructions have a sign and a payload of their own for it.
bool same_numbers(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return std::isnan(x) ? std::isnan(y) : same_bits({x}, {y}); });
}

// Rows in another order, with a gap and one of padding; a row that isn't finite is NaN in that group alone.
template <class T>
void check_rows(std::int64_t columns, std::int64_t each, Fp8Format format) {
  constexpr std::int64_t S = 5, n = 7;
  Values values = normal_values(S * columns, 3, 1);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2(-static_cast<double>(i % 23));
  values[to_size(2 * columns + 1)] = std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < columns; ++j) values[to_size(3 * columns + j)] = 0;
  const Field<T> x(S, columns, values, 3), back(n, columns, 2);
  const ScaledOperand o = rows_of(S, columns, each, format);
  const std::int64_t bytes = columns + 4 * o.by_column.count;
  const std::array<std::int32_t, 7> order{8, 3, -1, 0, 5, 7, 9}, turn{6, 5, 4, 3, 2, 1, 0};
  const Field<std::int32_t> places(1, n, Values(order.begin(), order.end())),
      turned(1, n, Values(turn.begin(), turn.end()));
  const Field<std::uint8_t> codes(n, bytes, 1);
  Stream s(2);
  rows_to_codes<T>(s, x.view(), o, places.vector(), 2, codes.view());
  codes_to_rows<T>(s, codes.view(), o, turned.vector(), 1, back.view());
  const Values expected = rounded(s, x, o), found = back.read(s);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t place = order[to_size(turn[to_size(i)])];
    for (std::int64_t j = 0; j < columns; ++j) {
      const double value = found[to_size(i * columns + j)];
      const double wanted = place < 0 ? 0 : expected[to_size(place / 2 * columns + j)];
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(value) : value == wanted) << i << ", " << j;
    }
  }
  EXPECT_TRUE(same_numbers(rounded(s, back, rows_of(n, columns, each, format)), found)) << "rounded again";
}

TEST(Fp8Rows, StandForRoundedRows) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2})
    for (const auto& [columns, each] : {std::array<std::int64_t, 2>{24, 24}, {300, 128}, {141, 128}}) {
      check_rows<double>(columns, each, format);
      check_rows<float>(columns, each, format);
      check_rows<bf16>(columns, each, format);
    }
}

// Each code that can be a row's largest, with all codes up to it, at scales far apart: rounding what they stand for
// changes none of them.
template <class T>
void check_codes_stay(Fp8Format format) {
  const double largest = layout_of(format).largest;
  Values codes;
  for (int code = 0; code < 128; ++code)
    if (const double value = number_of(static_cast<std::uint8_t>(code), format); value <= largest)
      codes.push_back(value);
  ASSERT_EQ(codes.size(), format == Fp8Format::e4m3 ? 127u : 124u);
  const auto n = std::ssize(codes);
  Stream s(1);
  int rows = 0;
  for (const double top : codes)
    for (const int exponent : {-100, -7, 0, 9, 105}) {
      if (top < largest / 2) continue;
      Values values;
      for (const double code : codes) values.push_back(std::min(code, top) * std::ldexp(rows % 2 ? 1 : -1, exponent));
      const Field<T> x(1, n, values);
      ASSERT_EQ(x.read(s), values);
      ASSERT_EQ(rounded(s, x, rows_of(1, n, n, format)), values);
      ++rows;
    }
  EXPECT_EQ(rows, 5 * (format == Fp8Format::e4m3 ? 9 : 5));
}

TEST(Fp8Rows, AreRoundedToThemselves) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    check_codes_stay<double>(format);
    check_codes_stay<float>(format);
    check_codes_stay<bf16>(format);
  }
}

}  // namespace
}  // namespace forge
