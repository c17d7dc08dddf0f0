#include "config/fp8_recipe.hpp"
#include "kernels/fp8/fp8_encode.hpp"
#include "kernels/fp8/fp8_round.hpp"

#include <algorithm>
#include <limits>

#include "fixture.hpp"
#include "fp8/codes.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

constexpr Fp8Format formats[] = {Fp8Format::e4m3, Fp8Format::e5m2};

// What a code stands for, by the specification's own words: (−1)^S 2^(E − bias) (1 + M / 2^m), or (−1)^S 2^(1 − bias)
// M / 2^m where E is 0; NaN and Inf as the format says.
double value_of(int code, Fp8Format format) {
  const bool e4 = format == Fp8Format::e4m3;
  const int m = e4 ? 3 : 2, bias = e4 ? 7 : 15, S = code >> 7, E = (code & 127) >> m, M = code & ((1 << m) - 1);
  const int last = e4 ? 15 : 31;
  if (e4 && E == last && M == 7) return std::numeric_limits<double>::quiet_NaN();
  if (!e4 && E == last)
    return M > 0 ? std::numeric_limits<double>::quiet_NaN() : (S ? -1 : 1) * std::numeric_limits<double>::infinity();
  const double fraction = static_cast<double>(M) / (1 << m);
  const double magnitude = E == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, E - bias);
  return S ? -magnitude : magnitude;
}

// Codes of finite numbers, from the least magnitude up: 126 of e4m3 behind 0, 123 of e5m2.
std::vector<int> finite_codes(Fp8Format format) {
  std::vector<int> codes;
  for (int code = 0; code < 128; ++code)
    if (std::isfinite(value_of(code, format))) codes.push_back(code);
  return codes;
}

template <class T>
void check_conversions(Fp8Format format) {
  const std::vector<int> codes = finite_codes(format);
  ASSERT_EQ(codes.size(), format == Fp8Format::e4m3 ? 127u : 124u);
  const auto code_of = [&](T x) {
    return static_cast<int>(fp8_code(static_cast<float>(round_to_fp8(x, format)), format));
  };
  for (const int sign : {0, 128}) {
    const T s = sign ? T(-1) : T(1);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const int code = codes[i] | sign;
      const T here = T(value_of(code, format));
      ASSERT_EQ(round_to_fp8(here, format), here);
      ASSERT_EQ(code_of(here), code);
      if (i + 1 == codes.size()) continue;
      const T next = T(value_of(codes[i + 1] | sign, format)), middle = (here + next) / 2;
      ASSERT_EQ(code_of(middle), (codes[i] % 2 ? codes[i + 1] : codes[i]) | sign) << "a tie behind code " << code;
      ASSERT_EQ(code_of(std::nextafter(middle, here)), code);
      ASSERT_EQ(code_of(std::nextafter(middle, next)), codes[i + 1] | sign);
    }
    const T largest = T(layout_of(format).largest);
    for (const T beyond : {largest, largest * T(1.01), largest * T(1.5), std::numeric_limits<T>::max(),
                           std::numeric_limits<T>::infinity()})
      ASSERT_EQ(code_of(s * beyond), codes.back() | sign);
    ASSERT_EQ(code_of(s * std::numeric_limits<T>::min()), sign);
  }
  EXPECT_TRUE(std::isnan(round_to_fp8(std::numeric_limits<T>::quiet_NaN(), format)));
  EXPECT_TRUE(std::isnan(value_of(fp8_code(std::numeric_limits<float>::quiet_NaN(), format), format)));
}

TEST(Fp8, ConversionsFollowTheTables) {
  EXPECT_EQ(value_of(0x7e, Fp8Format::e4m3), 448);
  EXPECT_EQ(value_of(0x01, Fp8Format::e4m3), std::ldexp(1, -9));
  EXPECT_EQ(value_of(0x7b, Fp8Format::e5m2), 57344);
  EXPECT_EQ(value_of(0x01, Fp8Format::e5m2), std::ldexp(1, -16));
  for (const Fp8Format format : formats) {
    check_conversions<float>(format);
    check_conversions<double>(format);
  }
}

