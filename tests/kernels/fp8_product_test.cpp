#include "kernels/fp8_product.hpp"

#include <algorithm>
#include <string>

#include "config/fp8_recipe.hpp"
#include "cut_sum.hpp"
#include "fixture.hpp"
#include "kernels/fp8.hpp"
#include "kernels/gemm.hpp"

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

// An operand with its amaxes, its codes, and what these stand for; or several matrices, each larger than the one
// before.
struct Operand {
  Field<bf16> x;
  Field<float> wide, rounded, amax, partials;
  Field<std::uint8_t> memory;
  Fp8Codes codes;
  Values values, powers;  // powers: 2^e of each number's code, over its scale; e is the least one for subnormal codes

  Operand(Stream& s, const ScaledOperand& o, bool sums_rows, bool exact, std::uint64_t key, int64_t matrices = 1)
      : x(matrices * o.rows, o.columns, 3),
        wide(matrices * o.rows, o.columns),
        rounded(matrices * o.rows, o.columns),
        amax(1, matrices * o.groups()),
        partials(1, std::max<int64_t>(o.partials(), 1)),
        memory(1, matrices * code_bytes(o, sums_rows)) {
    Values numbers = uneven_values(matrices * o.rows, o.columns, key);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] *= std::ldexp(1, static_cast<int>(i / static_cast<std::size_t>(o.rows * o.columns)));
    x.write(numbers);
    wide.write(x.read(s));
    for (int64_t i = 0; i < matrices; ++i) {
      const auto of = [&](auto view) { return view.slice(i * o.rows, (i + 1) * o.rows); };
      const View<float, 1> here = amax.vector().slice(i * o.groups(), (i + 1) * o.groups());
      fp8_amax<bf16>(s, of(x.view()), o, partials.vector(), here);
      fp8_round<float>(s, of(wide.view()), o, exact, here, of(rounded.view()));
    }
    values = rounded.read(s);
    codes = fp8_encode(s, x.view(), o, sums_rows, exact, amax.vector(), memory.vector(), matrices);
    const Values largest = amax.read(s);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto r = static_cast<int64_t>(i) / o.columns, column = static_cast<int64_t>(i) % o.columns;
      const int64_t group = o.by_row.group_of(r % o.rows) * o.by_column.count + o.by_column.group_of(column);
      const double scale = fp8_scale(
          static_cast<float>(largest[static_cast<std::size_t>(r / o.rows * o.groups() + group)]), o.format, exact);
      const double code = std::abs(values[i]) * scale * (1 + 0x1p-20), least = layout_of(o.format).least_exponent();
      powers.push_back(std::exp2(code == 0 ? least : std::max(least, std::floor(std::log2(code)))) / scale);
    }
  }
};

// Begins of groups of rows, and which places of that order the operands' rows are.
struct Groups {
  std::vector<int64_t> offsets;
  int64_t begin, end;
  int64_t count() const { return std::ssize(offsets) - 1; }
  // The group of an operands' row; −1: none.
  int64_t of(int64_t row) const {
    const auto after = std::upper_bound(offsets.begin(), offsets.end(), begin + row);
    return after == offsets.end() ? -1 : after - offsets.begin() - 1;
  }
};

Term term_of(const Operand& a, int64_t at_a, const Operand& b, int64_t at_b) {
  const auto i = static_cast<std::size_t>(at_a), j = static_cast<std::size_t>(at_b);
  return {a.values[i] * b.values[j], a.powers[i] * b.powers[j]};
}

template <class TC>
double roundoff_of_result() {
  return std::is_same_v<TC, bf16> ? 0x1p-8 : 0x1p-24;
}

// Forge's kernel, or cuBLASLt, which a workspace and room for factors belong to.
struct Multiplier {
  bool library = false;
  Field<std::uint8_t> workspace{1, 1 << 20};
  Field<float> factors{1, 1 << 16};
  Gemm gemm{workspace.data(), 1 << 20};

