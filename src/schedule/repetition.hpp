#pragma once

#include "config/deck.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// The middle of a pipeline's schedule repeats itself. With `few` microbatches a rank holds as much at its peak as with
// all, and does the same but for `times` repetitions, each of `period` microbatches. gpipe, which holds all of them,
// and a schedule of a file have no repetition: few is all, times 0.
struct Repetition {
  int few = 1, period = 1;
  std::int64_t times = 0;
};
// For a resolved deck's schedule with so many microbatches. tests/plan/repetition_test.cpp compares it with whole ones.
Repetition repetition_of(const Deck& deck, std::int64_t microbatches);

// The deck's schedule of so many microbatches, lowered.
Schedule lowered_schedule(const Deck& deck, std::int64_t microbatches);
// The schedule of few microbatches in the place of a lowered schedule of the deck; itself where nothing repeats.
Schedule few_of(const Deck& deck, const Schedule& lowered);

}  // namespace forge
