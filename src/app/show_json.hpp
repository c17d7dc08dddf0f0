#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "app/device_fit.hpp"
#include "plan/memory_plan.hpp"
#include "plan/setup.hpp"
#include "predict/machine.hpp"

namespace forge {

// `forge show --json`: all that show says with --all and --deck, and the parts asked for by options, as one object.
std::string show_json(const CommandLine& line, const RunSetup& setup, const std::vector<MemoryPlan>& memory,
                      const std::vector<std::string>& warnings, const std::optional<AskedGpu>& gpu,
                      const std::optional<Machine>& machine);

}  // namespace forge