  template <class TC>
  bool operator()(Stream& s, const Operand& a, const Operand& b, Fp8Recipe recipe, bool adds, View<TC, 2> c) {
    if (library) return gemm.fp8_product<TC>(s, a.codes, b.codes, fp8_scaling(recipe), adds, c, factors.vector());
    fp8_product<TC>(s, a.codes, b.codes, adds, c);
    return true;
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
  const bool exact = c.fp8.exact, a_rows = sums_rows_of_a(of), b_rows = sums_rows_of_b(of);
  Operand a(s, p.a, a_rows, exact, 1), b(s, p.b, b_rows, exact, 2);
  const int64_t M = a.codes.codes.rows(), N = b.codes.codes.rows(), K = a_rows ? p.a.rows : p.a.columns;
  const Values before = normal_values(M * N, 3, 0.1);
  Field<TC> result(M, N, before, multiply.library ? 8 : 5);
  const Values start = result.read(s);
  ASSERT_TRUE(multiply(s, a, b, c.fp8.recipe, adds, result.view()));
  const Values found = result.read(s);
  const double slots = static_cast<double>(a.codes.slots.count());
  const double roundings = (slots + 2 + (exact ? 4 : 0)) * 0x1p-24;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      const auto at = static_cast<std::size_t>(m * N + n);
      const CutSum sum = sum_of(a.codes.slots, multiply.library, [&](int64_t k) {
        return term_of(a, a_rows ? k * M + m : m * K + k, b, b_rows ? k * N + n : n * K + k);
      });
      const double want = adds ? start[at] + sum.total : sum.total;
      const double error =
          sum.lost + roundings * sum.magnitude +
          (adds ? 0x1p-24 * (multiply.library ? slots : 1) * (std::abs(start[at]) + sum.magnitude) : 0);
      ASSERT_NEAR(found[at], want, error + roundoff_of_result<TC>() * (std::abs(want) + error))
          << M << " x " << N << " x " << K << ": " << m << ", " << n << ", product " << static_cast<int>(of);
    }
}

void check_products(Multiplier& multiply, const BufferContext& c, int64_t rows, const MatrixSplit& w, int rank) {
  for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient}) {
    if (!rounds_product(c.fp8, of)) continue;
    SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(c.fp8.recipe)) + ", rank " + std::to_string(rank));
    if (of == ProductOf::weight_gradient)
      check_product<float>(multiply, c, of, rows, w, rank, true);
    else
      check_product<bf16>(multiply, c, of, rows, w, rank, of == ProductOf::input_gradient);
  }
}

// What check_product() bounds, for rows of which each has a matrix of its group, or none.
void check_experts(const BufferContext& c, ProductOf of, const Groups& groups, const MatrixSplit& w, int rank) {
  const int64_t R = groups.end - groups.begin, G = groups.count();
  const ScaledProduct p = scaled_experts(c, of, R, w, rank);
  Stream s(1);
  const bool exact = c.fp8.exact, b_rows = sums_rows_of_b(of);
  Operand a(s, p.a, false, exact, 1), b(s, p.b, b_rows, exact, 2, G);
  const int64_t N = b_rows ? p.b.columns : p.b.rows, K = p.a.columns;
  const Buffer memory(groups.offsets.size() * sizeof(int64_t));
  copy_to_device(s, memory.data(), groups.offsets.data(), groups.offsets.size() * sizeof(int64_t));
  s.synchronize();
  Field<bf16> result(R, N, normal_values(R * N, 3), 5);
  const Values start = result.read(s);
  fp8_grouped_rows(s, {G, reinterpret_cast<const int64_t*>(memory.data()), 0, groups.begin, groups.end}, a.codes,
                   b.codes, result.view());
  const Values found = result.read(s);
  const double roundings = (static_cast<double>(a.codes.slots.count()) + 2 + (exact ? 4 : 0)) * 0x1p-24;
  for (int64_t m = 0; m < R; ++m)
    for (int64_t n = 0; n < N; ++n) {
      const auto at = static_cast<std::size_t>(m * N + n);
      const int64_t g = groups.of(m);
      if (g < 0) {
        ASSERT_EQ(found[at], start[at]) << "a row of no group";
        continue;
      }
      const CutSum sum = sum_of(a.codes.slots, false, [&](int64_t k) {
        return term_of(a, m * K + k, b, g * N * K + (b_rows ? k * N + n : n * K + k));
      });
      const double error = sum.lost + roundings * sum.magnitude;
      ASSERT_NEAR(found[at], sum.total, error + roundoff_of_result<bf16>() * (std::abs(sum.total) + error))
          << "row " << m << " of group " << g << ", column " << n << ", product " << static_cast<int>(of);
    }
}

class Fp8Product : public testing::Test {
 protected:
  void SetUp() override {
    if (capability() < 89) GTEST_SKIP() << "sm_" << capability() << " has no products of fp8";
  }
  Multiplier kernel, library{true};
};

