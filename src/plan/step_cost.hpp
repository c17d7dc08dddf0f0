#pragma once

#include <array>
#include <map>
#include <tuple>

#include "model/operations.hpp"
#include "plan/machine.hpp"
#include "plan/placement.hpp"
#include "plan/setup.hpp"
#include "plan/step_program.hpp"
#include "plan/traffic.hpp"

namespace forge {

// Of a pass of a layer: what it computes and sends on one rank, whose groups lie as `places` says.
TaskCost layer_cost(const Machine& machine, const BufferContext& context, int cp_rank,
                    const std::array<Placement, group_count>& places, const LayerPass& pass);

// Seconds of the tasks of a step on a machine: what a task computes (model/operations.hpp) and sends (plan/traffic.hpp),
// at the machine's rates. Tasks of layers that are alike are computed once.
class StepCost {
 public:
  StepCost(const Machine& machine, const RunSetup& setup);

  // Of a rank of stage `pp_rank`, whose groups lie as those of the stage's first rank.
  TaskCost operator()(const RankShare& share, const Task& task);

 private:
  TaskCost cost_of(const RankShare& share, const Task& task) const;
  void add_bytes(TaskCost& cost, CostPart part, double bytes) const;
  double elements_of_state(const RankShare& share) const;

  const Machine& machine_;
  const RunSetup& setup_;
  std::vector<std::array<Placement, group_count>> places_;  // by pp rank
  // By stage, operation, kind and number of the layer where it matters, unit.
  using Key = std::tuple<int, TaskOp, int, int, bool, std::int64_t, std::size_t, bool>;
  std::map<Key, TaskCost> known_;
};

}  // namespace forge
