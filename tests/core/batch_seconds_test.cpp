#include "core/batch_seconds.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

double bound(const std::map<std::int64_t, double>& seen, std::int64_t sequences) {
  return seconds_of_batch(seen, sequences, [](double seconds) { return seconds; });
}

TEST(BatchSeconds, OfASizeThatWasSeenAreItsOwn) {
  const std::map<std::int64_t, double> seen{{4, 3}, {8, 20}, {16, 5}};
  for (const auto& [sequences, seconds] : seen) EXPECT_EQ(bound(seen, sequences), seconds);
}

TEST(BatchSeconds, OfOthersAreTheLeastBound) {
  EXPECT_EQ(bound({}, 4), 0);
  EXPECT_EQ(bound({{4, 3}}, 8), 6) << "at most in proportion";
  EXPECT_EQ(bound({{8, 3}}, 4), 3) << "a smaller batch may take as long";
  EXPECT_EQ(bound({{4, 3}, {8, 4}}, 16), 8) << "from the nearest size, not from the smallest";
  EXPECT_EQ(bound({{4, 3}, {8, 4}}, 6), 4);
  EXPECT_EQ(bound({{4, 0}, {8, 4}}, 4), 4) << "nothing is known yet of the size itself";
}

// With a fixed part a and a part b by sequence no step takes longer than said.
TEST(BatchSeconds, AreEnoughForStepsWithAFixedPart) {
  for (const double a : {0.0, 0.5, 10.0})
    for (const double b : {0.0, 0.1, 2.0}) {
      if (a + b == 0) continue;
      std::map<std::int64_t, double> seen;
      for (const std::int64_t n : {8, 12, 16, 64, 256}) {
        const double takes = a + b * static_cast<double>(n);
        if (!seen.empty()) {
          EXPECT_GE(bound(seen, n), takes * (1 - 1e-12));
        }
        seen[n] = takes;
        EXPECT_EQ(bound(seen, n), takes);
      }
    }
}

}  // namespace
}  // namespace forge
