#include <cmath>
#include <functional>
#include <limits>

#include "config/fp8_format.hpp"
#include "config/fp8_recipe.hpp"
#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/fp8/fp8_round.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

// Kernels that leave the largest magnitudes of rows that they write, or raise those of groups of rows: no number is
// another for it, and groups have what take_amax() finds in what was written.

constexpr std::int64_t sequences = 2, tokens = 6, R = sequences * tokens;
const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");

// With tp, R rows are a rank's part of all.
BufferContext context(Fp8Recipe recipe, const Microbatch& microbatch = {sequences, tokens, 1}, int tp = 1) {
  BufferContext c;
  c.microbatch = microbatch;
  c.tp = tp;
  c.rounding.on = true;
  c.rounding.recipe = recipe;
  return c;
}

// Numbers whose rows differ in magnitude, a row's largest one anywhere in it. Row 1 has nothing but zeros; of the
// second sequence one number is not finite.
Values numbers(std::int64_t columns, std::uint64_t seed, double spoiled) {
  Values x = normal_values(R * columns, seed, 1);
  for (std::int64_t r = 0; r < R; ++r) {
    for (std::int64_t j = 0; j < columns; ++j) x[to_size(r * columns + j)] *= r == 1 ? 0 : std::exp2(r % 5 - 2.0);
    x[to_size(r * columns + (r * 7) % columns)] *= 9;
  }
  x[to_size((R - 2) * columns + columns - 1)] = spoiled;
  return x;
}

// kernel(stream, amax) writes y.
template <class T>
void check(const char* what, Field<T>& y, const std::function<void(Stream&, RowAmaxes)>& kernel) {
  SCOPED_TRACE(::testing::Message() << what << ", " << y.columns << " columns");
  Stream s(2);
  kernel(s, {});
  const Values plain = y.read(s);
  y.write(Values(plain.size(), 1.0));
  const Field<float> rows(1, R, Values(to_size(R), -1.0));
  kernel(s, {rows.data()});
  ASSERT_TRUE(same_bits(y.read(s), plain));
  Values most;
  for (std::int64_t r = 0; r < R; ++r) {
    double here = 0;
    for (std::int64_t j = 0; j < y.columns; ++j) {
      const double v = std::abs(plain[to_size(r * y.columns + j)]);
      here = v <= here ? here : std::isfinite(v) ? static_cast<double>(static_cast<float>(v)) : inf;
    }
    most.push_back(here);
  }
  ASSERT_TRUE(same_bits(rows.read(s), most));
  EXPECT_EQ(most[to_size(R - 2)], inf);
  // The second half of three sequences of 8 tokens begins in the middle of one.
  const MatrixSplit w{whole_lines(3), whole_lines(y.columns)};
  const ScaledOperand operands[] = {
      scaled_product(context(Fp8Recipe::current), ProductOf::output, R, w, 0).a,
      scaled_product(context(Fp8Recipe::current, {3, 8, 1}, 2), ProductOf::output, R, w, 1).a,
      scaled_product(context(Fp8Recipe::row), ProductOf::output, R, w, 0).a,
      scaled_product(context(Fp8Recipe::delayed), ProductOf::output, R, w, 0).a,
  };
  Values of(to_size(R), 4.0);
  for (const std::size_t filler : {0, 5, 6, 10}) of[filler] = -1;
  const Field<std::int64_t> samples(1, R, of);
  for (const ScaledOperand& o : operands)
    for (const bool filler : {false, true}) {
      const View<const std::int64_t, 1> at = filler ? samples.vector() : View<std::int64_t, 1>();
      const Field<float> expected(1, o.groups()), of_rows(1, o.groups());
      take_amax<T>(s, y.view(), o, expected.vector(), 1, at);
      const RowAmaxes to{of_rows.data(), !o.by_row.alone(R), o.by_row.shift[0], o.by_row.each, at.data};
      for (int pass = 0; pass < 2; ++pass) kernel(s, to);  // as where it is recomputed
      ASSERT_TRUE(same_bits(of_rows.read(s), expected.read(s))) << &o - operands << filler;
    }
}

