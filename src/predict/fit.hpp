#pragma once

#include <vector>

#include "plan/setup.hpp"
#include "predict/machine.hpp"

namespace forge {

// A run on the machine, and the median of its steps.
struct MeasuredRun {
  RunSetup setup;
  double seconds = 0;
};

// What runs say of a machine's file: one factor for all that ranks compute, one for all that they send.
struct MachineFit {
  Machine machine;                    // with the factors
  std::vector<double> before, after;  // predicted seconds of each run
};

// Least squares of log(predicted / measured) over the runs, in the logarithms of the two factors, with a weak pull of
// both to 1: runs that can't tell the two apart get the smallest change of both. Gauss-Newton, each prediction a
// simulation.
MachineFit fit_machine(const Machine& machine, const std::vector<MeasuredRun>& runs);

}  // namespace forge
