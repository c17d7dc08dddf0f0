#include "predict/outcome.hpp"

#include <algorithm>

#include "core/to_size.hpp"

namespace forge {

RankMemory memory_on(const Machine& machine, const RunSetup& setup,
                     const std::function<void(const MemoryPlan&, const RankShare&)>& each) {
  RankMemory memory = rank_memory(setup, RunKind::training, [&](MemoryPlan& plan, const RankShare& share) {
    double elements = 0;
    for (const LocalUnit& unit : share.units) elements += static_cast<double>(unit.elements);
    const auto activations = static_cast<double>(plan.of(Category::activations));
    plan.of(Category::activations) = static_cast<std::size_t>(machine.program.activation_memory * activations);
    plan.of(Category::gradients) += static_cast<std::size_t>(machine.program.gradient_memory * elements);
    if (each) each(plan, share);
  });
  if (machine.cores_per_node > 0) memory.libraries = {process_allowance()};
  return memory;
}

std::size_t usable_memory(const Machine& machine, int ranks) {
  if (machine.cores_per_node == 0) return usable_bytes(machine.memory_bytes);
  return machine.memory_bytes / to_size(std::min(ranks, machine.ranks_per_node));
}

Outcome outcome_of(const Machine& machine, const RunSetup& setup, const std::vector<const MeasuredTasks*>& measured) {
  return {setup.deck, predict(machine, setup, measured), memory_on(machine, setup),
          usable_memory(machine, setup.mesh.world())};
}
Outcome outcome_of(const Machine& machine, const Deck& deck) {
  return outcome_of(machine, on_devices(make_setup(deck), machine.capability));
}

bool may_fit(const Machine& machine, const RunSetup& setup) {
  const int last = setup.mesh.pp - 1;
  return planned_memory(setup, RunKind::training, 0).total() <= usable_memory(machine, setup.mesh.world()) &&
         (last == 0 ||
          planned_memory(setup, RunKind::training, last).total() <= usable_memory(machine, setup.mesh.world()));
}

}  // namespace forge
