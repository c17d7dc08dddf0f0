#pragma once

#include "core/collectives.hpp"
#include "core/short_list.hpp"
#include "layout/local_units.hpp"

namespace forge {

// A collective that sums gradients of a unit over ranks that share it. parallel/gradient_sync.hpp runs them,
// plan/traffic.hpp adds up their bytes.
struct Reduction {
  Group group;
  Collective collective;  // an all-reduce; a reduce-scatter is of the whole unit
  Range part;             // of the unit's buffer: whose sum the rank has then
  int nodes = 1;          // of a reduce-scatter in two levels (parallel/level_sums.hpp)

  // The groups of both levels.
  Group node() const { return group == Group::gradient_shards ? Group::gradient_node : Group::expert_gradient_node; }
  Group rail() const { return group == Group::gradient_shards ? Group::gradient_rail : Group::expert_gradient_rail; }
};
// Over the ranks that share the unit's state or, without ZeRO, all that hold the unit: after each microbatch
// (Zero::reduce_each), or once a step.
Reduction reduction_over_shards(const LocalUnit& unit);
// The reductions behind those over shards, once a step, of the rank's state: over replicas, and of elements that tp (of
// experts etp) replicates or copies, over tp (etp).
using StepReductions = ShortList<Reduction, 16>;
StepReductions step_reductions(const LocalUnit& unit);

}  // namespace forge
