#include "kernels/gemm/few_rows.hpp"

#include <limits>
#include <utility>

#include "fixture.hpp"

// Products of few rows against sums in fp64, within (K + 4) roundings of the terms' magnitudes and one of the result.

namespace forge::reference {
namespace {

template <class P>
class FewRows : public testing::Test {};
using Types =
    testing::Types<std::pair<double, double>, std::pair<float, float>, std::pair<bf16, bf16>, std::pair<bf16, float>>;
TYPED_TEST_SUITE(FewRows, Types);

template <class A>
constexpr double unit = std::is_same_v<A, bf16>
                            ? 1.0 / 256
                            : std::numeric_limits<std::conditional_t<std::is_same_v<A, bf16>, float, A>>::epsilon() / 2;

template <class T, class TY>
void expect_product(std::int64_t rows, std::int64_t n, std::int64_t k, std::int64_t gap) {
  const Field<T> x(rows, k, normal_values(rows * k, 1), gap), w(n, k, normal_values(n * k, 2), gap);
  const Field<TY> y(rows, n, gap);
  Stream stream(2);
  few_rows_product<T, TY>(stream, x.view(), w.view(), y.view());
  const Values vx = x.read(), vw = w.read(), vy = y.read(stream);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, absolute = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const double term = vx[static_cast<std::size_t>(i * k + p)] * vw[static_cast<std::size_t>(j * k + p)];
        sum += term;
        absolute += std::abs(term);
      }
      const double bound =
          2.0 * static_cast<double>(k + 4) * unit<acc_t<T>> * absolute + 1.01 * unit<TY> * std::abs(sum);
      ASSERT_NEAR(vy[static_cast<std::size_t>(i * n + j)], sum, bound)
          << rows << " x " << n << " x " << k << " at " << i << ", " << j << ", gap " << gap;
    }
}

// Rows of W for a part of a warp, a warp, a block, and more than its registers hold.
TYPED_TEST(FewRows, AgreeWithTheirSums) {
  using T = typename TypeParam::first_type;
  using TY = typename TypeParam::second_type;
  for (const std::int64_t rows : {1, 2, 5, 8})
    for (const std::int64_t n : {1, 4, 7, 66})
      for (const std::int64_t k : {1, 3, 64, 130, 1024}) expect_product<T, TY>(rows, n, k, (rows + n + k) % 3);
  expect_product<T, TY>(2, 3, 9000, 0);
  expect_product<T, TY>(2, 5, 4096, 5);
}

// The bits of a row don't depend on the others.
TYPED_TEST(FewRows, AreIndependentOfEachOtherAndOfThreads) {
  using T = typename TypeParam::first_type;
  using TY = typename TypeParam::second_type;
  const Field<T> x(8, 300, normal_values(2400, 1)), w(50, 300, normal_values(15000, 2));
  const auto product = [&](Stream& stream, std::int64_t begin, std::int64_t end) {
    const Field<TY> y(end - begin, 50);
    few_rows_product<T, TY>(stream, View<const T, 2>(x.view().slice(begin, end)), w.view(), y.view());
    return y.read(stream);
  };
  expect_same_on_any_threads([&](Stream& stream) { return product(stream, 0, 8); });
  Stream stream;
  Values each;
  for (std::int64_t i = 0; i < 8; ++i) append(each, product(stream, i, i + 1));
  EXPECT_TRUE(same_bits(each, product(stream, 0, 8)));
}

}  // namespace
}  // namespace forge::reference
