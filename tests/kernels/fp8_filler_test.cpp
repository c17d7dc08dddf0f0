#include <algorithm>

#include "config/fp8_recipe.hpp"
#include "core/partials.hpp"
#include "fixture.hpp"
#include "kernels/fp8/fp8_count_rows.hpp"
#include "kernels/fp8/fp8_round.hpp"

// Filler of packed samples, whose rows have sample -1.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

// Rows of filler, whose numbers are larger than all others, are as rows of zeros to groups of several rows, and no
// others than they are to rows that are groups.
template <class T>
void check_rows_of_filler(const ScaledOperand& o) {
  const int64_t R = o.rows, N = o.columns;
  Values large = normal_values(R * N, 5), zero = large, of;
  for (int64_t r = 0; r < R; ++r) of.push_back(r % 4 == 2 || r > R / 2 ? -1.0 : static_cast<double>(r));
  for (int64_t i = 0; i < R * N; ++i)
    if (of[i / N] < 0) large[i] *= 100, zero[i] = o.by_row.alone(R) ? large[i] : 0;
  const Field<T> with(R, N, large, 1), without(R, N, zero, 1);
  const Field<float> found(1, o.groups()), raised(1, o.groups()), expected(1, o.groups());
  const Field<std::int64_t> samples(1, R, of);
  Stream s(2);
  take_amax<T>(s, without.view(), o, expected.vector());
  take_amax<T>(s, with.view(), o, found.vector(), 1, samples.vector());
  ASSERT_TRUE(same_bits(found.read(s), expected.read(s)));
  take_amax<T>(s, with.view(), o, raised.vector(), 1, samples.vector(), true);
  ASSERT_TRUE(same_bits(raised.read(s), expected.read(s)));
}

TEST(Fp8Filler, HasNoPartInScales) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block})
    for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient}) {
      BufferContext c;
      c.microbatch = {3, 90, 1};
      c.rounding.on = true;
      c.rounding.recipe = recipe;
      const ScaledProduct p = scaled_product(c, of, 270, {whole_lines(150), whole_lines(141)}, 0);
      check_rows_of_filler<double>(p.a);
      check_rows_of_filler<bf16>(p.a);
      if (of == ProductOf::weight_gradient) check_rows_of_filler<float>(p.b);
    }
}

// Rows of filler aren't there.
TEST(Fp8Filler, IsNotCounted) {
  constexpr std::int64_t rows = 700, columns = 1;
  const ScaledOperand o{rows, columns, lines_alone(rows), lines_alone(1), Fp8Format::e4m3};
  Values values(rows * columns, 1), of(rows, 5);
  for (const std::size_t r : {0, 300, 699}) values[r] = 1e4;
  for (const std::size_t r : {1, 300, 650}) of[r] = -1;
  Field<float> x(rows, columns, values), amax(1, rows, Values(rows, 448));
  Field<std::int64_t> samples(1, rows, of);
  Field<double> partials(1, sum_partials), counts(1, 3, {1, 0, 0});
  Stream s(2);
  fp8_count<float>(s, x.view(), rows, columns, o, false, amax.vector(), partials.vector(), counts.vector(),
                   samples.vector());
  EXPECT_EQ(counts.read(s), (Values{1 + 697, 2, 0}));
}

}  // namespace
}  // namespace forge
