#pragma once

#include <string>
#include <vector>

#include "predict/neighbours.hpp"

namespace forge {

// What of a deck is predicted to cost time or memory for nothing on a machine, a sentence each, as warnings_of.
// `neighbours`: of the outcome's deck, in the order of predicted_neighbours.
std::vector<std::string> advice_of(const Outcome& outcome, const std::vector<PredictedNeighbour>& neighbours);

}  // namespace forge