TEST(Fp8, ScalesAreTheLargestThatFit) {
  for (const Fp8Format format : formats) {
    const double largest = layout_of(format).largest;
    EXPECT_EQ(fp8_scale(0, format, false), 1);
    EXPECT_EQ(fp8_scale(0, format, true), 1);
    EXPECT_EQ(fp8_scale(static_cast<float>(largest), format, false), 1);
    EXPECT_EQ(fp8_scale(std::nextafter(static_cast<float>(largest), 1e9f), format, false), 0.5f);
    for (int i = 0; i < 4000; ++i) {
      const auto amax = static_cast<float>(std::exp(40 * normal(5, static_cast<std::uint64_t>(i)) / 2));
      const double scale = fp8_scale(amax, format, false);
      if (scale == std::ldexp(1, 126) || amax < std::numeric_limits<float>::min()) continue;
      int exponent = 0;
      ASSERT_EQ(std::frexp(scale, &exponent), 0.5);
      ASSERT_LE(amax * scale, largest);
      ASSERT_GT(amax * scale * 2, largest);
      ASSERT_NEAR(fp8_scale(amax, format, true) * static_cast<double>(amax), largest, 2e-7 * largest);
    }
    EXPECT_TRUE(std::isfinite(fp8_scale(std::numeric_limits<float>::min(), format, true)));
    EXPECT_TRUE(std::isnormal(fp8_scale(std::numeric_limits<float>::max(), format, false)));
  }
}

// ---- groups

BufferContext context(Fp8Recipe recipe, int tp, int cp, int64_t sequences, int64_t tokens) {
  BufferContext c;
  c.microbatch = {sequences, tokens, cp};
  c.tp = c.etp = tp;
  c.rounding.on = true;
  c.rounding.recipe = recipe;
  return c;
}

// Each group of the whole matrix has the lines that it has on the ranks together, copies once.
TEST(Fp8, BlocksAreThoseOfTheWholeTensor) {
  for (const int tp : {1, 2, 4}) {
    const int64_t copies = tp == 4 ? 2 : 1, keys = 300 * copies / tp;
    MatrixLines rows = split_lines(520 / tp);
    rows.parts.push_back({keys, copies});
    rows.parts.push_back({keys, copies});
    const int64_t bases[] = {0, 5, 8};  // blocks of 520 lines, then of 300
    for (int rank = 0; rank < tp; ++rank) {
      const auto p =
          scaled_product(context(Fp8Recipe::block, tp, 1, 1, 4), ProductOf::output, 4, {rows, whole_lines(7)}, rank);
      const ScaleLines& g = p.b.by_row;
      ASSERT_EQ(g.count, 11);
      int64_t line = 0;
      for (std::size_t part = 0; part < 3; ++part)
        for (int64_t i = 0; i < rows.parts[part].count; ++i, ++line) {
          const int64_t whole = rank / rows.parts[part].copies * rows.parts[part].count + i;
          ASSERT_EQ(g.group_of(line), bases[part] + whole / scale_width) << tp << " " << rank << " " << line;
          const ScaleLines::Range range = g.lines_of(g.group_of(line));
          ASSERT_TRUE(range.begin <= line && line < range.end);
        }
      for (int64_t group = 0; group < g.count; ++group) {
        const ScaleLines::Range range = g.lines_of(group);
        for (int64_t i = range.begin; i < range.end; ++i) ASSERT_EQ(g.group_of(i), group);
      }
      EXPECT_EQ(p.b.by_column.count, 1);
      EXPECT_EQ(p.b.over_tp, tp > 1);
    }
  }
}

// Slots of codes: all lines of a depth in their order, at most 128 each, of one group; a new one for each group.
void check_slots(const ScaleLines& depth, int64_t lines) {
  const Fp8Slots slots = fp8_slots(depth);
  int64_t line = 0, last = -1, before = 0;
  for (int32_t s = 0; s < slots.count(); ++s) {
    const Fp8Slots::Lines here = slots.lines_of(s);
    ASSERT_EQ(here.begin, line);
    ASSERT_TRUE(here.begin < here.end && here.end <= here.begin + 128) << s;
    ASSERT_EQ(slots.group_of(s), here.group);
    ASSERT_EQ(depth.group_of(here.begin), here.group);
    ASSERT_EQ(depth.group_of(here.end - 1), here.group);
    ASSERT_TRUE(here.group != last || before == 128) << "a slot that isn't full, and its group goes on";
    before = here.end - here.begin, line = here.end, last = here.group;
  }
  ASSERT_EQ(line, lines);
}

