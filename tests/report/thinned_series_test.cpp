#include "report/thinned_series.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.hpp"

namespace forge::test {
namespace {

// Every run has the sum, the extremes and the last value of its own values, and they follow each other without a gap.
void expect_thinned(std::int64_t values, std::size_t most) {
  ThinnedSeries series(most);
  std::vector<double> all;
  for (std::int64_t i = 0; i < values; ++i) {
    all.push_back(static_cast<double>(hash_of(std::to_string(i)) % 1000));
    series.add(3 * i, all.back());
  }
  ASSERT_LE(series.runs().size(), most);
  EXPECT_EQ(series.count(), values);
  EXPECT_EQ(series.width() == 1, values <= static_cast<std::int64_t>(most));
  auto begin = all.begin();
  for (const ThinnedSeries::Run& run : series.runs()) {
    const auto end = begin + run.count;
    EXPECT_TRUE(run.count == series.width() || &run == &series.runs().back());
    double sum = 0;
    for (auto at = begin; at != end; ++at) sum += *at;
    EXPECT_EQ(run.sum, sum);
    EXPECT_EQ(run.low, *std::min_element(begin, end));
    EXPECT_EQ(run.low_step, 3 * (std::min_element(begin, end) - all.begin()));
    EXPECT_EQ(run.high, *std::max_element(begin, end));
    EXPECT_EQ(run.high_step, 3 * (std::max_element(begin, end) - all.begin()));
    EXPECT_EQ(run.last, *(end - 1));
    EXPECT_EQ(run.last_step, 3 * (end - 1 - all.begin()));
    begin = end;
  }
  EXPECT_TRUE(begin == all.end());
  EXPECT_TRUE(series.width() == 1 || 2 * series.runs().size() >= most);
}

TEST(ThinnedSeries, RunsAreOfTheirValues) {
  for (const std::int64_t values : {0, 1, 2, 9, 10, 11, 20, 21, 39, 40, 41, 1000, 1237}) expect_thinned(values, 10);
  expect_thinned(5000, 1000);
}

TEST(ThinnedSeries, JsonOfFewValuesHasAllOfThem) {
  ThinnedSeries series(2);
  series.add(1, 0.1);
  series.add(5, 1e-300);
  EXPECT_EQ(series.json(), R"({"width": 1, "count": 2, "steps": [1,5], "values": [0.1,1e-300]})");
  series.add(6, -2);
  EXPECT_EQ(series.json(),
            R"({"width": 2, "count": 3, "steps": [5,6], "values": [0.05,-2], "low": [1e-300,-2], "low_steps": [5,6], )"
            R"("high": [0.1,-2], "high_steps": [1,6]})");
}

}  // namespace
}  // namespace forge::test
