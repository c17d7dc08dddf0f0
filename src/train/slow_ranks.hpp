#pragma once

#include <array>
#include <optional>
#include <span>

#include "comm/communicator.hpp"
#include "comm/world.hpp"
#include "train/metrics.hpp"

namespace forge {

// The slow ranks among these seconds, the slowest first, without names of nodes: each is above the median of the ranks
// of its pipeline stage, which follow each other, by 10 %, by one deviation and by 5 ms.
ComputationReport compare_computation(std::span<const double> seconds, int stages);

// Finds ranks that compute slower than others, step by step: rank 0 gets a number of each.
class SlowRanks {
 public:
  // `world`: for the names of nodes; null: none.
  SlowRanks(Communicator& ranks, int stages, const World* world) : ranks_(ranks), stages_(stages), world_(world) {}

  // Collective: this rank has computed for so many seconds in a step. A rank counts by the least of its last three, as
  // a slow rank stays slow; the report is on rank 0, from the third step on.
  std::optional<ComputationReport> add(double seconds);

 private:
  Communicator& ranks_;
  int stages_;
  const World* world_;
  std::array<double, 3> last_{};
  std::size_t added_ = 0;
};

}  // namespace forge
