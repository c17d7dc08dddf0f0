#pragma once

#include <string>

#include "comm/communicator.hpp"
#include "core/error.hpp"

namespace forge {

// Runs f on this rank; then all ranks throw the error of the first rank that failed, if any.
template <class F>
void together(Communicator& ranks, F f) {
  std::string problem;
  try {
    f();
  } catch (const std::exception& error) {
    problem = error.what();
    if (problem.empty()) problem = "failed";
  }
  const auto first = ranks.first_text(problem);
  if (first.rank >= 0) throw IoFailed("checkpoint: " + first.text + " (rank " + std::to_string(first.rank) + ")");
}

}  // namespace forge
