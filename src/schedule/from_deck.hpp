#pragma once

#include "config/deck.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// Microbatches of one rank and step, of a resolved deck: global batch / (data-parallel ranks · microbatch).
std::int64_t microbatches_of(const Deck& deck);
// Likewise where a step has `global_batch` sequences.
std::int64_t microbatches_of(const Deck& deck, std::int64_t global_batch);

// The compute schedule of one step on `pp` ranks, which lower() completes: generated as schedule.name says, or read
// from schedule.file. Throws BadInput, naming key, rule and nearest legal values, for numbers that the schedule's rule
// does not allow, and for a file that is wrong in itself or is made for other numbers.
Schedule schedule_of(const Deck& deck, int pp, int microbatches);

}  // namespace forge
