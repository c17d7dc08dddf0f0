#pragma once

#include <string>
#include <vector>

#include "plan/memory.hpp"
#include "plan/setup.hpp"

namespace forge {

// The head of `forge show`: what the model is, how it is laid out, what a step works on, what a rank needs, and which
// GPUs have that. `memory`: by pipeline rank, as memory_by_stage gives it.
std::string summary_text(const RunSetup& setup, const std::vector<MemoryPlan>& memory);

// Lines of plan/warnings.
std::string warning_lines(const std::vector<std::string>& warnings);

}  // namespace forge
