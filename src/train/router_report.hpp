#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// What a step says of one layer's router.
struct RouterReport {
  std::int64_t layer = 0;
  std::vector<double> load;  // assignments of each expert over the whole step, before any were dropped
  double dropped = 0;        // assignments
  double balance_loss = 0;   // mean over the scopes of E Σ f P; 1 where all experts are loaded alike
  double z_loss = 0;         // mean over the tokens of lse²
  double bias_min = 0, bias_max = 0;

  double assignments() const;
  // Load of the least and of the most loaded expert, as multiples of the mean.
  double load_min() const;
  double load_max() const;
  // Entropy of the load over log E: 1 where all experts are loaded alike, 0 where one has all.
  double entropy() const;
  double dropped_fraction() const { return assignments() > 0 ? dropped / assignments() : 0; }
};

// "[{"layer": 0, …}, …]" for metrics.jsonl.
std::string to_json(const std::vector<RouterReport>& routers);
// One line for people, over all layers; empty where there are none.
std::string routers_line(const std::vector<RouterReport>& routers);

}  // namespace forge
