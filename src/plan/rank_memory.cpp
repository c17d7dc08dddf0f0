#include "plan/rank_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"
#include "schedule/repetition.hpp"

namespace forge {

namespace {

// f(share) of the first rank of a stage: the setup's own where it is that rank.
template <class F>
auto on_stage(const RunSetup& s, int pp_rank, F f) {
  const int rank = pp_rank * (s.mesh.world() / s.mesh.pp);
  return rank == s.rank ? f(s.share) : f(rank_share(s.model_share(), rank));
}

// Memory of a setup's stages, by schedules of few microbatches (schedule/repetition.hpp), which need as much as whole
// ones.
class StageMemory {
 public:
  explicit StageMemory(const RunSetup& setup) : setup_(setup), largest_(few_of(setup.deck, setup.schedule)) {
    for (const Schedule& schedule : setup.smaller) smaller_.push_back(few_of(setup.deck, schedule));
  }
  MemoryPlan plan(RunKind kind, int pp_rank) const {
    return on_stage(setup_, pp_rank, [&](const RankShare& share) { return plan(kind, share); });
  }
  RankMemory of(RunKind kind, int pp_rank, const MemoryChanges& changes) const {
    return on_stage(setup_, pp_rank, [&](const RankShare& share) {
      RankMemory memory{plan(kind, share), allowances(share)};
      if (changes) changes(memory.plan, share);
      return memory;
    });
  }

 private:
  MemoryPlan plan(RunKind kind, const RankShare& share) const {
    return plan_memory(setup_.buffers, share, largest_, library_bytes(setup_.deck), kind, smaller_);
  }
  std::vector<Allowance> allowances(const RankShare& share) const {
    return library_allowances(plan_traffic(setup_.buffers, setup_.spec, setup_.mesh, share, largest_),
                              group_sizes(setup_.spec, setup_.mesh, share));
  }

  const RunSetup& setup_;
  Schedule largest_;
  std::vector<Schedule> smaller_;
};

}  // namespace

std::size_t library_bytes(const Deck& deck) {
  return to_size(deck.machine.workspace_mib) << 20;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind, int pp_rank) {
  return StageMemory(setup).plan(kind, pp_rank);
}

std::vector<MemoryPlan> memory_by_stage(const RunSetup& setup, RunKind kind) {
  const StageMemory stages(setup);
  std::vector<MemoryPlan> plans;
  for (int p = 0; p < setup.mesh.pp; ++p) plans.push_back(stages.plan(kind, p));
  return plans;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind) {
  return plan_memory(setup.buffers, setup.share, setup.schedule, library_bytes(setup.deck), kind, setup.smaller);
}

const MemoryPlan& largest_of(const std::vector<MemoryPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
}

RankMemory stage_memory(const RunSetup& setup, RunKind kind, int pp_rank, const MemoryChanges& changes) {
  return StageMemory(setup).of(kind, pp_rank, changes);
}

RankMemory rank_memory(const RunSetup& setup, RunKind kind, const MemoryChanges& changes) {
  const StageMemory stages(setup);
  RankMemory largest = stages.of(kind, 0, changes);
  for (int p = 1; p < setup.mesh.pp; ++p)
    if (RankMemory memory = stages.of(kind, p, changes); memory.total() > largest.total()) largest = std::move(memory);
  return largest;
}

std::size_t usable_bytes(std::size_t device_bytes) {
  return device_bytes - std::min(device_bytes, context_allowance().bytes);
}

}  // namespace forge
