#pragma once

#include <array>
#include <utility>
#include <vector>

#include "comm/mesh.hpp"
#include "core/heartbeat.hpp"
#include "predict/fit.hpp"

namespace forge {

// Measurements of collectives for the planner, for `forge calibrate`; the watchdog's heartbeat is beaten between them.

// Latency, per-rank latency and bandwidth of each collective, among 2 and more of the ranks; all ranks call it and get
// the same. One rank: nothing to measure.
std::vector<std::pair<Collective, ProtocolRates>> measure_collectives(Communicator& ranks, Heartbeat& heartbeat);

// The calls (plan/traffic's distinct ones of this rank) in the mesh's groups, where all groups of an axis communicate
// at the same time as in a step; `places`: of this rank's groups. All ranks call it and get the same: each call's
// slowest ranks.
std::vector<CallTime> measure_calls(Mesh& mesh, const std::vector<Sent>& calls,
                                    const std::array<Placement, group_count>& places, Heartbeat& heartbeat);

}  // namespace forge