// Two sums of weight gradients that an H100 made (80GB HBM3, 2026-11-26): bits that cutting all to the step of the
// largest exponent, 32 products at a time, gives, and neither another step nor exponents of normalized products.
TEST_F(Fp8Product, WeightGradientsHaveTheBitsOfAnH100) {
  if (capability() != 90) GTEST_SKIP() << "sm_" << capability() << " has no products of warpgroups";
  if (sum_step() != 0x1p-13) GTEST_SKIP() << "an emulated GPU without FORGE_VGPU_CUT_SUMS=1 rounds sums to fp32";
  struct Sum {
    Fp8Recipe recipe;
    std::size_t row, column;
    double value;
  };
  for (const Sum& each :
       {Sum{Fp8Recipe::current, 58, 88, -12.634858131408691}, Sum{Fp8Recipe::block, 10, 123, -8.4793701171875}}) {
    BufferContext c = context(each.recipe, 2, 3, 46);
    c.fp8.exact = true;
    c.fp8.transposed = each.recipe == Fp8Recipe::block;
    MatrixSplit w{split_lines(150), whole_lines(141)};
    w.rows.parts = {{{70, 1}, {15, 2}, {15, 2}}};
    const ScaledProduct p = scaled_product(c, ProductOf::weight_gradient, 69, w, 1);
    Stream s(1);
    const Operand a(s, p.a, true, true, 1), b(s, p.b, true, true, 2);
    Field<float> result(100, 141, normal_values(int64_t{100} * 141, 3, 0.1), 5);
    ASSERT_TRUE(kernel(s, a, b, each.recipe, true, result.view()));
    EXPECT_EQ(result.read(s)[each.row * 141 + each.column], each.value);
  }
}

// Extents of neither tiles nor slots, groups that tp cuts, several sequences, parts of a weight.
TEST_F(Fp8Product, EqualsThatOfRoundedNumbers) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block})
    for (const int rank : {0, 1}) {
      BufferContext c = context(recipe, 2, 3, 46);
      c.fp8.exact = rank == 1;
      c.fp8.transposed = recipe == Fp8Recipe::block;
      MatrixSplit w{split_lines(150), whole_lines(141)};
      if (rank == 1) w.rows.parts = {{{70, 1}, {15, 2}, {15, 2}}};
      check_products(kernel, c, rank == 0 ? 138 : 69, w, rank);
    }
}

// Groups of no, one, few and many rows, at multiples of a tile and beside them; rows before, behind and of no group;
// more groups than a warp has lanes; parts of an order. Widths beside tiles and slots, parts of a weight that etp cuts.
TEST_F(Fp8Product, OfExpertsEqualsThatOfRoundedNumbers) {
  Groups many{{0}, 0, 0};
  for (int64_t g = 0; g < 40; ++g) many.offsets.push_back(many.end += g % 3 == 0 ? 0 : g % 4);
  const MatrixSplit parts{{{{70, 1}, {20, 1}}, true}, whole_lines(141)}, wide{whole_lines(24), split_lines(260)};
  struct Case {
    Groups groups;
    MatrixSplit split;
    int rank;
  };
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block})
    for (const Case& each :
         {Case{{{3, 30, 31, 31, 290}, 0, 297}, parts, 0}, Case{{{0, 50, 51, 51, 300}, 40, 200}, wide, 1},
          Case{{{0, 128, 256, 257}, 0, 257}, wide, 0}, Case{many, parts, 1}, Case{{{0, 0, 0}, 0, 0}, parts, 0}})
      for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient}) {
        SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(recipe)));
        BufferContext c = context(recipe, 2, 1, 1);
        c.fp8.exact = each.rank == 1;
        check_experts(c, of, each.groups, each.split, each.rank);
        if (HasFatalFailure()) return;
      }
}

// cuBLASLt has scales of rows and blocks on sm_90 alone. Its blocks of 128 x 128 are counted from the first row:
// weights of which this rank has others (the second case of three) take a scale for each row of a block.
TEST_F(Fp8Product, OfTheLibraryEqualsThatOfRoundedNumbers) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block}) {
    if (fp8_scaling(recipe) != Fp8Scaling::tensor && capability() != 90) continue;
    for (const int which : {0, 1, 2}) {
      BufferContext c = context(recipe, 2, 3, 48);
      c.fp8.exact = which == 1;
      c.fp8.transposed = recipe == Fp8Recipe::block;
      MatrixSplit w{split_lines(256), whole_lines(144)};
      if (which == 1) w.rows.parts = {{{64, 1}, {16, 2}, {16, 2}}};
      if (which == 2) w = {whole_lines(176), split_lines(272)};
      check_products(library, c, which == 0 ? 144 : 72, w, which % 2);
    }
  }
}

