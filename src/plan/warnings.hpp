#pragma once

#include <string>
#include <vector>

#include "plan/setup.hpp"

namespace forge {

// Where a job runs, as far as it is known.
struct Site {
  int ranks_per_node = 8;
  std::size_t usable_bytes = 0;  // of a rank's GPU; 0: not known, and nothing is said of memory
};

// Settings of a deck that are legal and rarely wise, a sentence each: the key, its cost, and a better value. The rules
// and their reasons: docs/choosing.md.
std::vector<std::string> warnings_of(const RunSetup& setup, const Site& site);

}  // namespace forge
