#pragma once

#include <string>

#include "core/json.hpp"
#include "plan/setup.hpp"

namespace forge {

// `forge show --rates`: learning rate and batch at steps over the run, with bars, and where the schedule turns.
std::string rate_text(const RunSetup& setup);
std::vector<JsonLine> rates_json(const RunSetup& setup);

}  // namespace forge
