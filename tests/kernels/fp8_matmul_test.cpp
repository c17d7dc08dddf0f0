#include <algorithm>
#include <string>

#include "config/fp8_recipe.hpp"
#include "cut_sum.hpp"
#include "fixture.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/fp8/fp8_round.hpp"
#include "kernels/gemm/gemm.hpp"

// Products of codes by cuBLASLt against those of the numbers that fp8_round() makes of the same operands, in fp64.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

BufferContext context(Fp8Recipe recipe, int tp, int64_t sequences, int64_t tokens) {
  BufferContext c;
  c.microbatch = {sequences, tokens, 1};
  c.tp = c.etp = tp;
  c.rounding.on = true;
  c.rounding.recipe = recipe;
  return c;
}

// Numbers whose sizes differ between groups of scales, row by row and block by block.
Values uneven_values(int64_t rows, int64_t columns, std::uint64_t key) {
  Values v = normal_values(rows * columns, key);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      v[static_cast<std::size_t>(r * columns + c)] *= std::ldexp(1, static_cast<int>(r / 5 % 9 + c / 50 % 5 * 2) - 9);
  return v;
}

// An operand with its amaxes, room for its codes, and what these stand for.
struct Operand {
  ScaledOperand scaled;
  bool sums_rows;
  Field<bf16> x;
  Field<float> wide, rounded, amax;
  Field<std::uint8_t> memory;
  Values values, powers;  // powers: 2^e of each number's code, over its scale; e is the least one for subnormal codes

  Operand(Stream& s, const ScaledOperand& o, bool of_rows, bool exact, std::uint64_t key)
      : scaled(o),
        sums_rows(of_rows),
        x(o.rows, o.columns, 3),
        wide(o.rows, o.columns),
        rounded(o.rows, o.columns),
        amax(1, o.groups()),
        memory(1, code_bytes(o, sums_rows)) {
    x.write(uneven_values(o.rows, o.columns, key));
    wide.write(x.read(s));
    take_amax<bf16>(s, x.view(), o, amax.vector());
    fp8_round<float>(s, wide.view(), o, exact, amax.vector(), rounded.view());
    values = rounded.read(s);
    const Values largest = amax.read(s);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto r = static_cast<int64_t>(i) / o.columns, column = static_cast<int64_t>(i) % o.columns;
      const int64_t group = o.by_row.group_of(r) * o.by_column.count + o.by_column.group_of(column);
      const double scale = fp8_scale(static_cast<float>(largest[static_cast<std::size_t>(group)]), o.format, exact);
      const double code = std::abs(values[i]) * scale * (1 + 0x1p-20), least = layout_of(o.format).least_exponent();
      powers.push_back(std::exp2(code == 0 ? least : std::max(least, std::floor(std::log2(code)))) / scale);
    }
  }

  Fp8Input input() const { return {x.view(), scaled, sums_rows, amax.vector(), memory.vector()}; }
  int64_t lines() const { return sums_rows ? scaled.columns : scaled.rows; }
  int64_t depth() const { return sums_rows ? scaled.rows : scaled.columns; }
};

Term term_of(const Operand& a, int64_t at_a, const Operand& b, int64_t at_b) {
  const auto i = static_cast<std::size_t>(at_a), j = static_cast<std::size_t>(at_b);
  return {a.values[i] * b.values[j], a.powers[i] * b.powers[j]};
}

template <class TC>
double roundoff_of_result() {
  return std::is_same_v<TC, bf16> ? 0x1p-8 : 0x1p-24;
}

// cuBLASLt, which a workspace and room for factors belong to.
struct Multiplier {
  Field<std::uint8_t> workspace{1, 1 << 20};
  Field<float> factors{1, 1 << 16};
  Gemm gemm{workspace.data(), 1 << 20};

  template <class TC>
  void operator()(Stream& s, const Operand& a, const Operand& b, bool exact, Fp8Recipe recipe, bool adds,
                  View<TC, 2> c) {
    const CodeScaling scaling = code_scaling(recipe);
    gemm.code_product<TC>(s, fp8_encode(s, std::array{a.input(), b.input()}, exact, scaling, factors.vector())[0],
                          scaling, adds, c);
  }
};

// Products of codes are exact, and a slot's sum loses what CutSum says; its two scales, each rounded where it is no
// power of two, take two roundings, each slot's sum one; the reference's numbers have one where scales are exact. The
// library adds to C once for each run of the depth, at most a slot.
template <class TC>
void check_product(Multiplier& multiply, const BufferContext& c, ProductOf of, int64_t rows, const MatrixSplit& w,
                   int rank, bool adds) {
  const ScaledProduct p = scaled_product(c, of, rows, w, rank);
  Stream s(1);
  const bool exact = c.rounding.exact, a_rows = sums_rows_of_a(of), b_rows = sums_rows_of_b(of);
  Operand a(s, p.a, a_rows, exact, 1), b(s, p.b, b_rows, exact, 2);
  const int64_t M = a.lines(), N = b.lines(), K = a.depth();
  const Fp8Slots slots_of_a = fp8_slots(a_rows ? p.a.by_row : p.a.by_column);
  const Values before = normal_values(M * N, 3, 0.1);
  Field<TC> result(M, N, before, 8);
  const Values start = result.read(s);
  multiply(s, a, b, exact, c.rounding.recipe, adds, result.view());
  const Values found = result.read(s);
  const double slots = static_cast<double>(slots_of_a.count());
  const double roundings = (slots + 2 + (exact ? 4 : 0)) * 0x1p-24;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      const auto at = static_cast<std::size_t>(m * N + n);
      const CutSum sum = sum_of(slots_of_a, [&](int64_t k) {
        return term_of(a, a_rows ? k * M + m : m * K + k, b, b_rows ? k * N + n : n * K + k);
      });
      const double want = adds ? start[at] + sum.total : sum.total;
      const double error =
          sum.lost + roundings * sum.magnitude + (adds ? 0x1p-24 * slots * (std::abs(start[at]) + sum.magnitude) : 0);
      ASSERT_NEAR(found[at], want, error + roundoff_of_result<TC>() * (std::abs(want) + error))
          << M << " x " << N << " x " << K << ": " << m << ", " << n << ", product " << static_cast<int>(of);
    }
}

