#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <tuple>

#include "plan/setup.hpp"
#include "plan/traffic.hpp"
#include "predict/pass_cost.hpp"

namespace forge {

// The kernel of attention that a deck's run has on a machine, by its name in the machine's file.
std::string_view attention_kernel(const Machine& machine, const Deck& deck, const BufferContext& buffers);

// Whether products of experts are CUTLASS's on such GPUs: it is asked for, or the machine's file has it.
bool takes_cutlass_on(const Machine& machine, const Deck& deck, GroupedProducts asked);
// The buffers of a run there.
BufferContext buffers_on(const Machine& machine, const RunSetup& setup);

// Seconds of the tasks of a step on a machine: of a task's computation (nn/segments.plan.hpp) and collectives
// (plan/traffic.hpp), at the machine's rates. Tasks of layers that are alike are computed once.
class StepCost {
 public:
  StepCost(const Machine& machine, const RunSetup& setup);

  // The cost of a task of a rank of stage `share.pp_rank`, whose groups lie as the first rank's of the stage.
  TaskCost operator()(const RankShare& share, const Task& task);

 private:
  TaskCost cost_of(const RankShare& share, const Task& task) const;
  void add_at_once(TaskCost& cost, const RankShare& share, TaskOp op) const;
  void add_gradients(TaskCost& cost, const RankShare& share, const Task& task) const;
  void add_update(TaskCost& cost, const RankShare& share, const Task& task) const;
  void add_operations(TaskCost& cost, const Segments& list) const;
  void add_bytes(TaskCost& cost, CostPart part, double bytes) const;
  std::int64_t cleared(const LocalUnit& unit) const;
  std::int64_t cleared_in_step(const LocalUnit& unit) const;
  double bytes_of_update(const RankShare& share) const;
  double bytes_of_states(std::initializer_list<KeptOf> of) const;
  double bytes_of_gradient() const;
  double bytes_of_rounding(const LocalUnit& unit, bool last) const;
  double bytes_of_levels(const LocalUnit& unit) const;
  double elements_of_state(const RankShare& share) const;

  const Machine& machine_;
  const RunSetup& setup_;
  BufferContext busiest_;                                   // of the layers, with the machine's imbalance
  std::vector<std::array<Placement, group_count>> places_;  // by pp rank
  // The key of known costs: stage, operation, kind and number of the layer where it matters, unit.
  using Key = std::tuple<int, TaskOp, int, int, bool, std::int64_t, std::size_t, bool>;
  std::map<Key, TaskCost> known_;
};

}  // namespace forge
