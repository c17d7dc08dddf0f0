#pragma once

#include <vector>

#include "plan/tasks.hpp"

namespace forge {

// The forward passes of a stage that may have to be done again: those of layers with experts whose rows go to other
// ranks before the host knows how many there are (machine.dispatch_counts: device). In a chunk and microbatch the
// layers of one state belong together, from the first one with experts to the last one: the model's own blocks before
// the final norm, or the block of a depth of multi-token prediction.

// A rank's tasks, with keep_sums before the first of such layers and check_overflow behind the last one, before
// anything that adds to the loss or leaves the stage. `round` of both: the number of the check in the list.
std::vector<Task> with_checks(std::vector<Task> tasks, const RankShare& share);

// By number of the check, what a rank does where rows have overflowed: the layers' forward passes again, with the units
// that they read, which are gathered again where others have taken their places, as those are behind it. Every rank of
// the stage does the same.
std::vector<std::vector<Task>> forward_repeats(const std::vector<Task>& tasks, const RankShare& share);

}  // namespace forge
