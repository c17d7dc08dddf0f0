#include "kernels/fp8_product.hpp"

#include <algorithm>
#include <string>

#include "fixture.hpp"
#include "kernels/fp8.hpp"

// Products of codes by tensor cores against those of the numbers that fp8_round() makes of the same operands, in fp64.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

BufferContext context(Fp8Recipe recipe, int tp, int64_t sequences, int64_t tokens) {
  BufferContext c;
  c.microbatch = {sequences, tokens, 1};
  c.tp = c.etp = tp;
  c.fp8.on = true;
  c.fp8.recipe = recipe;
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

// An operand with its amaxes, its codes, and what these stand for.
struct Operand {
  Field<bf16> x;
  Field<float> wide, rounded, amax, partials;
  Field<std::uint8_t> memory;
  Fp8Codes codes;
  Values values;

  Operand(Stream& s, const ScaledOperand& o, bool sums_rows, bool exact, std::uint64_t key)
      : x(o.rows, o.columns, uneven_values(o.rows, o.columns, key), 3),
        wide(o.rows, o.columns),
        rounded(o.rows, o.columns),
        amax(1, o.groups()),
        partials(1, std::max<int64_t>(o.partials(), 1)),
        memory(1, code_bytes(o, sums_rows)) {
    wide.write(x.read(s));
    fp8_amax<bf16>(s, x.view(), o, partials.vector(), amax.vector());
    fp8_round<float>(s, wide.view(), o, exact, amax.vector(), rounded.view());
    values = rounded.read(s);
    codes = fp8_encode(s, x.view(), o, sums_rows, exact, amax.vector(), memory.vector());
  }
};

// What the sums of a tensor core round to, at each instruction: the emulated one's to fp32, those of sm_89 and sm_90
// keep 13 bits and more.
#if defined(FORGE_VGPU)
constexpr double sum_roundoff = 0x1p-24;
#else
constexpr double sum_roundoff = 0x1p-13;
#endif

template <class TC>
double roundoff_of_result() {
  return std::is_same_v<TC, bf16> ? 0x1p-8 : 0x1p-24;
}

// Products of codes are exact. A slot of 128 is the sum of four instructions; its two scales, each rounded where it is
// no power of two, take two roundings, each slot's sum one; the reference's numbers have one where scales are exact.
template <class TC>
void check_product(const BufferContext& c, ProductOf of, int64_t rows, const MatrixSplit& w, int rank, bool adds) {
  const ScaledProduct p = scaled_product(c, of, rows, w, rank);
  Stream s(1);
  const bool exact = c.fp8.exact, a_rows = sums_rows_of_a(of), b_rows = sums_rows_of_b(of);
  Operand a(s, p.a, a_rows, exact, 1), b(s, p.b, b_rows, exact, 2);
  const int64_t M = a.codes.codes.rows(), N = b.codes.codes.rows(), K = a_rows ? p.a.rows : p.a.columns;
  const Values before = normal_values(M * N, 3, 0.1);
  Field<TC> result(M, N, before, 5);
  const Values start = result.read(s);
  fp8_product<TC>(s, a.codes, b.codes, adds, result.view());
  const Values found = result.read(s);
  const double slots = static_cast<double>(a.codes.slots.count());
  const double bound = 4 * sum_roundoff + (slots + 2 + (exact ? 4 : 0)) * 0x1p-24;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      const auto at = static_cast<std::size_t>(m * N + n);
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < K; ++k) {
        const double x = a.values[static_cast<std::size_t>(a_rows ? k * M + m : m * K + k)],
                     y = b.values[static_cast<std::size_t>(b_rows ? k * N + n : n * K + k)];
        sum += x * y, magnitude += std::abs(x * y);
      }
      const double want = adds ? start[at] + sum : sum;
      const double error = bound * magnitude + (adds ? 0x1p-24 * (std::abs(start[at]) + magnitude) : 0);
      ASSERT_NEAR(found[at], want, error + roundoff_of_result<TC>() * (std::abs(want) + error))
          << M << " x " << N << " x " << K << ": " << m << ", " << n << ", product " << static_cast<int>(of);
    }
}

