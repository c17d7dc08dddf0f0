#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// Leaves in metrics.jsonl what a run that goes on behind `step` has said up to there: whole lines of steps up to that
// one. What is behind them goes, and so do lines between them that are torn or blank. Returns what a person should know
// of that: lines that were left out, steps that have none. `own`: whether the file should have lines of all steps.
// `temporary`: a name beside it, for the new file. Throws IoFailed.
std::vector<std::string> repair_metrics(const std::string& path, const std::string& temporary, std::int64_t step,
                                        bool own);

}  // namespace forge
