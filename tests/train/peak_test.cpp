#include "train/peak.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "device/device_memory.hpp"
#include "device/random_values.hpp"

namespace forge::test {
namespace {

constexpr std::size_t library = 1 << 20;

// The product is as large as fits: with room for three matrices of 64 x 64 and no larger ones, and where none fits.
TEST(Peak, IsMeasuredInsideTheGivenMemory) {
  const std::size_t three = 3 * 64 * 64;
  EXPECT_GT(measure_peak(1, library, library + three * sizeof(float), DType::f32), 0);
  EXPECT_GT(measure_peak(1, library, library + three * sizeof(double), DType::f64), 0);
  EXPECT_GT(measure_peak(1, library, library + three * sizeof(bf16), DType::bf16), 0);
  EXPECT_GT(measure_peak(1, library, library + three * sizeof(float) * 5 / 6, DType::f32),
            0);  // two and a half of them
  EXPECT_THROW(measure_peak(1, library, library + 512, DType::f32), BadInput);
}

// A rank has no more than its part of a node's cores, however few of the others compute just now.
TEST(Peak, IsThatOfARanksPartOfTheCores) {
  if (std::string(device_info().kind) != "cpu") GTEST_SKIP();
  const std::size_t arena = library + 3 * 512 * 512 * sizeof(float);
  const double alone = measure_peak(1, library, arena, DType::f32, 1),
               shared = measure_peak(1, library, arena, DType::f32, 16 * device_info().cores);
  EXPECT_LT(shared, alone / 3);
  EXPECT_GT(shared, 0);
}

TEST(Peak, RandomValuesFillAllOfAView) {
  constexpr std::int64_t n = 1048573 + 1000;  // more than are drawn
  Stream stream;
  const Buffer memory(n * sizeof(float));
  const View<float, 1> values(reinterpret_cast<float*>(memory.data()), {{n}});
  fill_random(stream, values, 7, 2);
  std::vector<float> host(n);
  copy_to_host(stream, host.data(), values.data, n * sizeof(float));
  stream.synchronize();
  double squares = 0;
  for (const float x : host) squares += static_cast<double>(x) * x;
  EXPECT_NEAR(squares / n, 4, 0.02);  // the deviation of the mean is 0.0055
  for (std::size_t i = n - 1000; i < n; ++i) EXPECT_EQ(host[i], host[i - 1048573]);
  EXPECT_NE(host[0], host[1]);
}

}  // namespace
}  // namespace forge::test
