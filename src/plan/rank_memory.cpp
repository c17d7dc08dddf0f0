#include "plan/rank_memory.hpp"

#include <algorithm>

#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"
#include "schedule/repetition.hpp"

namespace forge {

namespace {

// What decides about memory in a setup's schedules.
class FewSchedules {
 public:
  explicit FewSchedules(const RunSetup& setup) : setup_(setup), largest_(few_of(setup.deck, setup.schedule)) {
    for (const Schedule& schedule : setup.smaller) smaller_.push_back(few_of(setup.deck, schedule));
  }
  RankShare share(int pp_rank) const {
    return rank_share(setup_.model_share(), pp_rank * (setup_.mesh.world() / setup_.mesh.pp));
  }
  MemoryPlan memory(const RankShare& share, RunKind kind) const {
    return plan_memory(setup_.buffers, share, largest_, library_bytes(setup_.deck), kind, smaller_);
  }
  std::vector<Allowance> allowances(const RankShare& share) const {
    return library_allowances(plan_traffic(setup_.buffers, setup_.spec, setup_.mesh, share, largest_),
                              group_sizes(setup_.spec, setup_.mesh, share));
  }

 private:
  const RunSetup& setup_;
  Schedule largest_;
  std::vector<Schedule> smaller_;
};

}  // namespace

std::size_t library_bytes(const Deck& deck) {
  return to_size(deck.machine.workspace_mib) << 20;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind, int pp_rank) {
  const FewSchedules few(setup);
  return few.memory(few.share(pp_rank), kind);
}

std::vector<MemoryPlan> memory_by_stage(const RunSetup& setup, RunKind kind) {
  const FewSchedules few(setup);
  std::vector<MemoryPlan> plans;
  for (int p = 0; p < setup.mesh.pp; ++p) plans.push_back(few.memory(few.share(p), kind));
  return plans;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind) {
  return plan_memory(setup.buffers, setup.share, setup.schedule, library_bytes(setup.deck), kind, setup.smaller);
}

const MemoryPlan& largest_of(const std::vector<MemoryPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
}

RankMemory rank_memory(const RunSetup& setup, RunKind kind,
                       const std::function<void(MemoryPlan&, const RankShare&)>& changes) {
  const FewSchedules few(setup);
  RankMemory largest;
  for (int p = 0; p < setup.mesh.pp; ++p) {
    const RankShare share = few.share(p);
    MemoryPlan plan = few.memory(share, kind);
    if (changes) changes(plan, share);
    RankMemory memory{std::move(plan), few.allowances(share)};
    if (p == 0 || memory.total() > largest.total()) largest = std::move(memory);
  }
  return largest;
}

std::size_t usable_bytes(std::size_t device_bytes) {
  return device_bytes - std::min(device_bytes, context_allowance().bytes);
}

}  // namespace forge
