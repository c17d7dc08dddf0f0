#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/heartbeat.hpp"
#include "core/types.hpp"
#include "predict/machine.hpp"

namespace forge {

// Measurements of this machine for the planner (predict/machine.hpp), for `forge calibrate`; the watchdog's heartbeat
// is beaten between them.

// Rates of one rank's products, attention and kernels over rows in a type, with so many threads. Every figure is the
// median of repeated calls.
struct MeasuredRates {
  ProductTable products;
  AttentionRates attention;
  std::vector<std::pair<std::string, KernelRates>> kernels;  // by the names of nn/segments.plan.hpp
  KernelRates copy;                                          // of memory
};
MeasuredRates measure_rates(DType type, int threads, Heartbeat& heartbeat);

}  // namespace forge