// The slots of sequences are products of their own; a rank's first rows may be the end of one.
TEST_F(Fp8Product, OfTheLibrarySumsSequencesWithTheirOwnScales) {
  for (const int rank : {0, 1})
    check_products(library, context(Fp8Recipe::current, 2, 3, 304), 456, {whole_lines(32), whole_lines(144)}, rank);
}

// Extents that it doesn't take: C stays as it was.
TEST_F(Fp8Product, OfTheLibraryIsLeftToTheKernelElsewhere) {
  Stream s(1);
  for (const auto& [n, pitch] : {std::pair{24, 24}, {32, 36}}) {
    const ScaledProduct p = scaled_product(context(Fp8Recipe::delayed, 1, 1, 40), ProductOf::output, 40,
                                           {whole_lines(n), whole_lines(64)}, 0);
    Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
    Field<bf16> result(40, n, normal_values(40 * n, 3), pitch - n);
    const Values before = result.read(s);
    EXPECT_FALSE(library(s, a, b, Fp8Recipe::delayed, false, result.view()));
    EXPECT_EQ(result.read(s), before);
  }
}

// Sequences of more than a slot, cut by tp in the middle of one: the first groups that a rank has are ends.
TEST_F(Fp8Product, SequencesAreSummedWithTheirOwnScales) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::block})
    for (const int rank : {0, 1}) {
      BufferContext c = context(recipe, 2, 3, 300);
      c.fp8.transposed = recipe == Fp8Recipe::block;
      check_products(kernel, c, 450, {whole_lines(17), whole_lines(130)}, rank);
    }
}

// One number that isn't finite makes all NaN that its group of scales takes part in, and nothing else.
TEST_F(Fp8Product, GroupsThatAreNotFiniteSpoilTheirLines) {
  const BufferContext c = context(Fp8Recipe::row, 1, 1, 40);
  const ScaledProduct p = scaled_product(c, ProductOf::output, 40, {whole_lines(32), whole_lines(64)}, 0);
  Stream s(1);
  Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
  Values amax = a.amax.read(s);
  amax[33] = std::numeric_limits<double>::infinity();
  a.amax.write(amax);
  for (Multiplier* multiply : {&kernel, &library}) {
    if (multiply->library && capability() != 90) continue;
    Field<bf16> result(40, 32);
    ASSERT_TRUE((*multiply)(s, a, b, Fp8Recipe::row, false, result.view()));
    const Values found = result.read(s);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(std::isnan(found[i]), i / 32 == 33) << i;
  }
}

// Scales at both ends of fp32: neither 2^-118 nor its square becomes 0 or Inf on the way.
TEST_F(Fp8Product, ScalesOfAnySize) {
  for (const int exponent : {100, -100}) {
    const BufferContext c = context(Fp8Recipe::delayed, 1, 1, 16);
    const ScaledProduct p = scaled_product(c, ProductOf::output, 16, {whole_lines(16), whole_lines(32)}, 0);
    Stream s(1);
    Operand a(s, p.a, false, false, 1), b(s, p.b, false, false, 2);
    const auto set = [&](Operand& x, const ScaledOperand& o, int power) {
      Values v(static_cast<std::size_t>(o.rows * o.columns), std::ldexp(1, power));
      x.x.write(v);
      fp8_amax<bf16>(s, x.x.view(), o, x.partials.vector(), x.amax.vector());
      x.codes = fp8_encode(s, x.x.view(), o, false, false, x.amax.vector(), x.memory.vector());
    };
    set(a, p.a, exponent), set(b, p.b, -exponent);
    for (Multiplier* multiply : {&kernel, &library}) {
      Field<bf16> result(16, 16);
      ASSERT_TRUE((*multiply)(s, a, b, Fp8Recipe::delayed, false, result.view()));
      for (const double found : result.read(s)) ASSERT_EQ(found, 32);
    }
  }
}

}  // namespace
}  // namespace forge