void check_products(const BufferContext& c, int64_t rows, const MatrixSplit& w, int rank) {
  for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient}) {
    if (!rounds_product(c.fp8, of)) continue;
    SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(c.fp8.recipe)) + ", rank " + std::to_string(rank));
    if (of == ProductOf::weight_gradient)
      check_product<float>(c, of, rows, w, rank, true);
    else
      check_product<bf16>(c, of, rows, w, rank, of == ProductOf::input_gradient);
  }
}

class Fp8Product : public testing::Test {
 protected:
  void SetUp() override {
    const std::string features = device_info().features;
    if (std::stoi(features.substr(features.find('_') + 1)) < 89) GTEST_SKIP() << features << " has no products of fp8";
  }
};

// Extents of neither tiles nor slots, groups that tp cuts, several sequences, parts of a weight.
TEST_F(Fp8Product, EqualsThatOfRoundedNumbers) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block})
    for (const int rank : {0, 1}) {
      BufferContext c = context(recipe, 2, 3, 46);
      c.fp8.exact = rank == 1;
      c.fp8.transposed = recipe == Fp8Recipe::block;
      MatrixSplit w{split_lines(150), whole_lines(141)};
      if (rank == 1) w.rows.parts = {{{70, 1}, {15, 2}, {15, 2}}};
      check_products(c, rank == 0 ? 138 : 69, w, rank);
    }
}

// Sequences of more than a slot, cut by tp in the middle of one: the first groups that a rank has are ends.
TEST_F(Fp8Product, SequencesAreSummedWithTheirOwnScales) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::block})
    for (const int rank : {0, 1}) {
      BufferContext c = context(recipe, 2, 3, 300);
      c.fp8.transposed = recipe == Fp8Recipe::block;
      check_products(c, 450, {whole_lines(17), whole_lines(130)}, rank);
    }
}

// One number that isn't finite makes all NaN that its group of scales takes part in, and nothing else.
TEST_F(Fp8Product, GroupsThatAreNotFiniteSpoilTheirLines) {
  const BufferContext c = context(Fp8Recipe::row, 1, 1, 40);
  const ScaledProduct p = scaled_product(c, ProductOf::output, 40, {whole_lines(24), whole_lines(64)}, 0);
  Stream s(1);
  Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
  Values amax = a.amax.read(s);
  amax[33] = std::numeric_limits<double>::infinity();
  a.amax.write(amax);
  Field<bf16> result(40, 24);
  fp8_product<bf16>(s, a.codes, b.codes, false, result.view());
  const Values found = result.read(s);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(std::isnan(found[i]), i / 24 == 33) << i;
}

// Scales at both ends of fp32: neither 2^-118 nor its square becomes 0 or Inf on the way.
TEST_F(Fp8Product, ScalesOfAnySize) {
  for (const int exponent : {100, -100}) {
    const BufferContext c = context(Fp8Recipe::delayed, 1, 1, 16);
    const ScaledProduct p = scaled_product(c, ProductOf::output, 16, {whole_lines(8), whole_lines(32)}, 0);
    Stream s(1);
    Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
    const auto set = [&](Operand& x, const ScaledOperand& o, int power) {
      Values v(static_cast<std::size_t>(o.rows * o.columns), std::ldexp(1, power));
      x.x.write(v);
      fp8_amax<bf16>(s, x.x.view(), o, x.partials.vector(), x.amax.vector());
      x.codes = fp8_encode(s, x.x.view(), o, false, false, x.amax.vector(), x.memory.vector());
    };
    set(a, p.a, exponent), set(b, p.b, -exponent);
    Field<bf16> result(16, 8);
    fp8_product<bf16>(s, a.codes, b.codes, false, result.view());
    for (const double found : result.read(s)) ASSERT_EQ(found, 32);
  }
}

}  // namespace
}  // namespace forge
