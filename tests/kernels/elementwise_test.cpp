#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/order_rows.hpp"

namespace forge {
namespace {

using namespace reference;

const std::int64_t sizes[] = {1, 3, 17, 64, 127, 4096, 10001};

template <class From, class To>
void check_convert() {
  for (const auto n : sizes) {
    Field<From> from(1, n, normal_values(n, 1));
    Field<To> to(1, n);
    Stream s(2);
    convert<From, To>(s, from.vector(), to.vector());
    Values expected = from.read(s);
    for (double& x : expected) x = static_cast<double>(To(x));
    EXPECT_TRUE(same_bits(to.read(s), expected));
  }
}

TEST(Elementwise, convert_rounds_once) {
  check_convert<double, double>();
  check_convert<double, float>();
  check_convert<double, bf16>();
  check_convert<float, double>();
  check_convert<float, float>();
  check_convert<float, bf16>();
  check_convert<bf16, double>();
  check_convert<bf16, float>();
  check_convert<bf16, bf16>();
}

// Rows of a tensor, as a shard has them: of every number of threads, and of every device, as tests run everywhere, the
// bits that one thread draws number by number.
template <class T>
void check_normal() {
  const NormalNumbers numbers{77, 0.25, 1.5};
  const std::int64_t first = (std::int64_t{1} << 32) - 9, pitch = 20011;
  for (const std::int64_t n : {1, 7, 8192, 20003}) {
    expect_same_on_any_threads([&](Stream& s) {
      Field<T> to(3, n);
      fill_normal(s, numbers, first, pitch, to.view());
      const Values drawn = to.read(s);
      for (std::int64_t i = 0; i < 3 * n; ++i) {
        const double number = numbers(first + i / n * pitch + i % n);
        EXPECT_EQ(drawn[to_size(i)], static_cast<double>(T(static_cast<acc_t<T>>(number)))) << i;
      }
      return drawn;
    });
  }
}

TEST(Elementwise, fill_normal_draws_each_number_alone) {
  check_normal<double>();
  check_normal<float>();
  check_normal<bf16>();
}

template <class T>
void check_soft_cap() {
  using A = acc_t<T>;
  const double cap = 3;
  Stream s(2);
  for (const std::int64_t n : {1, 17, 127, 4097}) {
    Field<A> y(3, n, normal_values(3 * n, 1, 4), 2);
    Field<T> d(3, n, normal_values(3 * n, 2), 1);
    const Values x = y.read(s), before = d.read(s);
    soft_cap<A>(s, y.view(), cap);
    soft_cap_backward<T>(s, y.view(), cap, d.view());
    const Values got = y.read(s), slopes = d.read(s);
    const double eps = std::is_same_v<A, double> ? 1e-15 : 5e-7, eps_d = std::is_same_v<T, bf16> ? 0.004 : 4 * eps;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double share = std::tanh(x[i] / cap);
      EXPECT_NEAR(got[i], cap * share, cap * eps);
      EXPECT_NEAR(slopes[i], before[i] * (1 - share * share), eps_d * std::abs(before[i]));
    }
  }
}

TEST(Elementwise, soft_cap_and_its_slope) {
  check_soft_cap<double>();
  check_soft_cap<float>();
  check_soft_cap<bf16>();
}

template <class T>
void check_sums() {
  using N = Tracked<acc_t<T>>;
  Stream s(2);
  for (const auto n : sizes) {
    Field<T> x(1, n, normal_values(n, 1)), y(1, n, normal_values(n, 2));
    std::vector<N> expected;
    const Values xs = x.read(s), ys = y.read(s);
    for (std::size_t i = 0; i < xs.size(); ++i) expected.push_back(N(xs[i]) + N(ys[i]));
    add<T>(s, x.vector(), y.vector());
    expect_close<T>(y.read(s), expected, "add");
  }
  for (const std::int64_t n : {1, 3, 17, 64, 127}) {
    const std::int64_t R = 5;
    Field<T> x(R, n, normal_values(R * n, 1), 3), bias(1, n, normal_values(n, 2)), copy(R, n, 7);
    const Values xs = x.read(s), bs = bias.read(s);
    copy_rows<T>(s, x.view(), copy.view());
    EXPECT_TRUE(same_bits(copy.read(s), xs));
    std::vector<N> expected;
    for (std::size_t i = 0; i < xs.size(); ++i) expected.push_back(N(xs[i]) + N(bs[i % static_cast<std::size_t>(n)]));
    add_bias<T>(s, bias.vector(), x.view());
    expect_close<T>(x.read(s), expected, "add_bias");
  }
}

// Rows of the compute type and their sums in the accumulation type, with pitches of their own.
template <class T>
void check_rows() {
  using A = acc_t<T>;
  Stream s(2);
  for (const std::int64_t R : {1, 5})
    for (const std::int64_t n : {1, 3, 17, 64, 127}) {
      Field<T> x(R, n, normal_values(R * n, 1), 3), back(R, n, 1);
      Field<A> y(R, n, normal_values(R * n, 2), 2), wide(R, n, 5);
      const Values xs = x.read(s), ys = y.read(s);
      convert_rows<T, A>(s, x.view(), wide.view());
      EXPECT_TRUE(same_bits(wide.read(s), xs));
      accumulate<T>(s, x.view(), y.view());
      Values sums;
      for (std::size_t i = 0; i < xs.size(); ++i) sums.push_back(static_cast<double>(A(A(ys[i]) + A(xs[i]))));
      EXPECT_TRUE(same_bits(y.read(s), sums));
      convert_rows<A, T>(s, y.view(), back.view());
      for (double& v : sums) v = static_cast<double>(T(v));
      EXPECT_TRUE(same_bits(back.read(s), sums));
    }
}

TEST(Elementwise, rows_and_their_sums) {
  check_rows<double>();
  check_rows<float>();
  check_rows<bf16>();
}

// ---- blocks
// -----------------------------------------------------------------------------------------------------------

// `groups` groups of `width` columns on `blocks` ranks, `places` of them on each.
template <class T>
void check_blocks(std::int64_t R, std::int64_t groups, std::int64_t width, std::int64_t blocks, std::int64_t places) {
  using N = Tracked<acc_t<T>>;
  SCOPED_TRACE(::testing::Message() << R << " rows, " << groups << " groups of " << width << " in " << blocks << " x "
                                    << places);
  Field<T> from(R, groups * width, normal_values(R * groups * width, 1), 3), to(blocks * R, places * width, 2),
      back(R, groups * width, 1);
  Stream s(2);
  const Values x = from.read(s);
  const std::int64_t copies = blocks * places / groups;
  Values want;
  std::vector<N> sums;
  for (std::int64_t p = 0; p < blocks; ++p)
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t i = 0; i < places; ++i)
        for (std::int64_t j = 0; j < width; ++j)
          want.push_back(x[static_cast<std::size_t>((r * groups + (p * places + i) / copies) * width + j)]);
  columns_to_blocks<T>(s, from.view(), blocks, width, to.view());
  EXPECT_TRUE(same_bits(to.read(s), want));

