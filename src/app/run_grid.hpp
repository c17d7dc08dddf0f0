#pragma once

#include "app/command_line.hpp"
#include "predict/machine.hpp"

namespace forge {

// forge plan --grid: a search for each model and number of nodes. After each cell --output is written anew, so that the
// same command goes on where it was killed.
void run_grid(const CommandLine& line, const Machine& machine);

}  // namespace forge
