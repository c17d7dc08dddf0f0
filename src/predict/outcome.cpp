#include "predict/outcome.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/to_size.hpp"

namespace forge {

namespace {

// What the machine's program needs otherwise than forge; each(): of each pipeline rank.
MemoryChanges changes_of(const Machine& machine, const EachStage& each = {}) {
  return [&machine, each](MemoryPlan& plan, const RankShare& share) {
    double elements = 0;
    for (const LocalUnit& unit : share.units) elements += static_cast<double>(unit.elements);
    const auto activations = static_cast<double>(plan.of(Category::activations));
    plan.of(Category::activations) = static_cast<std::size_t>(machine.program.activation_memory * activations);
    plan.of(Category::gradients) += static_cast<std::size_t>(machine.program.gradient_memory * elements);
    if (each) each(plan, share);
  };
}

RankMemory with_libraries(const Machine& machine, RankMemory memory) {
  if (machine.cores_per_node > 0) memory.libraries = {process_allowance()};
  return memory;
}

}  // namespace

RankMemory memory_on(const Machine& machine, const RunSetup& setup, const EachStage& each) {
  return with_libraries(machine, rank_memory(setup, RunKind::training, changes_of(machine, each)));
}

std::size_t bytes_of_ends(const Machine& machine, const RunSetup& setup) {
  std::size_t most = 0;
  for (const int stage : std::set{0, setup.mesh.pp - 1})
    most = std::max(
        most, with_libraries(machine, stage_memory(setup, RunKind::training, stage, changes_of(machine))).total());
  return most;
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

}  // namespace forge