  to.write(normal_values(blocks * R * places * width, 2));
  const Values y = to.read(s);
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t j = 0; j < width; ++j)
        sums.push_back(sum<N>(copies, [&](std::int64_t c) {
          const std::int64_t place = g * copies + c;
          return N(y[static_cast<std::size_t>(((place / places * R + r) * places + place % places) * width + j)]);
        }));
  blocks_to_columns<T>(s, to.view(), blocks, width, back.view());
  expect_close<T>(back.read(s), sums, "blocks_to_columns");
}

TEST(Blocks, columns_and_their_transpose) {
  for (const std::int64_t R : {1, 7})
    for (const std::int64_t width : {1, 8, 17}) {
      const std::int64_t cases[][3] = {{1, 1, 1}, {4, 4, 1}, {6, 2, 3}, {1, 3, 1}, {2, 6, 1}, {2, 3, 2}, {6, 3, 4}};
      for (const auto& c : cases) {
        check_blocks<double>(R, c[0], width, c[1], c[2]);
        check_blocks<float>(R, c[0], width, c[1], c[2]);
        check_blocks<bf16>(R, c[0], width, c[1], c[2]);
      }
    }
}

TEST(Blocks, that_do_not_fit_are_refused) {
  Field<float> from(2, 6), to(4, 3);
  Stream s;
  EXPECT_THROW(columns_to_blocks<float>(s, from.view(), 2, 2, to.view()), Error);  // 3 columns in pairs
  EXPECT_THROW(columns_to_blocks<float>(s, from.view(), 4, 3, to.view()), Error);  // 4 blocks of 2 rows are 8
  EXPECT_THROW(columns_to_blocks<float>(s, from.view(), 2, 1, to.view().slice(0, 2)), Error);
}

