#pragma once

#include "app/command_line.hpp"
#include "predict/machine.hpp"

namespace forge {

// Fits the machine to the runs of --fit, directories with deck.yaml and metrics.jsonl; prints each run's prediction
// before and after, and writes the machine's file that --output asks for.
Machine fit_to_runs(const CommandLine& line, const Machine& machine);

}  // namespace forge
