#include "plan/rank_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/traffic.hpp"

namespace forge {

namespace {

std::vector<Allowance> allowances_of(const RunSetup& s, const RankShare& share) {
  return library_allowances(plan_traffic(s.buffers, s.spec, s.mesh, share, s.schedule),
                            group_sizes(s.spec, s.mesh, share));
}

MemoryPlan plan_of(const RunSetup& s, RunKind kind, const RankShare& share) {
  return plan_memory(s.buffers, share, s.schedule, library_bytes(s.deck), kind, s.smaller);
}

// f(share) of the first rank of a stage: the setup's own where it is that rank.
template <class F>
auto on_stage(const RunSetup& s, int pp_rank, F f) {
  const int rank = pp_rank * (s.mesh.world() / s.mesh.pp);
  return rank == s.rank ? f(s.share) : f(rank_share(s.model_share(), rank));
}

}  // namespace

std::size_t library_bytes(const Deck& deck) {
  return to_size(deck.machine.workspace_mib) << 20;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind, int pp_rank) {
  return on_stage(setup, pp_rank, [&](const RankShare& share) { return plan_of(setup, kind, share); });
}

std::vector<MemoryPlan> memory_by_stage(const RunSetup& setup, RunKind kind) {
  std::vector<MemoryPlan> plans;
  for (int p = 0; p < setup.mesh.pp; ++p) plans.push_back(planned_memory(setup, kind, p));
  return plans;
}

MemoryPlan planned_memory(const RunSetup& setup, RunKind kind) {
  return plan_of(setup, kind, setup.share);
}

const MemoryPlan& largest_of(const std::vector<MemoryPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
}

RankMemory stage_memory(const RunSetup& setup, RunKind kind, int pp_rank, const MemoryChanges& changes) {
  return on_stage(setup, pp_rank, [&](const RankShare& share) {
    RankMemory memory{plan_of(setup, kind, share), allowances_of(setup, share)};
    if (changes) changes(memory.plan, share);
    return memory;
  });
}

RankMemory rank_memory(const RunSetup& setup, RunKind kind, const MemoryChanges& changes) {
  RankMemory largest = stage_memory(setup, kind, 0, changes);
  for (int p = 1; p < setup.mesh.pp; ++p)
    if (RankMemory memory = stage_memory(setup, kind, p, changes); memory.total() > largest.total())
      largest = std::move(memory);
  return largest;
}

std::size_t usable_bytes(std::size_t device_bytes) {
  return device_bytes - std::min(device_bytes, context_allowance().bytes);
}

}  // namespace forge