TEST(Blocks, transpose) {
  for (const std::int64_t outer : {1, 2, 3})
    for (const std::int64_t inner : {1, 2, 5})
      for (const std::int64_t rows : {1, 4})
        for (const std::int64_t width : {1, 17}) {
          const std::int64_t all = outer * inner * rows;
          Field<bf16> from(all, width, normal_values(all * width, 1), 3), to(all, width, 1), back(all, width);
          Stream s(2);
          const Values x = from.read(s);
          Values want;
          for (std::int64_t j = 0; j < inner; ++j)
            for (std::int64_t i = 0; i < outer; ++i)
              for (std::int64_t k = 0; k < rows * width; ++k)
                want.push_back(x[static_cast<std::size_t>((i * inner + j) * rows * width + k)]);
          transpose_blocks<bf16>(s, outer, inner, from.view(), to.view());
          EXPECT_TRUE(same_bits(to.read(s), want));
          transpose_blocks<bf16>(s, inner, outer, to.view(), back.view());
          EXPECT_TRUE(same_bits(back.read(s), x));
        }
}

// Rows of each rank stand as zigzag_positions() says.
TEST(Blocks, rows_by_position_and_by_rank) {
  for (const int ranks : {1, 2, 3})
    for (const std::int64_t sequences : {1, 2})
      for (const std::int64_t chunk : {1, 6})
        for (const std::int64_t width : {1, 17}) {
          const std::int64_t local = 2 * chunk, T = local * ranks, all = sequences * T;
          Field<bf16> from(all, width, normal_values(all * width, 1), 3), to(all, width, 1), back(all, width);
          Stream s(2);
          const Values x = from.read(s);
          Values want(x.size());
          for (int rank = 0; rank < ranks; ++rank)
            for (std::int64_t row = 0; row < sequences * local; ++row) {
              const std::int64_t number = row % local / chunk == 0 ? rank : 2 * ranks - 1 - rank;
              const std::int64_t place = row / local * T + number * chunk + row % chunk;
              for (std::int64_t j = 0; j < width; ++j)
                want[static_cast<std::size_t>(place * width + j)] =
                    x[static_cast<std::size_t>((rank * sequences * local + row) * width + j)];
            }
          rows_by_position<bf16>(s, ranks, sequences, from.view(), to.view());
          EXPECT_TRUE(same_bits(to.read(s), want));
          rows_by_rank<bf16>(s, ranks, sequences, to.view(), back.view());
          EXPECT_TRUE(same_bits(back.read(s), x));
        }
  Field<bf16> odd(6, 2), other(6, 2);
  Stream s;
  EXPECT_THROW(rows_by_position<bf16>(s, 2, 1, odd.view(), other.view()), Error);  // 6 rows in 4 chunks
}

TEST(Elementwise, sums) {
  check_sums<double>();
  check_sums<float>();
  check_sums<bf16>();
}

}  // namespace
}  // namespace forge
