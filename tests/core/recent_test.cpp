#include "core/recent.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.hpp"

namespace forge {
namespace {

using std::chrono::minutes;

TEST(RecentTimes, TheLongestOfAnHour) {
  const RecentTimes::Clock::time_point start{};
  RecentTimes times;
  EXPECT_EQ(times.longest(), 0);
  times.add(5, start);
  EXPECT_EQ(times.longest(), 5);
  times.add(9, start + minutes(1));
  times.add(2, start + minutes(2));
  times.add(4, start + minutes(30));
  EXPECT_EQ(times.longest(), 9);
  times.add(1, start + minutes(61));
  EXPECT_EQ(times.longest(), 9);  // an hour ago
  times.add(1, start + minutes(62));
  EXPECT_EQ(times.longest(), 4);
  times.add(3, start + minutes(300));
  EXPECT_EQ(times.longest(), 3);  // however long ago
}

// Against all that was added.
TEST(RecentTimes, AsByLookingAtAll) {
  RecentTimes times;
  std::vector<std::pair<std::int64_t, double>> all;
  std::int64_t at = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    at += static_cast<std::int64_t>(mix(1, i) % 400);
    all.emplace_back(at, static_cast<double>(mix(2, i) % 1000));
    times.add(all.back().second, RecentTimes::Clock::time_point{} + std::chrono::seconds(at));
    double longest = 0;
    for (const auto& [when, seconds] : all)
      if (at - when <= 3600) longest = std::max(longest, seconds);
    ASSERT_EQ(times.longest(), longest) << i;
  }
}

}  // namespace
}  // namespace forge
