#pragma once

#include <string>
#include <vector>

#include "plan/memory.hpp"
#include "plan/setup.hpp"

namespace forge {

// The head of `forge show`: the model, its layout, the work of a step, a rank's memory, and the GPUs that have as much.
// `memory`: by pipeline rank, as memory_by_stage gives it.
std::string summary_text(const RunSetup& setup, const std::vector<MemoryPlan>& memory);

// Lines of plan/warnings.
std::string warning_lines(const std::vector<std::string>& warnings);

}  // namespace forge
