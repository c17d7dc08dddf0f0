#pragma once

#include <map>
#include <string>
#include <vector>

namespace forge {

// An independent implementation's results for a verification problem, in one precision, per step from 1.
struct ReferenceSeries {
  std::vector<double> loss, total_loss, grad_norm, learning_rate;
};

// reference.yaml by precision ("fp64", "fp32"). Throws BadInput naming file and key.
std::map<std::string, ReferenceSeries> read_reference(const std::string& file);

}  // namespace forge
