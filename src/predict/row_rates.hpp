#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/heartbeat.hpp"
#include "core/types.hpp"
#include "device/stream.hpp"
#include "predict/machine.hpp"

namespace forge {

// Rates of kernels over rows in a type, by the names of nn/segments.plan.hpp; the first is a copy's rate. Operands
// are in memory, not in caches.
std::vector<std::pair<std::string, KernelRates>> measure_row_kernels(Stream& stream, DType type, Heartbeat& heartbeat);

}  // namespace forge