// kernel(stream, amax) writes y, whose numbers the codes are of: some saturate, and zeros stand behind a row's end.
template <class T>
void check_codes(const char* what, const Field<T>& y, const std::function<void(Stream&, RowAmaxes)>& kernel) {
  SCOPED_TRACE(::testing::Message() << what << ", codes of " << y.columns << " columns");
  Stream s(2);
  const std::int64_t pitch = (y.columns + scale_width - 1) / scale_width * scale_width;
  const Field<float> amax(1, 1, Values{1.75}), seen(1, 1, Values{0.0});
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2})
    for (const bool exact : {false, true}) {
      const Field<std::uint8_t> codes(1, R * pitch, Values(to_size(R * pitch), 1.0));
      RowAmaxes to;
      if (exact) to = {seen.data(), true, 0, R};
      to.codes = {codes.data(), pitch, amax.data(), format, exact};
      kernel(s, to);
      const Values numbers = y.read(s), found = codes.read(s);
      for (std::int64_t i = 0; i < R * pitch; ++i) {
        const std::int64_t r = i / pitch, j = i % pitch;
        const auto number = j < y.columns ? static_cast<float>(numbers[to_size(r * y.columns + j)]) : 0.0f;
        const auto code = static_cast<std::uint8_t>(found[to_size(i)]);
        if (std::isnan(number))
          ASSERT_EQ(code & 0x7f, 0x7f);
        else
          ASSERT_EQ(code, fp8_code(round_to_fp8(number * fp8_scale(1.75f, format, exact), format), format)) << r << j;
      }
    }
  EXPECT_EQ(seen.read(s)[0], inf);
}

template <class T>
void check_kernels(std::int64_t C, double spoiled) {
  using A = acc_t<T>;
  Field<T> x(R, C, numbers(C, 1, spoiled), 3), more(R, C, normal_values(R * C, 2)),
      up(R, 2 * C, numbers(2 * C, 3, spoiled)), w(1, C, normal_values(C, 4)), b(1, C, normal_values(C, 5)), y(R, C, 1),
      y2(R, 2 * C), h(R, C);
  const Field<A> mean(1, R), rstd(1, R);
  const auto of_activation = [&](const char* what, Field<T>& written, const auto& kernel) {
    check<T>(what, written, kernel);
    check_codes<T>(what, written, kernel);
  };
  of_activation("swiglu forward", y,
                [&](Stream& s, const RowAmaxes& amax) { swiglu_forward<T>(s, up.view(), y.view(), amax); });
  of_activation("swiglu backward", y2, [&](Stream& s, const RowAmaxes& amax) {
    swiglu_backward<T>(s, up.view(), more.view(), y2.view(), amax);
  });
  for (const Pointwise which : {Pointwise::gelu, Pointwise::gelu_tanh, Pointwise::relu2}) {
    of_activation("pointwise forward", y,
                  [&](Stream& s, const RowAmaxes& amax) { pointwise_forward<T>(s, which, x.view(), y.view(), amax); });
    of_activation("pointwise backward", y, [&](Stream& s, const RowAmaxes& amax) {
      pointwise_backward<T>(s, which, more.view(), x.view(), y.view(), amax);
    });
  }
  check<T>("rmsnorm", y, [&](Stream& s, const RowAmaxes& amax) {
    rmsnorm_forward<T>(s, x.view(), w.vector(), 1e-5, y.view(), rstd.vector(), amax);
  });
  check<T>("residual and rmsnorm", y, [&](Stream& s, const RowAmaxes& amax) {
    residual_rmsnorm_forward<T>(s, more.view(), x.view(), w.vector(), 1e-5, h.view(), y.view(), rstd.vector(), amax);
  });
  check<T>("layernorm", y, [&](Stream& s, const RowAmaxes& amax) {
    layernorm_forward<T>(s, x.view(), w.vector(), b.vector(), 1e-5, y.view(), mean.vector(), rstd.vector(), amax);
  });
  check<T>("residual and layernorm", y, [&](Stream& s, const RowAmaxes& amax) {
    residual_layernorm_forward<T>(s, more.view(), x.view(), w.vector(), b.vector(), 1e-5, h.view(), y.view(),
                                  mean.vector(), rstd.vector(), amax);
  });
}

// Columns that fill no pack of 16 bytes, some that do, and more than a block's registers keep of fp64.
template <class T>
void check_columns() {
  for (const std::int64_t C : {1, 3, 17, 64, 127, 1000, 2309})
    for (const double spoiled : {nan, inf}) check_kernels<T>(C, spoiled);
}

TEST(MeasuredRows, fp64) {
  check_columns<double>();
}
TEST(MeasuredRows, fp32) {
  check_columns<float>();
}
TEST(MeasuredRows, bf16) {
  check_columns<bf16>();
}

}  // namespace
}  // namespace forge
