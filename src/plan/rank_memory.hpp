#pragma once

#include <functional>
#include <vector>

#include "plan/allowance.hpp"
#include "plan/memory.hpp"
#include "plan/setup.hpp"

namespace forge {

// The one workspace that libraries get from the arena.
std::size_t library_bytes(const Deck& deck);
// The memory of the setup's rank.
MemoryPlan planned_memory(const RunSetup& setup, RunKind kind);
// The memory of a rank of one pipeline rank, and of each pipeline rank in order: all ranks of a stage need the same.
MemoryPlan planned_memory(const RunSetup& setup, RunKind kind, int pp_rank);
std::vector<MemoryPlan> memory_by_stage(const RunSetup& setup, RunKind kind);
const MemoryPlan& largest_of(const std::vector<MemoryPlan>& plans);

// A rank's memory on a GPU where it is largest: the plan, and allowances for the libraries' memory after the job's
// start.
struct RankMemory {
  MemoryPlan plan;
  std::vector<Allowance> libraries;
  std::size_t total() const { return plan.total() + forge::total(libraries); }
};
// Changes of a stage's memory for another program than forge, by its plan and its rank.
using MemoryChanges = std::function<void(MemoryPlan&, const RankShare&)>;
RankMemory rank_memory(const RunSetup& setup, RunKind kind, const MemoryChanges& changes = {});
// The memory of one pipeline rank.
RankMemory stage_memory(const RunSetup& setup, RunKind kind, int pp_rank, const MemoryChanges& changes = {});

// A GPU's memory less CUDA's own part.
std::size_t usable_bytes(std::size_t device_bytes);

}  // namespace forge
