#include "train/slow_ranks.hpp"

#include <algorithm>
#include <cmath>

#include "comm/collected.hpp"
#include "core/median.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr double least_ratio = 1.1, least_seconds = 5e-3;  // less is the system's scheduler

double deviation_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean) / n;
  return std::sqrt(squares);
}

}  // namespace

ComputationReport compare_computation(std::span<const double> seconds, int stages) {
  ComputationReport report{lower_median(seconds), {}};
  const std::size_t size = seconds.size() / to_size(stages);
  for (std::size_t begin = 0; begin < seconds.size(); begin += size) {
    const std::span<const double> stage = seconds.subspan(begin, size);
    const double median = lower_median(stage),
                 most = std::max({least_ratio * median, median + deviation_of(stage), median + least_seconds});
    for (std::size_t i = 0; i < size; ++i)
      if (stage[i] > most) report.slow.push_back({static_cast<int>(begin + i), "", stage[i] / median});
  }
  std::ranges::stable_sort(report.slow, std::ranges::greater{}, &SlowRank::of_median);
  return report;
}

std::optional<ComputationReport> SlowRanks::add(double seconds) {
  last_[added_++ % last_.size()] = seconds;
  if (added_ < last_.size()) return {};
  const std::vector<double> all = collected(ranks_, *std::ranges::min_element(last_));
  if (all.empty()) return {};
  ComputationReport report = compare_computation(all, stages_);
  for (SlowRank& rank : report.slow)
    if (world_) rank.node = world_->node_name(rank.rank);
  return report;
}

}  // namespace forge
