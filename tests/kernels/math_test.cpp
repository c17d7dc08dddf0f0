#include "kernels/rows/math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace forge {
namespace {

// Distance in units of the last place of the float nearest to `exact`; subnormal floats have the last place of 2^-126.
double ulps(float computed, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(computed) - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// Every 997th float of the whole range, infinities and NaN included.
template <class Fast, class Exact>
void sweep(const Fast& fast, const Exact& exact) {
  double worst = 0;
  for (std::uint64_t pattern = 0; pattern < (std::uint64_t{1} << 32); pattern += 997) {
    const auto bits = static_cast<std::uint32_t>(pattern);
    float x;
    std::memcpy(&x, &bits, sizeof x);
    const double y = exact(static_cast<double>(x));
    const float computed = fast(x);
    if (std::isnan(y)) {
      ASSERT_TRUE(std::isnan(computed)) << x;
    } else if (std::isinf(static_cast<float>(y))) {
      ASSERT_EQ(computed, static_cast<float>(y)) << x;
    } else {
      ASSERT_TRUE(std::isfinite(computed)) << x;
      worst = std::max(worst, ulps(computed, y));
    }
  }
  EXPECT_LE(worst, 2);
}

TEST(Math, exp_is_within_2_ulp) {
  sweep([](float x) { return math::exp(x); }, [](double x) { return std::exp(x); });
  EXPECT_EQ(math::exp(0.0f), 1.0f);
}
TEST(Math, tanh_is_within_2_ulp) {
  sweep([](float x) { return math::tanh(x); }, [](double x) { return std::tanh(x); });
}
TEST(Math, erf_is_within_2_ulp) {
  sweep([](float x) { return math::erf(x); }, [](double x) { return std::erf(x); });
}
TEST(Math, sigmoid_has_its_limits) {
  EXPECT_EQ(math::sigmoid(-200.0f), 0.0f);
  EXPECT_EQ(math::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(math::sigmoid(200.0f), 1.0f);
  EXPECT_TRUE(std::isnan(math::sigmoid(std::nanf(""))));
}

}  // namespace
}  // namespace forge