TEST(Fp8, SlotsOfCodesHaveOneGroupEach) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block})
    for (const int rank : {0, 1, 2, 3})
      for (const bool transposed : {false, true}) {
        BufferContext c = context(recipe, 4, 1, 3, 400);
        c.rounding.transposed = transposed;
        MatrixSplit w{split_lines(130), whole_lines(300)};
        w.rows.parts.push_back({257, 2});
        w.rows.parts.push_back({257, 2});
        for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient})
          for (const int64_t rows : {1200, 300}) {
            if (!rounds_product(c.rounding, of)) continue;
            const ScaledProduct p = scaled_product(c, of, rows, w, rank);
            check_slots(sums_rows_of_a(of) ? p.a.by_row : p.a.by_column, sums_rows_of_a(of) ? p.a.rows : p.a.columns);
            check_slots(sums_rows_of_b(of) ? p.b.by_row : p.b.by_column, sums_rows_of_b(of) ? p.b.rows : p.b.columns);
          }
      }
}

// ---- kernels

template <class T>
void check_operand(const ScaledOperand& o, bool exact, bool spoiled) {
  const int64_t R = o.rows, N = o.columns, G = o.by_column.count;
  Values values = normal_values(R * N, 3, 1e-3);
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) values[static_cast<std::size_t>(r * N + j)] *= std::exp(static_cast<double>(j % 7));
  const auto bad = static_cast<std::size_t>(R * N / 2);
  if (spoiled) values[bad] = std::numeric_limits<double>::quiet_NaN();
  Field<T> x(R, N, values, 3), y(R, N, 1);
  Field<float> amax(1, o.groups(), Values(static_cast<std::size_t>(o.groups()), 9e9));  // what stood there is gone
  Stream s(1);
  take_amax<T>(s, x.view(), o, amax.vector());
  fp8_round<T>(s, x.view(), o, exact, amax.vector(), y.view());
  const Values in = x.read(s), out = y.read(s), found = amax.read(s);
  Values most(static_cast<std::size_t>(o.groups()), 0.0);
  const auto group = [&](int64_t r, int64_t j) {
    return static_cast<std::size_t>(o.by_row.group_of(r) * G + o.by_column.group_of(j));
  };
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) {
      const double a = std::abs(in[static_cast<std::size_t>(r * N + j)]);
      double& m = most[group(r, j)];
      m = std::isnan(a) ? std::numeric_limits<double>::infinity()
                        : std::max(m, static_cast<double>(static_cast<float>(a)));
    }
  ASSERT_TRUE(same_bits(found, most));
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) {
      const auto i = static_cast<std::size_t>(r * N + j);
      const double a = most[group(r, j)];
      if (!std::isfinite(a)) {
        ASSERT_TRUE(std::isnan(out[i]));
        continue;
      }
      const double scale = fp8_scale(static_cast<float>(a), o.format, exact);
      const double code = round_to_fp8(in[i] * scale, o.format);
      // The product with an exact scale, and its quotient, round in the type that the kernel computes in.
      const double step = exact ? std::abs(code) * 0.25 + std::ldexp(1, -9) : 0;
      ASSERT_NEAR(out[i] * scale, code, (exact ? (sizeof(T) == 8 ? 1e-15 * std::abs(code) : step) : 0));
    }
}

TEST(Fp8, KernelsRoundEachGroupWithItsOwnScale) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block})
    for (const bool exact : {false, true})
      for (const bool spoiled : {false, true}) {
        if (exact && spoiled) continue;
        const BufferContext c = context(recipe, 2, 1, 3, 6);
        const MatrixSplit w{split_lines(150), whole_lines(141)};
        for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient, ProductOf::weight_gradient})
          for (const int64_t rows : {18, 9})  // all, or a tp rank's own
            for (const int rank : {0, 1}) {
              const ScaledProduct p = scaled_product(c, of, rows, w, rank), e = scaled_experts(c, of, rows, w, rank);
              for (const ScaledOperand& o : {p.a, p.b, e.a}) {
                check_operand<double>(o, exact, spoiled);
                check_operand<float>(o, exact, spoiled);
                check_operand<bf16>(o, exact, spoiled);
              }
            }
      }
}

