#pragma once

#include <string>

#include "comm/communicator.hpp"
#include "core/error.hpp"

namespace forge {

// Runs f on this rank; then all ranks throw what the first rank that failed says.
template <class F>
void together(Communicator& ranks, F f) {
  std::string problem;
  try {
    f();
  } catch (const std::exception& error) {
    problem = error.what();
    if (problem.empty()) problem = "failed";
  }
  // The texts go around only where there is one.
  std::int64_t failed = problem.empty() ? 0 : 1;
  ranks.max_host({&failed, 1});
  if (failed == 0) return;
  const auto problems = ranks.gather_host(problem);
  for (std::size_t r = 0; r < problems.size(); ++r)
    if (!problems[r].empty()) throw IoFailed("checkpoint: " + problems[r] + " (rank " + std::to_string(r) + ")");
}

}  // namespace forge
