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
  // Of a reduce-scatter in two levels: the nodes. The ranks of a node sum in the accumulation type; between the ranks
  // of a place these sums are exchanged in the compute type, to which each is rounded to nearest, but for a rank's own,
  // and added in the accumulation type in the order of nodes. With u the half spacing of the compute type (2^-8 of
  // bf16):
  //   |g − Σ s_n| ≤ u Σ_{n ≠ own} |s_n| + what the sums in the accumulation type lose,   s_n: the sum of node n
  int nodes = 1;

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
