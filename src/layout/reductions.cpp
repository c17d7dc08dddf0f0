#include "layout/reductions.hpp"

namespace forge {

Reduction reduction_over_shards(const LocalUnit& unit) {
  const bool experts = unit.is_experts();
  if (!unit.zero.shards_state())
    return {experts ? Group::expert_gradients : Group::gradients, Collective::all_reduce, unit.state()};
  return {experts ? Group::expert_gradient_shards : Group::gradient_shards, Collective::reduce_scatter, unit.state(),
          unit.zero.nodes};
}

StepReductions step_reductions(const LocalUnit& unit) {
  StepReductions list;
  const auto add = [&](Group group, const Range& part) {
    const Range here = intersection(part, unit.state());
    if (!here.empty()) list.push_back({group, Collective::all_reduce, here});
  };
  const bool experts = unit.is_experts();
  if (unit.zero.shards_state()) add(experts ? Group::expert_gradient_replicas : Group::gradient_replicas, unit.state());
  if (experts) {  // of them etp replicates matrices of adapters alone
    add(Group::expert_gradient_etp, {unit.replicated_begin, unit.replicated_end});
    return list;
  }
  add(Group::gradient_tp, {unit.replicated_begin, unit.replicated_end});
  for (const Range& copied : unit.copied) add(Group::gradient_copies, copied);
  return list;
}

}  // namespace forge
