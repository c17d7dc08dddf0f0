#pragma once

#include <deque>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "config/deck.hpp"
#include "predict/prediction.hpp"

namespace forge {

// The hash of a resolved deck without its global batch: a replay's file has it to name its deck.
std::string deck_hash(Deck deck);

// The measurements in the files of --replayed of each pipeline rank's tasks: the first stage, one between that stands
// for all between, and the last.
struct ReplayedStages {
  std::deque<MeasuredTasks> files;
  std::vector<const MeasuredTasks*> by_stage;  // into `files`; empty: no files
};
// Throws BadInput for files of another deck, of other stages, with a wire, or without a task's passes.
ReplayedStages read_replayed(const CommandLine& line, const RunSetup& setup);

}  // namespace forge
