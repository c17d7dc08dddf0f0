#pragma once

#include <string>

#include "core/json.hpp"
#include "plan/setup.hpp"

namespace forge {

// What FP8 rounds and costs on the first rank in a step, for `forge show`; "" in other precisions.
std::string fp8_text(const RunSetup& setup);
// Its numbers; nothing in other precisions.
JsonLine fp8_json(const RunSetup& setup);

}  // namespace forge