void check_products(Multiplier& multiply, const BufferContext& c, int64_t rows, const MatrixSplit& w, int rank) {
  for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient}) {
    if (!rounds_product(c.rounding, of)) continue;
    SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(c.rounding.recipe)) + ", rank " + std::to_string(rank));
    if (of == ProductOf::weight_gradient)
      check_product<float>(multiply, c, of, rows, w, rank, true);
    else
      check_product<bf16>(multiply, c, of, rows, w, rank, of == ProductOf::input_gradient);
  }
}

class Fp8Matmul : public testing::Test {
 protected:
  void SetUp() override {
    if (device_info().capability < 89) GTEST_SKIP() << "sm_" << device_info().capability << " has no products of fp8";
  }
  Multiplier multiply;
};

// cuBLASLt has scales of rows and blocks on sm_90 alone. Its blocks of 128 x 128 are counted from the first row:
// weights of which this rank has others (the second case of three) take a scale for each row of a block.
TEST_F(Fp8Matmul, EqualsThatOfRoundedNumbers) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block}) {
    if (code_scaling(recipe) != CodeScaling::tensor && device_info().capability != 90) continue;
    for (const int which : {0, 1, 2}) {
      BufferContext c = context(recipe, 2, 3, 48);
      c.rounding.exact = which == 1;
      c.rounding.transposed = recipe == Fp8Recipe::block;
      MatrixSplit w{split_lines(256), whole_lines(144)};
      if (which == 1) w.rows.parts = {{{64, 1}, {16, 2}, {16, 2}}};
      if (which == 2) w = {whole_lines(176), split_lines(272)};
      check_products(multiply, c, which == 0 ? 144 : 72, w, which % 2);
    }
  }
}

// The slots of sequences are products of their own; a rank's first rows may be the end of one.
TEST_F(Fp8Matmul, SumsSequencesWithTheirOwnScales) {
  for (const int rank : {0, 1})
    check_products(multiply, context(Fp8Recipe::current, 2, 3, 304), 456, {whole_lines(32), whole_lines(144)}, rank);
}

// Extents, rows and addresses that it doesn't take.
TEST_F(Fp8Matmul, TakesMultiplesOf16Bytes) {
  const Field<bf16> all(40, 64);
  const auto takes = [&](int64_t m, int64_t n, int64_t pitch, int64_t first,
                         CodeScaling scaling = CodeScaling::tensor) {
    View<bf16, 2> c(all.data() + first, {{m, n}});
    c.pitch = pitch;
    return cublaslt_takes(scaling, c);
  };
  EXPECT_TRUE(takes(39, 32, 32, 0));
  EXPECT_FALSE(takes(39, 24, 24, 0));
  EXPECT_TRUE(takes(39, 32, 40, 8));
  EXPECT_FALSE(takes(39, 32, 36, 0));
  EXPECT_FALSE(takes(39, 32, 40, 4));
  EXPECT_TRUE(takes(40, 32, 32, 0, CodeScaling::slot));
  EXPECT_FALSE(takes(39, 32, 32, 0, CodeScaling::slot));
}

// One number that isn't finite makes all NaN that its group of scales takes part in, and nothing else.
TEST_F(Fp8Matmul, GroupsThatAreNotFiniteSpoilTheirLines) {
  if (device_info().capability != 90) GTEST_SKIP() << "cuBLASLt has scales of rows on sm_90 alone";
  const BufferContext c = context(Fp8Recipe::row, 1, 1, 40);
  const ScaledProduct p = scaled_product(c, ProductOf::output, 40, {whole_lines(32), whole_lines(64)}, 0);
  Stream s(1);
  Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
  Values amax = a.amax.read(s);
  amax[33] = std::numeric_limits<double>::infinity();
  a.amax.write(amax);
  Field<bf16> result(40, 32);
  multiply(s, a, b, false, Fp8Recipe::row, false, result.view());
  const Values found = result.read(s);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(std::isnan(found[i]), i / 32 == 33) << i;
}

// Scales at both ends of fp32: neither 2^-118 nor its square becomes 0 or Inf on the way.
TEST_F(Fp8Matmul, ScalesOfAnySize) {
  for (const int exponent : {100, -100}) {
    const BufferContext c = context(Fp8Recipe::delayed, 1, 1, 16);
    const ScaledProduct p = scaled_product(c, ProductOf::output, 16, {whole_lines(16), whole_lines(32)}, 0);
    Stream s(1);
    Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
    const auto set = [&](Operand& x, const ScaledOperand& o, int power) {
      Values v(static_cast<std::size_t>(o.rows * o.columns), std::ldexp(1, power));
      x.x.write(v);
      take_amax<bf16>(s, x.x.view(), o, x.amax.vector());
    };
    set(a, p.a, exponent), set(b, p.b, -exponent);
    Field<bf16> result(16, 16);
    multiply(s, a, b, false, Fp8Recipe::delayed, false, result.view());
    for (const double found : result.read(s)) ASSERT_EQ(found, 32);
  }
}

}  // namespace
}  // namespace forge
