#include "optim/head_clip.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "../device_values.hpp"
#include "core/normal.hpp"

namespace forge::test {
namespace {

View<const StepScalars, 1> scalars_of(Stream& stream, const DeviceArray<double, 1>& memory, bool finite) {
  const StepScalars host{0, 0, 0, 1, finite ? 1.0 : 0.0};
  auto* const data = static_cast<StepScalars*>(static_cast<void*>(memory.view().data));
  copy_to_device(stream, data, &host, sizeof host);
  stream.synchronize();
  return {data, {{1}}};
}

// Two layers, six heads of queries on two of keys. A query's factor times its key's is its own γ; the key's is the root
// of its group's smallest.
TEST(HeadFactors, AreThoseOfTheGroup) {
  Stream stream;
  const double inf = INFINITY;
  const std::vector<double> peaks{3, 20, 10, 40, 5, 10, -inf, 9, 10, 80, 10.5, 3};
  const DeviceArray<double, 2> largest(stream, {{2, 6}}, peaks), factors(stream, {{2, 18}});
  const DeviceArray<double, 1> memory(stream, {{8}});
  for (const bool finite : {true, false}) {
    head_factors<double>(stream, largest.view(), 2, 10, scalars_of(stream, memory, finite), factors.view());
    const std::vector<double> got = values_of(stream, factors.view());
    for (std::size_t layer = 0; layer < 2; ++layer)
      for (std::size_t kv = 0; kv < 2; ++kv) {
        double least = 1;
        for (std::size_t h = 3 * kv; h < 3 * kv + 3; ++h) {
          const double peak = peaks[6 * layer + h], gamma = finite && peak > 10 ? 10 / peak : 1;
          least = std::min(least, gamma);
          EXPECT_DOUBLE_EQ(got[18 * layer + h] * got[18 * layer + 12 + kv], gamma);
          EXPECT_DOUBLE_EQ(got[18 * layer + 6 + h], gamma);
        }
        EXPECT_DOUBLE_EQ(got[18 * layer + 12 + kv], std::sqrt(least));
      }
  }
}

// Heads of three rows, of which one is an inner one; ranges that begin and end within rows.
TEST(ScaleHeads, KnowsItsRows) {
  Stream stream;
  const std::int64_t columns = 4;
  std::vector<double> factors(12, 1);
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 0.5 + 0.03 * static_cast<double>(i);
  const DeviceArray<double, 1> table(stream, {{12}}, factors);
  const ClippedRows rows{2, 4, 3, 1, HeadFactor::query, HeadFactor::query_whole};
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 64}, {9, 11}, {31, 33}, {57, 7}}) {
    std::vector<double> before(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = normal(3, i);
    const DeviceArray<double, 1> weights(stream, {{count}}, before), changes(stream, {{count}}, before);
    scale_heads<double>(stream, rows, first, columns, table.view(), weights.view(), {}, changes.view());
    const auto got = values_of(stream, weights.view()), change = values_of(stream, changes.view());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = (first + i) / columns - 2;
      const auto at = static_cast<std::size_t>(i);
      double factor = 1;
      if (row >= 0 && row < 12) factor = factors[static_cast<std::size_t>(row % 3 == 0 ? row / 3 : 4 + row / 3)];
      EXPECT_EQ(got[at], before[at] * factor) << i;
      EXPECT_DOUBLE_EQ(change[at], before[at] + (got[at] - before[at]));
    }
  }
}

}  // namespace
}  // namespace forge::test
