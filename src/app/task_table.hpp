#pragma once

#include <string>

#include "core/json.hpp"
#include "plan/setup.hpp"

namespace forge {

// `forge show --tasks RANK`: what the rank does in a step, one by one, with what each task reads, writes and sends.
// Layers, microbatches and whole passes that are alike stand there once, with their number.
std::string task_table(const RunSetup& setup, int rank);
// The same tasks, one by one, with what each sends to each group.
std::vector<JsonLine> tasks_json(const RunSetup& setup, int rank);

}  // namespace forge
