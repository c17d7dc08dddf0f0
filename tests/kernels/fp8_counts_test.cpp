#include "kernels/fp8/fp8_count_rows.hpp"

#include <cmath>
#include <limits>

#include "config/fp8_recipe.hpp"
#include "core/partials.hpp"
#include "core/to_size.hpp"
#include "fixture.hpp"

namespace forge {
namespace {

using namespace reference;

// Largest magnitudes that are too small and too large by turns, as those of other steps may be: against a loop.
template <class T>
void check_counts(const ScaledOperand& o, std::int64_t rows, std::int64_t columns) {
  const std::int64_t R = o.rows, N = o.columns;
  Values values = normal_values(R * N, 9, 1);
  for (std::int64_t i = 0; i < R * N; ++i) values[to_size(i)] *= std::pow(10, -static_cast<double>(i % 9));
  values[to_size(N / 3)] = 0;
  values[0] = std::numeric_limits<double>::quiet_NaN();
  Values largest;
  for (std::int64_t g = 0; g < o.groups(); ++g) largest.push_back(g % 2 ? 16 : 0.25);
  Field<T> x(R, N, values, 2);
  Field<float> amax(1, o.groups(), largest);
  Field<double> partials(1, sum_partials), counts(1, 3, {1, 2, 3});  // they are added to
  Stream s(2);
  fp8_count<T>(s, x.view(), rows, columns, o, false, amax.vector(), partials.vector(), counts.vector());
  const Values in = x.read(s);
  double beyond = 2, lost = 3;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto group = to_size(o.by_row.group_of(r) * o.by_column.count + o.by_column.group_of(j));
      const double value = in[to_size(r * N + j)];
      const double scaled = value * fp8_scale(static_cast<float>(largest[group]), o.format, false);
      const double least = o.format == Fp8Format::e4m3 ? 0x1p-9 : 0x1p-16;
      beyond += !(std::abs(scaled) <= (o.format == Fp8Format::e4m3 ? 448 : 57344));
      lost += value != 0 && std::abs(scaled) <= least / 2;
    }
  EXPECT_GT(beyond, 3);
  EXPECT_GT(lost, 4);
  EXPECT_EQ(counts.read(s), (Values{1 + static_cast<double>(rows * columns), beyond, lost}));
}

TEST(Fp8Counts, AreThoseOfALoop) {
  BufferContext c;
  c.microbatch = {3, 200, 1};
  c.rounding.on = true;
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block}) {
    c.rounding.recipe = recipe;
    const ScaledProduct p = scaled_product(c, ProductOf::input_gradient, 600, {whole_lines(141), whole_lines(150)}, 0);
    for (const ScaledOperand& o : {p.a, p.b})
      for (const std::int64_t left_out : {0, 20}) {
        check_counts<double>(o, o.rows, o.columns - left_out);
        check_counts<float>(o, o.rows - left_out, o.columns);
        check_counts<bf16>(o, o.rows, o.columns);
      }
  }
}

// A group's own largest number isn't cut, however its exact scale was rounded; a number a thousandth above it is.
template <class T>
void check_own_largest() {
  constexpr std::int64_t rows = 200;
  const ScaledOperand o{rows, 1, lines_alone(rows), lines_alone(1), Fp8Format::e4m3};
  Values values = normal_values(rows, 5, 1), largest;
  for (const double value : values) largest.push_back(std::abs(value));
  values[7] *= 1.001;
  Field<T> x(rows, 1, values, 2);
  Field<float> amax(1, rows, largest);
  Field<double> partials(1, sum_partials), counts(1, 3, {0, 0, 0});
  Stream s(2);
  fp8_count<T>(s, x.view(), rows, 1, o, true, amax.vector(), partials.vector(), counts.vector());
  EXPECT_EQ(counts.read(s), (Values{rows, 1, 0}));
}

TEST(Fp8Counts, OwnLargestOfAGroupIsNotCut) {
  check_own_largest<float>();
  check_own_largest<double>();
}

// Parts of two matrices, cut anywhere, of whose rows the last ones don't count: together what the matrices have.
template <class T>
void check_parts(const ScaledOperand& o, std::int64_t left_out) {
  const std::int64_t each = o.rows * o.columns, n = 2 * each, lines = o.rows - left_out, times = 3;
  Values values = normal_values(n, 11, 1);
  for (std::int64_t i = 0; i < n; ++i) values[to_size(i)] *= std::pow(10, -static_cast<double>(i % 9));
  values[to_size(each + 1)] = std::numeric_limits<double>::infinity();
  Values largest;
  for (std::int64_t g = 0; g < 2 * o.groups(); ++g) largest.push_back(g % 3 ? 16 : 0.25);
  const Field<T> x(1, n, values);
  const Field<float> amax(1, 2 * o.groups(), largest);
  const Field<double> partials(1, sum_partials), expected(1, 3, {0, 0, 0}), counts(1, 3, {1, 2, 3});
  Stream s(2);
  for (std::int64_t m = 0; m < 2; ++m)
    fp8_count<T>(s, View<const T, 2>(x.data() + m * each, {{o.rows, o.columns}}), lines, o.columns, o, false,
                 amax.vector().slice(m * o.groups(), (m + 1) * o.groups()), partials.vector(), expected.vector());
  const std::int64_t cuts[] = {0, 7, o.columns, each - 3, each + o.columns + 1, n};
  for (int i = 0; i < 5; ++i)
    fp8_count_of_part<T>(s, x.vector().slice(cuts[i], cuts[i + 1]), cuts[i], o, lines, times, false, amax.vector(),
                         partials.vector(), counts.vector());
  const Values of_matrices = expected.read(s);
  EXPECT_GT(of_matrices[1], 1);
  EXPECT_GT(of_matrices[2], 1);
  EXPECT_EQ(counts.read(s), (Values{1 + 3 * of_matrices[0], 2 + 3 * of_matrices[1], 3 + 3 * of_matrices[2]}));
}

TEST(Fp8Counts, OfPartsAreThoseOfMatrices) {
  BufferContext c;
  c.microbatch = {3, 200, 1};
  c.rounding.on = true;
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::block}) {
    c.rounding.recipe = recipe;
    const ScaledOperand w = scaled_product(c, ProductOf::output, 600, {whole_lines(141), whole_lines(150)}, 0).b;
    for (const std::int64_t left_out : {0, 20}) {
      check_parts<double>(w, left_out);
      check_parts<float>(w, left_out);
      check_parts<bf16>(w, left_out);
    }
  }
}

}  // namespace
}  // namespace forge
