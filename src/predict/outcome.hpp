#pragma once

#include <vector>

#include "plan/rank_memory.hpp"
#include "predict/prediction.hpp"

namespace forge {

// What a deck is predicted to do on a machine.
struct Outcome {
  Deck deck;  // resolved
  Prediction time;
  RankMemory memory;       // of the rank that needs most
  std::size_t usable = 0;  // of its device, or its part of the node's memory
  bool fits() const { return memory.total() <= usable; }
};
// `deck` has passed check_deck for its ranks.
Outcome outcome_of(const Machine& machine, const Deck& deck);
Outcome outcome_of(const Machine& machine, const RunSetup& setup,
                   const std::vector<const MeasuredTasks*>& measured = {});
// The memory of the rank that needs most, as outcome_of() has it.
RankMemory memory_on(const Machine& machine, const RunSetup& setup);
// Of the first and the last stage: most microbatches are in flight on the one, and the head is on the other.
std::size_t bytes_of_ends(const Machine& machine, const RunSetup& setup);

// What a rank may take: of its GPU, or its part of the node's memory.
std::size_t usable_memory(const Machine& machine, int ranks);

}  // namespace forge
