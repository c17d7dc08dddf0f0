#pragma once

#include <vector>

#include "plan/setup.hpp"
#include "predict/machine.hpp"

namespace forge {

// Fits of factors to measurements: least squares of log(predicted / measured) in the logarithms of the factors, with a
// weak pull of all to 1, so that factors which the measurements can't tell apart change least. Gauss-Newton.

// A run on the machine, and the median of its steps.
struct MeasuredRun {
  RunSetup setup;
  double seconds = 0;
};

// A machine's file fitted to runs: one factor for all that ranks compute, one for all that they send.
struct MachineFit {
  Machine machine;                    // with the factors
  std::vector<double> before, after;  // predicted seconds of each run
};
MachineFit fit_machine(const Machine& machine, const std::vector<MeasuredRun>& runs);

// A call of a collective in a group that lies so, and its seconds.
struct CallTime {
  Sent call;
  Placement place;
  double seconds = 0;
};

// The machine with the collectives that calls have measured: of each a factor of its latencies and one of its rates
// inside nodes, and one of its rate between them; one of the network's latencies. Figures without a call don't change.
Machine fit_calls(const Machine& machine, const std::vector<CallTime>& calls);

}  // namespace forge
