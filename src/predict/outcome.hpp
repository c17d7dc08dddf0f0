#pragma once

#include <functional>
#include <vector>

#include "plan/rank_memory.hpp"
#include "predict/prediction.hpp"

namespace forge {

// Prediction of a deck's step and memory on a machine.
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
// Memory of the rank that needs most, as the machine's program needs it; each(): of each pipeline rank.
using EachStage = std::function<void(const MemoryPlan&, const RankShare&)>;
RankMemory memory_on(const Machine& machine, const RunSetup& setup, const EachStage& each = {});
// Bytes of the first and the last stage: most microbatches are in flight on the one, and the head is on the other.
std::size_t bytes_of_ends(const Machine& machine, const RunSetup& setup);

// Memory of a rank: of its GPU, or its part of the node's.
std::size_t usable_memory(const Machine& machine, int ranks);

}  // namespace forge
