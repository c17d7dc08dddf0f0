#pragma once

#include <string>
#include <vector>

#include "predict/neighbours.hpp"

namespace forge {

// Settings of a deck that are predicted to cost time or memory for nothing on a machine, a sentence each, as
// warnings_of. `neighbours`: of the outcome's deck, in the order of predicted_neighbours.
std::vector<std::string> advice_of(const Outcome& outcome, const std::vector<PredictedNeighbour>& neighbours);

// All that is said of the deck on the machine: warnings_of, and of a GPU's memory where ranks have GPUs; then
// advice_of.
std::vector<std::string> all_warnings(const Machine& machine, const Outcome& outcome,
                                      const std::vector<PredictedNeighbour>& neighbours);

}  // namespace forge
