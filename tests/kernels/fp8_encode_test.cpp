#include <array>

#include "config/fp8_recipe.hpp"
#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/fp8/fp8_round.hpp"

// Codes of whole operands, as products read them, against config/fp8_format.hpp number by number.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

// Numbers of many sizes; each third one lies in the middle of two codes or is one, as long as its group's scale is a
// power of two.
Values values_of(int64_t n, Fp8Format format) {
  Values v = normal_values(n, 5);
  const int steps = 2 << layout_of(format).mantissa_bits;
  for (int64_t i = 0; i < n; ++i) {
    double& x = v[to_size(i)];
    x = std::ldexp(i % 3 == 0 ? 1 + static_cast<double>(i % steps) / steps : x, static_cast<int>(-(i % 29)));
    if (i % 7 == 0) x = -x;
    if (i % 31 == 0) x = 0;
  }
  return v;
}

std::uint8_t code_of(double x, float amax, const ScaledOperand& o, bool exact) {
  const float scaled = static_cast<float>(x) * fp8_scale(amax, o.format, exact);
  return fp8_code(round_to_fp8(scaled, o.format), o.format);
}

void check_codes(const ScaledOperand& o, bool sums_rows, bool exact, int64_t gap, CodeScaling scaling) {
  const Field<bf16> x(o.rows, o.columns, values_of(o.rows * o.columns, o.format), gap);
  const Field<float> amax(1, o.groups());
  const Field<std::uint8_t> memory(1, code_bytes(o, sums_rows), 16), others(1, code_bytes(o, sums_rows), 16);
  const Field<float> factors(1, 1 << 16);
  Stream s(1);
  take_amax<bf16>(s, x.view(), o, amax.vector());
  // Both operands of a launch are this one.
  const Fp8Input input{x.view(), o, sums_rows, amax.vector(), memory.vector()};
  Fp8Input other = input;
  other.memory = others.vector();
  // Without the fourth row, which is filler.
  Values of_rows(to_size(o.rows), 0.0);
  of_rows[3] = -1;
  const Field<int64_t> samples(1, o.rows, of_rows);
  const Field<float> seen(1, 1, Values{0x1p-40});
  if (!sums_rows) other.seen = seen.vector(), other.samples = samples.vector();
  const Fp8Codes made = fp8_encode(s, std::array{input, other}, exact, scaling, factors.vector())[0].a.codes;
  ASSERT_EQ(memory.read(s), others.read(s));
  // Those of two products; another kernel makes those of the third operand, which gets factors alone.
  const Values plain_factors = factors.read(s), none(to_size(memory.columns), 7.0);
  const Field<std::uint8_t> left(1, memory.columns, none), fourth(1, memory.columns);
  Fp8Input third = input, last = input;
  third.memory = left.vector(), third.made = true, last.memory = fourth.vector();
  const auto both = fp8_encode(s, std::array{input, other, third, last}, exact, scaling, factors.vector());
  ASSERT_EQ(left.read(s), none);
  ASSERT_EQ(memory.read(s), fourth.read(s));
  const Fp8Factors of_third = both[1].a.factors;
  ASSERT_EQ(of_third.values - factors.data(), 2 * of_third.layout.count());
  const Values all_factors = factors.read(s);
  for (int64_t i = 0; i < 2 * of_third.layout.count(); ++i)
    ASSERT_EQ(all_factors[to_size(i + 2 * of_third.layout.count())], plain_factors[to_size(i)]);
  const Values numbers = x.read(s), largest = amax.read(s), found = memory.read(s);
  const int64_t lines = sums_rows ? o.columns : o.rows, pitch = made.codes.pitch;
  ASSERT_EQ(made.codes.rows(), lines);
  double most = 0x1p-40;
  for (int64_t i = 0; i < o.rows * o.columns; ++i)
    if (i / o.columns != 3 && !sums_rows) most = std::max(most, std::abs(numbers[to_size(i)]));
  ASSERT_EQ(seen.read(s)[0], most);
  for (int64_t line = 0; line < lines; ++line)
    for (std::int32_t slot = 0; slot < made.slots.count(); ++slot) {
      const Fp8Slots::Lines here = made.slots.lines_of(slot);
      const auto group = made.lines.group_of(line) * made.line_stride + here.group * made.depth_stride;
      for (int64_t i = 0; i < scale_width; ++i) {
        const int64_t k = here.begin + i, at = sums_rows ? k * o.columns + line : line * o.columns + k;
        const std::uint8_t want =
            k < here.end ? code_of(numbers[to_size(at)], static_cast<float>(largest[to_size(group)]), o, exact) : 0;
        ASSERT_EQ(found[to_size(line * pitch + slot * scale_width + i)], want) << "line " << line << ", number " << k;
      }
    }
}

// Widths beside packs of 16 bytes, slots, and the slots that a warp has; rows that begin anywhere; groups of sequences,
// of which a rank has the end, and of blocks that tp cuts.
TEST(Fp8Encode, CodesAreThoseOfRoundedNumbers) {
  if (device_info().capability < 89) GTEST_SKIP() << "codes are made from sm_89 on";
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block})
    for (const auto& [rows, columns, gap] : {std::array<int64_t, 3>{69, 141, 0}, {456, 136, 8}, {42, 1288, 0}})
      for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient}) {
        BufferContext c;
        c.microbatch = {3, 2 * rows / 3, 1};
        c.tp = c.etp = 2;
        c.rounding.on = true;
        c.rounding.recipe = recipe;
        c.rounding.transposed = recipe == Fp8Recipe::block;
        c.rounding.exact = gap > 0;
        if (!rounds_product(c.rounding, of)) continue;
        const ScaledProduct p = scaled_product(c, of, rows, {split_lines(150), whole_lines(columns)}, 1);
        SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(recipe)) + ", product " +
                     std::to_string(static_cast<int>(of)) + ", " + std::to_string(columns) + " columns");
        check_codes(p.a, sums_rows_of_a(of), c.rounding.exact, gap, code_scaling(recipe));
        check_codes(p.b, sums_rows_of_b(of), c.rounding.exact, gap, code_scaling(recipe));
        if (HasFatalFailure()) return;
      }
}

}  // namespace
}  // namespace forge