// Parts of two matrices, cut anywhere: their largest magnitudes together are those of each matrix, and what their codes
// stand for are the bits of the rounded matrix.
template <class T>
void check_codes(const ScaledOperand& o, bool exact, bool spoiled) {
  const int64_t each = o.rows * o.columns, n = 2 * each, groups = 2 * o.groups();
  Values values = normal_values(n, 5, 1e-3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= std::exp(static_cast<double>(i % 7));
  if (spoiled) values[static_cast<std::size_t>(each + 5)] = std::numeric_limits<double>::infinity();
  const Field<T> x(1, n, values), decoded(1, n), rounded(1, n);
  const Field<float> expected(1, groups), of_parts(1, groups), at_once(1, groups);
  const Field<std::uint8_t> codes(1, n);
  const int64_t cuts[] = {0, 7, o.columns, each - 3, each + o.columns + 1, n};
  Stream s(1);
  for (int i = 0; i < 5; ++i)
    fp8_amax_of_part<T>(s, x.vector().slice(cuts[i], cuts[i + 1]), cuts[i], o, of_parts.vector());
  for (int64_t m = 0; m < 2; ++m) {
    const View<float, 1> own = expected.vector().slice(m * o.groups(), (m + 1) * o.groups());
    const View<T, 2> matrix(x.data() + m * each, {{o.rows, o.columns}}), y(rounded.data() + m * each, matrix.extents);
    take_amax<T>(s, matrix, o, own);
    fp8_round<T>(s, matrix, o, exact, own, y);
  }
  ASSERT_TRUE(same_bits(of_parts.read(s), expected.read(s)));
  // Both at once.
  const Field<T> rounded_at_once(1, n);
  const View<const T, 2> both(x.data(), {{2 * o.rows, o.columns}});
  take_amax<T>(s, both, o, at_once.vector(), 2);
  fp8_round<T>(s, both, o, exact, expected.vector(), View<T, 2>(rounded_at_once.data(), {{2 * o.rows, o.columns}}), 2);
  ASSERT_TRUE(same_bits(at_once.read(s), expected.read(s)));
  ASSERT_TRUE(same_bits(rounded_at_once.read(s), rounded.read(s)));
  for (int i = 0; i < 5; ++i)
    fp8_encode<T>(s, x.vector().slice(cuts[i], cuts[i + 1]), cuts[i], o, exact, expected.vector(),
                  codes.vector().slice(cuts[i], cuts[i + 1]));
  fp8_decode<T>(s, codes.vector(), o, exact, expected.vector(), decoded.vector());
  ASSERT_TRUE(same_bits(decoded.read(s), rounded.read(s)));
}

TEST(Fp8, CodesOfPartsStandForRoundedNumbers) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::block})
    for (const bool exact : {false, true})
      for (const bool spoiled : {false, true})
        for (const int rank : {0, 1}) {
          const BufferContext c = context(recipe, 2, 1, 3, 6);
          const ScaledOperand w =
              scaled_product(c, ProductOf::output, 18, {split_lines(150), whole_lines(141)}, rank).b;
          check_codes<double>(w, exact, spoiled);
          check_codes<float>(w, exact, spoiled);
          check_codes<bf16>(w, exact, spoiled);
        }
}

// 128 rows of a sequence and one column: groups begin anew in each sequence, and tp ranks' own rows are counted among
// all.
TEST(Fp8, TransposedCopiesHaveGroupsOfASequencesRows) {
  BufferContext c = context(Fp8Recipe::block, 2, 1, 3, 150);
  c.rounding.transposed = true;
  const MatrixSplit w{split_lines(5), whole_lines(7)};
  for (const int64_t rows : {450, 225})
    for (const int rank : {0, 1}) {
      const ScaledProduct p = scaled_product(c, ProductOf::weight_gradient, rows, w, rank);
      const ScaleLines& g = p.a.by_row;
      ASSERT_EQ(g.count, 6);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = i + (rows == 225 ? rank * rows : 0);
        ASSERT_EQ(g.group_of(i), row / 150 * 2 + row % 150 / 128) << i;
        const ScaleLines::Range range = g.lines_of(g.group_of(i));
        ASSERT_TRUE(range.begin <= i && i < range.end);
        for (int64_t j = range.begin; j < range.end; ++j) ASSERT_EQ(g.group_of(j), g.group_of(i));
      }
      EXPECT_EQ(p.a.by_column.count, 5);
      EXPECT_EQ(p.b.by_column.count, 7);
      EXPECT_EQ(p.b.over_tp, rows == 225);
      EXPECT_EQ(p.a.format, Fp8Format::e4m3);
      for (const ScaledOperand& o : {p.a, p.b}) {
        check_operand<double>(o, false, false);
        check_operand<bf16>(o, false, true);
      }
    }
}

