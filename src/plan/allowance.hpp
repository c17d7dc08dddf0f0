#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "plan/placement.hpp"
#include "plan/traffic.hpp"

namespace forge {

// A library's memory on a GPU besides the planned one: an allowance, not a measurement.
struct Allowance {
  std::string name;
  std::size_t bytes;
  std::string reason;
};

// CUDA's context: taken before a program can ask how much memory is free.
Allowance context_allowance();
// Resident memory of a rank of a processor build besides the planned memory.
Allowance process_allowance();
// Later memory of the libraries: kernels that are loaded at their first use, and NCCL's buffers for each group that a
// rank uses, by its collectives there. `traffic`: of plan_traffic(), `sizes`: the ranks of those groups. Sources:
// docs/parallelism.md.
std::vector<Allowance> library_allowances(const std::vector<std::pair<std::string, Traffic>>& traffic,
                                          const GroupSizes& sizes);

std::size_t total(const std::vector<Allowance>& allowances);

}  // namespace forge
