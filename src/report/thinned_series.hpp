#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// A quantity over the steps of a run in bounded memory, made in one pass: runs of consecutive values, each of as many,
// whose length doubles whenever there are too many. Least and largest values stay exact, with their steps; up to `most`
// values stay all of them.
class ThinnedSeries {
 public:
  struct Run {
    std::int64_t count = 0, last_step = 0, low_step = 0, high_step = 0;
    double sum = 0, low = 0, high = 0, last = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };

  explicit ThinnedSeries(std::size_t most = 1000) : most_(most) {}

  // Steps ascend; the value is finite.
  void add(std::int64_t step, double value);
  // In the order of the steps; at most `most` of them.
  const std::vector<Run>& runs() const { return runs_; }
  // Values of a run, but for the last one, which may have fewer.
  std::int64_t width() const { return width_; }
  std::int64_t count() const { return count_; }

  // {"width": 4, "count": …, "steps": [last of each run], "values": [means], "low": [], "low_steps": [], "high": [],
  // "high_steps": []}; of width 1 steps and values alone. Extremes and single values read back exactly.
  std::string json() const;

 private:
  void halve();

  std::size_t most_;
  std::int64_t width_ = 1, count_ = 0;
  std::vector<Run> runs_;
};

// "[f(run), …]"
template <class F>
std::string json_of_runs(const std::vector<ThinnedSeries::Run>& runs, F f) {
  std::string all;
  for (const ThinnedSeries::Run& run : runs) {
    if (!all.empty()) all += ",";
    all += f(run);
  }
  return "[" + all + "]";
}

}  // namespace forge
