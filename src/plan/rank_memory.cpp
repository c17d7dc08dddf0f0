#include "plan/rank_memory.hpp"

#include <algorithm>

#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"

namespace forge {

namespace {

std::vector<Allowance> allowances_of(const RunSetup& s, const RankShare& share) {
  return library_allowances(plan_traffic(s.buffers, s.spec, s.mesh, share, s.schedule),
                            group_sizes(s.spec, s.mesh, share));
}

}  // namespace

std::size_t library_bytes(const Deck& deck) {
  return to_size(deck.machine.workspace_mib) << 20;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind, int pp_rank) {
  const int ranks = setup.mesh.world() / setup.mesh.pp;
  return plan_memory(setup.buffers, rank_share(setup.model_share(), pp_rank * ranks), setup.schedule,
                     library_bytes(setup.deck), kind, setup.smaller);
}

std::vector<MemoryPlan> memory_by_stage(const RunSetup& setup, RunKind kind) {
  std::vector<MemoryPlan> plans;
  for (int p = 0; p < setup.mesh.pp; ++p) plans.push_back(planned_memory(setup, kind, p));
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
  std::vector<MemoryPlan> plans = memory_by_stage(setup, kind);
  RankMemory largest;
  const int ranks = setup.mesh.world() / setup.mesh.pp;
  for (int p = 0; p < setup.mesh.pp; ++p) {
    const RankShare share = rank_share(setup.model_share(), p * ranks);
    if (changes) changes(plans[to_size(p)], share);
    RankMemory memory{plans[to_size(p)], allowances_of(setup, share)};
    if (p == 0 || memory.total() > largest.total()) largest = memory;
  }
  return largest;
}

std::size_t usable_bytes(std::size_t device_bytes) {
  return device_bytes - std::min(device_bytes, context_allowance().bytes);
}

}  // namespace forge
