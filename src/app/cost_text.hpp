#pragma once

#include <string>

#include "core/json.hpp"
#include "plan/setup.hpp"
#include "predict/machine.hpp"

namespace forge {

// What the rank of `setup` computes in a step, phase by phase, from the lists that run: FLOP, bytes, launches; the
// floor on a machine (FLOP over its peak, bytes over its memory's bandwidth), and what the planner expects there.
std::string cost_table(const RunSetup& setup, const Machine& machine);
JsonLine cost_json(const RunSetup& setup, const Machine& machine);

}  // namespace forge