TEST(Fp8, OutputGradientsHaveTheWiderFormat) {
  const MatrixSplit w{whole_lines(8), whole_lines(8)};
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block}) {
    const BufferContext c = context(recipe, 1, 1, 1, 4);
    const Fp8Format wide = recipe == Fp8Recipe::block ? Fp8Format::e4m3 : Fp8Format::e5m2;
    EXPECT_EQ(scaled_product(c, ProductOf::output, 4, w, 0).a.format, Fp8Format::e4m3);
    EXPECT_EQ(scaled_product(c, ProductOf::output, 4, w, 0).b.format, Fp8Format::e4m3);
    EXPECT_EQ(scaled_product(c, ProductOf::input_gradient, 4, w, 0).a.format, wide);
    EXPECT_EQ(scaled_product(c, ProductOf::input_gradient, 4, w, 0).b.format, Fp8Format::e4m3);
    EXPECT_EQ(scaled_product(c, ProductOf::weight_gradient, 4, w, 0).a.format, wide);
    EXPECT_EQ(scaled_product(c, ProductOf::weight_gradient, 4, w, 0).b.format, Fp8Format::e4m3);
  }
}

// A token's scale is its own, wherever its row stands among an expert's; blocks of columns are those of all etp ranks.
TEST(Fp8, RowsOfExpertsHaveScalesOfTheirOwn) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block}) {
    BufferContext c = context(recipe, 2, 2, 3, 8);
    c.spec.options.experts = 8;
    c.ep = 2;
    const MatrixSplit down{whole_lines(141), split_lines(150)};  // of 300 columns
    const ScaledProduct p = scaled_experts(c, ProductOf::output, 5, down, 1);
    EXPECT_EQ(p.a.by_row.count, 5);
    EXPECT_EQ(p.a.by_column.count, recipe == Fp8Recipe::block ? 3 : 1);
    EXPECT_EQ(p.a.by_column.group_of(0), recipe == Fp8Recipe::block ? 150 / scale_width : 0);
    EXPECT_TRUE(p.a.over_tp);
    EXPECT_FALSE(p.a.over_cp);
    EXPECT_EQ(p.splitters(), Group::etp);
    EXPECT_EQ(p.groups(), p.a.groups() + 4 * p.b.groups());
    EXPECT_FALSE(scaled_experts(c, ProductOf::input_gradient, 5, down, 1).a.over_tp);
  }
}

// The largest magnitude of all rows but filler's, beside what was there, is found by the kernel that rounds them.
template <class T>
void check_seen(Fp8Format format) {
  const int64_t R = 37, N = 141;
  ScaledOperand o =
      scaled_product(context(Fp8Recipe::delayed, 1, 1, 1, R), ProductOf::output, R, {{}, whole_lines(N)}, 0).a;
  o.format = format;
  Values samples(static_cast<std::size_t>(R), 4.0);
  samples[2] = -1;
  const Field<int64_t> of_rows(1, R, samples);
  Stream s(1);
  for (const double before : {0.0, 1e4})
    for (const double last : {5.0, -700.0, std::numeric_limits<double>::quiet_NaN()}) {
      Values values = normal_values(R * N, 3, 0.1);
      values.back() = last;
      values[2 * N + 70] = 1e6;  // of filler
      const Field<T> x(R, N, values, 3), y(R, N, 1);
      const Field<float> amax(1, 1, Values{3}), seen(1, 1, Values{before});
      fp8_round<T>(s, x.view(), o, false, amax.vector(), y.view(), 1, seen.vector(), of_rows.vector());
      const double want = std::isnan(last) ? std::numeric_limits<double>::infinity() : std::max(before, std::abs(last));
      EXPECT_EQ(seen.read(s)[0], want) << before << ", " << last;
    }
}

TEST(Fp8, RoundingFindsTheLargestMagnitude) {
  check_seen<double>(Fp8Format::e4m3);
  check_seen<float>(Fp8Format::e5m2);
  check_seen<bf16>(Fp8Format::e4m3);
}

TEST(Fp8, LargestOfRanks) {
  Field<float> gathered(3, 2, {1, 5, 3, 0, 2, 7}), amax(1, 2);
  Stream s(1);
  fp8_amax_of_ranks(s, 3, gathered.vector(), amax.vector());
  EXPECT_EQ(amax.read(s), (Values{3, 7}));
}

}  // namespace
}  // namespace forge
